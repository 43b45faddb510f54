#include "lib/policy/policy_state_tier.h"

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/policy/policy_state_codec.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/fake_blob_store.h"
#include "lib/policy/testing/random_state.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/policy/testing/state_form.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

struct Fixture {
  /// A budget of so many states.
  explicit Fixture(int64_t states_in_host, bool has_fallback = false, int policies = 8) {
    for (int p = 0; p < policies; ++p) {
      specs.push_back(SmallSpecForTesting());
      specs.back().id = PolicyId(absl::StrCat("p", p));
    }
    PolicyStateTier::Deps deps;
    deps.blobs = &blobs;
    deps.form = &form;
    deps.initial = [this](PolicySlot slot) -> absl::StatusOr<PolicyState> { return State(slot.value(), 0); };
    if (has_fallback) {
      deps.fallback = [this](PolicySlot slot) -> absl::StatusOr<PolicyState> {
        ++fallbacks;
        return State(slot.value(), 500);
      };
    }
    tier = *PolicyStateTier::Make(&specs, {states_in_host * BytesOf(State(0, 0))}, std::move(deps));
  }
  PolicyState State(int32_t slot, uint64_t seed) const {
    return RandomState(specs[static_cast<size_t>(slot)], seed + static_cast<uint64_t>(slot));
  }
  absl::Status Store(int32_t slot, uint64_t seed) {
    return tier->Store(PolicySlot(slot), std::make_shared<PolicyState>(State(slot, seed)));
  }
  void ExpectState(int32_t slot, uint64_t seed) {
    const absl::StatusOr<PolicyTier::Value> value = tier->Load(PolicySlot(slot));
    ASSERT_TRUE(value.ok()) << value.status();
    ExpectSameBits(*static_cast<const PolicyState*>(value->get()), State(slot, seed));
  }

  StateForm form;
  FakeBlobStore blobs;
  std::vector<PolicySpec> specs;
  int fallbacks = 0;
  std::unique_ptr<PolicyStateTier> tier;
};

TEST(BlobKeyTest, IsNeverAPath) {
  for (const char* good : {"policy_7", "a", "0-9"}) EXPECT_TRUE(ValidateBlobKey(good).ok()) << good;
  for (const std::string& bad : {std::string(""), std::string("../x"), std::string("a/b"), std::string("A"),
                                 std::string("."), std::string(65, 'a'), std::string("a\n"), std::string("a\0b", 3)}) {
    EXPECT_EQ(ValidateBlobKey(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(PolicyStateTierTest, RefusesABudgetBelowZero) {
  std::vector<PolicySpec> specs;
  StateForm form;
  const auto tier = PolicyStateTier::Make(
      &specs, {-1}, {nullptr, &form, [](PolicySlot) { return absl::StatusOr<PolicyState>(PolicyState()); }, nullptr});
  EXPECT_EQ(tier.status().message(), "host_budget_bytes is -1; expected at least 0");
}

TEST(PolicyStateTierTest, GivesTheFirstStateAndThenWhatWasStored) {
  Fixture f(8);
  f.ExpectState(3, 0);
  ASSERT_TRUE(f.Store(3, 10).ok());
  f.ExpectState(3, 10);
  ASSERT_TRUE(f.Store(3, 20).ok());
  f.ExpectState(3, 20);
  f.ExpectState(4, 0);
  EXPECT_EQ(f.tier->Stats().host_bytes, BytesOf(f.State(3, 20)));
  EXPECT_EQ(f.blobs.size(), 0u);
}

TEST(PolicyStateTierTest, BeyondTheBudgetTheLeastRecentlyStoredGoesToTheBlobs) {
  Fixture f(2);
  for (int32_t slot = 0; slot < 4; ++slot) ASSERT_TRUE(f.Store(slot, 10).ok());
  PolicyStateTierStats stats = f.tier->Stats();
  EXPECT_EQ(stats.host_bytes, 2 * BytesOf(f.State(0, 0)));
  EXPECT_EQ(stats.states_on_disk, 2);
  EXPECT_EQ(stats.blob_writes, 2);
  EXPECT_EQ(f.blobs.size(), 2u);
  f.ExpectState(0, 10);
  f.ExpectState(1, 10);
  EXPECT_EQ(f.tier->Stats().blob_reads, 2) << "2 and 3 are in memory";
  f.ExpectState(2, 10);
  f.ExpectState(3, 10);
  EXPECT_EQ(f.tier->Stats().blob_reads, 2);
  // Stored again, it is in memory again, and 2 has to leave; the stale blob is gone.
  ASSERT_TRUE(f.Store(0, 30).ok());
  stats = f.tier->Stats();
  EXPECT_EQ(stats.states_on_disk, 2);
  EXPECT_EQ(stats.host_bytes, 2 * BytesOf(f.State(0, 0)));
  EXPECT_EQ(f.blobs.size(), 2u);
  f.ExpectState(0, 30);
  f.ExpectState(2, 10);
}

TEST(PolicyStateTierTest, ABudgetOfNothingKeepsAllInTheBlobs) {
  Fixture f(0);
  for (uint64_t seed : {10, 20}) {
    for (int32_t slot = 0; slot < 8; ++slot) ASSERT_TRUE(f.Store(slot, seed).ok());
    for (int32_t slot = 0; slot < 8; ++slot) f.ExpectState(slot, seed);
  }
  EXPECT_EQ(f.tier->Stats().host_bytes, 0);
  EXPECT_EQ(f.tier->Stats().states_on_disk, 8);
}

TEST(PolicyStateTierTest, AStateThatCannotBeWrittenStays) {
  for (const absl::Status& refusal :
       {absl::ResourceExhaustedError("disk full"), absl::PermissionDeniedError("read-only"),
        absl::NotFoundError("folder is gone")}) {
    Fixture f(1);
    ASSERT_TRUE(f.Store(0, 10).ok());
    f.blobs.Refuse(refusal);
    EXPECT_EQ(f.Store(1, 10), refusal) << "there is no room for it, and none can be made";
    f.ExpectState(0, 10);
    EXPECT_EQ(f.tier->Stats().host_bytes, BytesOf(f.State(0, 0))) << "the budget holds";
    EXPECT_EQ(f.tier->Stats().blob_write_failures, 1);
    // One that has no other place is kept all the same.
    f.tier->Put(PolicySlot(2), f.State(2, 10));
    f.ExpectState(2, 10);
    EXPECT_EQ(f.tier->Stats().host_bytes, 2 * BytesOf(f.State(0, 0)));
    f.blobs.Refuse(absl::OkStatus());
    ASSERT_TRUE(f.Store(1, 10).ok());
    for (int32_t slot = 0; slot < 3; ++slot) f.ExpectState(slot, 10);
    EXPECT_EQ(f.tier->Stats().host_bytes, BytesOf(f.State(0, 0)));
  }
}

TEST(PolicyStateTierTest, AWriteThatIsNotReadBackAsItWasDoesNotCount) {
  Fixture f(1);
  ASSERT_TRUE(f.Store(0, 10).ok());
  f.blobs.TearWrites();
  EXPECT_EQ(f.Store(1, 10).code(), absl::StatusCode::kDataLoss);
  f.ExpectState(0, 10);
}

TEST(PolicyStateTierTest, ADamagedBlobIsThatPolicysLossAlone) {
  Fixture f(0);
  ASSERT_TRUE(f.Store(0, 10).ok());
  f.blobs.Damage();
  ASSERT_TRUE(f.Store(1, 10).ok());
  const absl::Status status = f.tier->Load(PolicySlot(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("policy \"p0\" is lost: stored state of policy"));
  EXPECT_EQ(f.tier->Load(PolicySlot(0)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(f.tier->Stats().lost, 1) << "counted once";
  f.ExpectState(1, 10);
}

TEST(PolicyStateTierTest, ALostPolicyComesFromTheFallbackOnce) {
  for (const bool missing : {false, true}) {
    Fixture f(1, /*has_fallback=*/true);
    ASSERT_TRUE(f.Store(0, 10).ok());
    ASSERT_TRUE(f.Store(1, 10).ok());
    ASSERT_EQ(f.tier->Stats().states_on_disk, 1);
    if (missing) {
      ASSERT_TRUE(f.blobs.Delete("policy_0").ok());
    } else {
      f.blobs.Damage();
    }
    f.ExpectState(0, 500);
    f.ExpectState(0, 500);
    EXPECT_EQ(f.fallbacks, 1);
    EXPECT_EQ(f.tier->Stats().lost, 1);
    f.ExpectState(1, 10);
  }
}

TEST(PolicyStateTierTest, AFallbackThatDoesNotFitIsRefused) {
  Fixture f(0);
  PolicyStateTier::Deps deps{&f.blobs, &f.form,
                             [&](PolicySlot s) { return absl::StatusOr<PolicyState>(f.State(s.value(), 0)); },
                             [&](PolicySlot) { return absl::StatusOr<PolicyState>(f.State(7, 0)); }};
  const auto tier = *PolicyStateTier::Make(&f.specs, {0}, std::move(deps));
  ASSERT_TRUE(tier->Store(PolicySlot(0), std::make_shared<PolicyState>(f.State(0, 10))).ok());
  f.blobs.Damage();
  EXPECT_EQ(tier->Load(PolicySlot(0)).status().code(), absl::StatusCode::kDataLoss);
}

TEST(PolicyStateTierTest, WithoutBlobsEverythingStaysInHostMemory) {
  Fixture f(0);
  const auto tier = *PolicyStateTier::Make(
      &f.specs, {0},
      {nullptr, &f.form, [&](PolicySlot s) { return absl::StatusOr<PolicyState>(f.State(s.value(), 0)); }, nullptr});
  for (int32_t slot = 0; slot < 8; ++slot) {
    ASSERT_TRUE(tier->Store(PolicySlot(slot), std::make_shared<PolicyState>(f.State(slot, 10))).ok());
  }
  EXPECT_EQ(tier->Stats().host_bytes, 8 * BytesOf(f.State(0, 0)));
}

// A map over the tier: whatever is evicted, spilled and loaded, each policy keeps its own last state.
TEST(PolicyStateTierTest, BehindAMapNothingIsLost) {
  Fixture f(3);
  PolicyMapCore::Options options;
  options.capacity = 2;
  options.max_slots = 8;
  const auto map = *PolicyMap<PolicyState>::Make(options, f.tier.get(), &base::Clock::Real());
  for (int32_t slot = 0; slot < 8; ++slot) ASSERT_TRUE(map->core().Add(PolicySlot(slot)).ok());
  PolicyMap<PolicyState>::Reader reader(map.get());
  std::vector<int64_t> expected(8, 0);
  base::PhiloxSequence random(base::PhiloxKey::Make(5, base::RandomStream::kTest), {});
  for (int step = 0; step < 2000; ++step) {
    if (step % 1000 == 500) f.blobs.Refuse(absl::ResourceExhaustedError("disk full"));
    if (step % 1000 == 505) f.blobs.Refuse(absl::OkStatus());
    const auto slot = static_cast<int32_t>(random.Below(8));
    auto batch = reader.Acquire({PolicySlot(slot)}, PolicyMapCore::Access::kWrite);
    ASSERT_TRUE(batch.ok()) << batch.status();
    PolicyState& state = (*batch)[0];
    ASSERT_EQ(state.Integer("adam.steps"), 17 + expected[slot]);
    state.SetInteger("adam.steps", state.Integer("adam.steps") + 1);
    ++expected[slot];
    batch->Release();
    while (map->core().StepWriteBack()) {
    }
    ASSERT_LE(f.tier->Stats().host_bytes, 3 * BytesOf(f.State(0, 0)));
  }
  EXPECT_GT(f.tier->Stats().blob_reads, 100);
}

TEST(PolicyStateTierTest, ThreadsWithPoliciesOfTheirOwn) {
  Fixture f(3, false, 16);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&f, &wrong, t] {
      for (uint64_t round = 0; round < 200; ++round) {
        for (int32_t slot = 4 * t; slot < 4 * t + 4; ++slot) {
          if (!f.Store(slot, round).ok()) ++wrong;
          const auto read = f.tier->Read(PolicySlot(slot));
          if (!read.ok() || (*read)->parameters() != f.State(slot, round).parameters()) ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  // What threads were writing for each other may have stood beside the budget for a moment.
  ASSERT_TRUE(f.Store(0, 1).ok());
  EXPECT_LE(f.tier->Stats().host_bytes, 3 * BytesOf(f.State(0, 0)));
}

}  // namespace
}  // namespace troupe::policy
