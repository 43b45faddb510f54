#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/fake_blob_store.h"
#include "lib/policy/testing/random_state.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/testing/idle_backend.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::PolicySlot;
using policy::PolicySpec;
using policy::PolicyState;

const StateForm kForm = {.value_moments = true};

/// A store that begins with p0 and a free slot behind it.
class PolicyStoreChangesTest : public testing::Test {
 protected:
  void Make(const PolicyStoreOptions& options, int policies = 1) {
    std::vector<PolicySpec> specs;
    for (int i = 0; i < policies; ++i) specs.push_back(Spec(i));
    specs.emplace_back();
    auto made = PolicyStore::Make(specs, std::vector<StateForm>(specs.size(), kForm), 9,
                                  [this](const PolicySpec& spec) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
                                    if (spec.actor.activation == policy::Activation::kGelu)
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
    state.SetMoments(policy::kValueMoments, {5, {0.5}, {2.0}});  // as kForm has it
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
  ASSERT_TRUE(store_->Add(PolicySlot(1), Spec(1), kForm, state).ok());
  ExpectState(1, state);
  EXPECT_EQ((*store_->Snapshot(PolicySlot(1)))->version, (policy::WeightVersion{1, 7}));
  EXPECT_EQ(alive_, 2);
  EXPECT_EQ(store_->Add(PolicySlot(1), Spec(2), kForm, State(Spec(2), 4)).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(store_->Remove(PolicySlot(1)).ok());
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(store_->map_stats().resident_bytes, bytes);
  EXPECT_EQ(store_->Remove(PolicySlot(1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Export(PolicySlot(1)).status().code(), absl::StatusCode::kNotFound);
  // The slot's next policy may be of another form.
  PolicySpec wide = Spec(5);
  wide.actor.hidden_sizes = {32};
  ASSERT_TRUE(store_->Add(PolicySlot(1), wide, kForm, State(wide, 5)).ok());
  ExpectState(1, State(wide, 5));
}

TEST_F(PolicyStoreChangesTest, OneThatCannotBeAddedChangesNothing) {
  Make({.capacity = 4});
  const PolicyState good = State(Spec(1), 3);
  PolicyState shorter = good;
  shorter.Set(policy::kParameters, std::vector<float>(shorter.parameters().size() - 1));
  PolicySpec gelu = Spec(1);
  gelu.SetActivation(policy::Activation::kGelu);
  PolicySpec nameless = Spec(1);
  nameless.id = {};
  EXPECT_EQ(store_->Add(PolicySlot(1), Spec(1), kForm, shorter).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Add(PolicySlot(1), gelu, kForm, good).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store_->Add(PolicySlot(1), nameless, kForm, good).code(), absl::StatusCode::kInvalidArgument);
  for (const int32_t slot : {-1, 1024}) {
    EXPECT_EQ(store_->Add(PolicySlot(slot), Spec(1), kForm, good).code(), absl::StatusCode::kInvalidArgument) << slot;
  }
  EXPECT_EQ(store_->CheckSlot(PolicySlot(1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(alive_, 1);
  EXPECT_TRUE(store_->Add(PolicySlot(1023), Spec(1), kForm, good).ok()) << "the last slot that there is";
}

TEST_F(PolicyStoreChangesTest, BlocksThatNobodyKnowsAreRefusedInWords) {
  Make({.capacity = 4});
  const PolicyState good = State(Spec(0), 3);
  const auto problem = [&](const std::function<void(PolicyState*)>& change) {
    PolicyState state = good;
    change(&state);
    const absl::Status status = store_->Import(PolicySlot(0), state);
    EXPECT_EQ(status.code() == absl::StatusCode::kInvalidArgument, !status.ok());
    return std::string(status.message());
  };
  EXPECT_EQ(problem([](PolicyState*) {}), "");
  const std::string id = "policy \"" + Spec(0).id.value() + "\": ";
  EXPECT_EQ(problem([](PolicyState* s) {
              s->Set("q1.target", std::vector<float>(2));
            }).find(id + "block \"q1.target\" is unknown; expected one of parameters, adam.exp_avg, "),
            0u);
  EXPECT_EQ(problem([](PolicyState* s) { s->Set(kAdamSteps, std::vector<float>(2)); }),
            id + "block \"adam.steps\" is f32 [2], expected i64 []");
  EXPECT_NE(problem([](PolicyState* s) { s->Remove(kAdamExpAvgSq); }).find("has no block \"adam.exp_avg_sq\""),
            std::string::npos);
  EXPECT_NE(problem([](PolicyState* s) { s->Remove("value_moments.count"); }).find("no block \"value_moments.count\""),
            std::string::npos);
  EXPECT_EQ(problem([](PolicyState* s) {
              for (const char* name : {kAdamExpAvg, kAdamExpAvgSq, kAdamSteps}) s->Remove(name);
            }),
            "")
      << "weights alone";
  PolicyState other = State(Spec(1), 3);
  other.Set("q1.target", std::vector<float>(2));
  EXPECT_EQ(store_->Add(PolicySlot(1), Spec(1), kForm, other).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->CheckSlot(PolicySlot(1)).code(), absl::StatusCode::kNotFound);
}

TEST_F(PolicyStoreChangesTest, NetworksThatNoBackEndHasAreRefused) {
  Make({.capacity = 4});
  PolicySpec no_critic = Spec(1);
  no_critic.learner_networks.clear();
  ASSERT_TRUE(no_critic.Validate().ok());
  const absl::Status status = store_->Add(PolicySlot(1), no_critic, kForm, State(no_critic, 1));
  EXPECT_EQ(status, absl::InvalidArgumentError("policy \"p1\": a loss of rows trains an actor and a critic, "
                                               "which gives values of observations, got an actor"));
  PolicySpec apart = Spec(1);
  apart.mutable_critic()->activation = policy::Activation::kRelu;
  EXPECT_EQ(store_->Add(PolicySlot(1), apart, kForm, State(apart, 1)), absl::OkStatus());
}

TEST_F(PolicyStoreChangesTest, SwappablePoliciesMustBeAlike) {
  Make({.capacity = 2, .states_are_swappable = true}, 2);
  PolicySpec other = Spec(2);
  other.mutable_critic()->hidden_sizes = {7};
  EXPECT_EQ(store_->Add(PolicySlot(2), other, kForm, State(other, 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->Add(PolicySlot(2), Spec(2), {.value_moments = false}, State(Spec(2), 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store_->Add(PolicySlot(2), Spec(2), kForm, State(Spec(2), 1)).ok());
}

TEST_F(PolicyStoreChangesTest, EvictedOnesGoFromEveryTier) {
  const PolicySpec spec = Spec(0);
  for (const int64_t host_budget : {int64_t{0}, int64_t{1} << 20}) {
    Make({.capacity = 2, .host_budget_bytes = host_budget}, 3);
    std::vector<PolicyState> states;
    for (int32_t slot = 3; slot < 9; ++slot) {
      states.push_back(State(Spec(slot), static_cast<uint64_t>(slot)));
      ASSERT_TRUE(store_->Add(PolicySlot(slot), Spec(slot), kForm, states.back()).ok());
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
    ASSERT_TRUE(store_->Add(PolicySlot(slot), Spec(round), kForm, state).ok());
    ExpectState(slot, state);
  }
  EXPECT_LE(alive_, 4);
  EXPECT_LE(store_->tier_stats().host_bytes, 4096);
  EXPECT_LE(blobs_.size(), 9u);
}

}  // namespace
}  // namespace troupe::training
