#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/fake_blob_store.h"
#include "lib/policy/testing/random_state.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/policy_store.h"
#include "lib/training/testing/idle_backend.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::PolicySlot;
using policy::PolicySpec;
using policy::PolicyState;

/// A store that begins with p0 and a free slot behind it.
class PolicyStoreChangesTest : public testing::Test {
 protected:
  void Make(const PolicyStoreOptions& options, int policies = 1) {
    std::vector<PolicySpec> specs;
    for (int i = 0; i < policies; ++i) specs.push_back(Spec(i));
    specs.emplace_back();
    auto made = PolicyStore::Make(specs, std::vector<PpoOptions>(specs.size()), 9,
                                  [this](const PolicySpec& spec) -> absl::StatusOr<std::unique_ptr<PpoBackend>> {
                                    if (spec.model.activation == policy::Activation::kGelu)
                                      return absl::UnavailableError("no gelu");
                                    return std::make_unique<IdleBackend>(&alive_);
                                  },
                                  options, {&blobs_, nullptr});
    ASSERT_TRUE(made.ok()) << made.status();
    store_ = *std::move(made);
  }
  static PolicySpec Spec(int number) {
    PolicySpec spec = policy::SmallSpecForTesting();
    spec.id = policy::PolicyId(absl::StrCat("p", number));
    return spec;
  }
  PolicyState State(const PolicySpec& spec, uint64_t seed) {
    PolicyState state = policy::RandomState(spec, seed);
    state.value_moments = {5, {0.5}, {2.0}};  // as PpoOptions have it
    state.version = {1, 7};
    return state;
  }
  void ExpectState(int32_t slot, const PolicyState& expected) {
    const auto state = store_->Export(PolicySlot(slot));
    ASSERT_TRUE(state.ok()) << state.status();
    policy::ExpectSameBits(*state, expected);
    EXPECT_EQ(state->version, expected.version);
  }

  int alive_ = 0;  ///< back ends
  policy::FakeBlobStore blobs_;
  std::unique_ptr<PolicyStore> store_;
};

TEST_F(PolicyStoreChangesTest, APolicyComesWithItsStateAndGoesWithItsMemory) {
  Make({.capacity = 4});
  EXPECT_EQ(store_->CheckSlot(PolicySlot(1)).code(), absl::StatusCode::kNotFound) << "it is free";
  const int64_t bytes = store_->map_stats().resident_bytes;
  const PolicyState state = State(Spec(1), 3);
  ASSERT_TRUE(store_->Add(PolicySlot(1), Spec(1), {}, state).ok());
  ExpectState(1, state);
  EXPECT_EQ((*store_->Snapshot(PolicySlot(1)))->version, (policy::WeightVersion{1, 7}));
  EXPECT_EQ(alive_, 2);
  EXPECT_EQ(store_->Add(PolicySlot(1), Spec(2), {}, State(Spec(2), 4)).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(store_->Remove(PolicySlot(1)).ok());
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(store_->map_stats().resident_bytes, bytes);
  EXPECT_EQ(store_->Remove(PolicySlot(1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Export(PolicySlot(1)).status().code(), absl::StatusCode::kNotFound);
  // The slot's next policy may be of another form.
  PolicySpec wide = Spec(5);
  wide.model.actor_hidden_sizes = {32};
  ASSERT_TRUE(store_->Add(PolicySlot(1), wide, {}, State(wide, 5)).ok());
  ExpectState(1, State(wide, 5));
}

TEST_F(PolicyStoreChangesTest, OneThatCannotBeAddedChangesNothing) {
  Make({.capacity = 4});
  const PolicyState good = State(Spec(1), 3);
  PolicyState shorter = good;
  shorter.parameters.pop_back();
  PolicySpec gelu = Spec(1);
  gelu.model.activation = policy::Activation::kGelu;
  PolicySpec nameless = Spec(1);
  nameless.id = {};
  EXPECT_EQ(store_->Add(PolicySlot(1), Spec(1), {}, shorter).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Add(PolicySlot(1), gelu, {}, good).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store_->Add(PolicySlot(1), nameless, {}, good).code(), absl::StatusCode::kInvalidArgument);
  for (const int32_t slot : {-1, 1024}) {
    EXPECT_EQ(store_->Add(PolicySlot(slot), Spec(1), {}, good).code(), absl::StatusCode::kInvalidArgument) << slot;
  }
  EXPECT_EQ(store_->CheckSlot(PolicySlot(1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(alive_, 1);
  EXPECT_TRUE(store_->Add(PolicySlot(1023), Spec(1), {}, good).ok()) << "the last slot that there is";
}

TEST_F(PolicyStoreChangesTest, SwappablePoliciesMustBeAlike) {
  Make({.capacity = 2, .states_are_swappable = true}, 2);
  PolicySpec other = Spec(2);
  other.model.critic_hidden_sizes = {7};
  EXPECT_EQ(store_->Add(PolicySlot(2), other, {}, State(other, 1)).code(), absl::StatusCode::kInvalidArgument);
  PpoOptions plain;
  plain.use_value_norm = false;
  EXPECT_EQ(store_->Add(PolicySlot(2), Spec(2), plain, State(Spec(2), 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store_->Add(PolicySlot(2), Spec(2), {}, State(Spec(2), 1)).ok());
}

TEST_F(PolicyStoreChangesTest, EvictedOnesGoFromEveryTier) {
  const PolicySpec spec = Spec(0);
  for (const int64_t host_budget : {int64_t{0}, int64_t{1} << 20}) {
    Make({.capacity = 2, .host_budget_bytes = host_budget}, 3);
    std::vector<PolicyState> states;
    for (int32_t slot = 3; slot < 9; ++slot) {
      states.push_back(State(Spec(slot), static_cast<uint64_t>(slot)));
      ASSERT_TRUE(store_->Add(PolicySlot(slot), Spec(slot), {}, states.back()).ok());
    }
    EXPECT_EQ(store_->map_stats().resident, 2);
    EXPECT_EQ(blobs_.size() > 0, host_budget == 0);
    for (int32_t slot = 3; slot < 9; ++slot) ExpectState(slot, states[static_cast<size_t>(slot) - 3]);
    for (int32_t slot = 3; slot < 9; ++slot) ASSERT_TRUE(store_->Remove(PolicySlot(slot)).ok()) << slot;
    EXPECT_EQ(store_->tier_stats().host_bytes, 0);
    EXPECT_EQ(store_->tier_stats().states_on_disk, 0);
    EXPECT_EQ(blobs_.size(), 0u);
    EXPECT_EQ(store_->map_stats().resident, 0);
    store_.reset();
    EXPECT_EQ(alive_, 0);
  }
}

TEST_F(PolicyStoreChangesTest, ManyChangesLeaveNothingBehind) {
  Make({.capacity = 3, .host_budget_bytes = 4096}, 2);
  for (int round = 0; round < 500; ++round) {
    const int32_t slot = 2 + round % 7;
    if (store_->CheckSlot(PolicySlot(slot)).ok()) {
      ASSERT_TRUE(store_->Remove(PolicySlot(slot)).ok());
    }
    const PolicyState state = State(Spec(round), static_cast<uint64_t>(round));
    ASSERT_TRUE(store_->Add(PolicySlot(slot), Spec(round), {}, state).ok());
    ExpectState(slot, state);
  }
  EXPECT_LE(alive_, 4);
  EXPECT_LE(store_->tier_stats().host_bytes, 4096);
  EXPECT_LE(blobs_.size(), 9u);
}

}  // namespace
}  // namespace troupe::training
