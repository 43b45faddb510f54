#include "lib/training/core/policy_store.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/policy/policy_state_codec.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/fake_blob_store.h"
#include "lib/policy/testing/random_state.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/testing/idle_backend.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::PolicySlot;
using policy::PolicyState;

constexpr uint64_t kSeed = 9;

struct Fixture {
  explicit Fixture(int policies, PolicyStoreOptions given, bool has_fallback = false) : options(given) {
    for (int p = 0; p < policies; ++p) {
      specs.push_back(policy::SmallSpecForTesting());
      specs.back().id = policy::PolicyId(absl::StrCat("p", p));
      specs.back().normalize_observations = true;
    }
    if (has_fallback) {
      deps.fallback = [this](PolicySlot slot) -> absl::StatusOr<PolicyState> { return Random(slot.value(), 700); };
    }
    deps.blobs = &blobs;
  }
  absl::Status Make() {
    absl::StatusOr<std::unique_ptr<PolicyStore>> made = PolicyStore::Make(
        specs, forms.empty() ? std::vector<StateForm>(specs.size(), {.value_moments = true}) : forms, kSeed,
        [this](const policy::PolicySpec& spec) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
          if (spec.actor.activation == policy::Activation::kGelu) return absl::UnavailableError("no gelu");
          ++backends;
          return std::make_unique<IdleBackend>();
        },
        options, deps);
    if (!made.ok()) return made.status();
    store = *std::move(made);
    return absl::OkStatus();
  }
  PolicyState Random(int32_t slot, uint64_t seed) const {
    return policy::RandomState(specs[static_cast<size_t>(slot)], seed);
  }
  /// What training does: the policy gets other numbers.
  void Change(int32_t slot, const PolicyState& to) {
    const auto batch = store->Acquire(PolicySlot(slot));
    ASSERT_TRUE(batch.ok()) << batch.status();
    ResidentPolicy& policy = (*batch)[0];
    const auto copy = [](const std::vector<float>& from, absl::Span<float> values) {
      std::copy(from.begin(), from.end(), values.begin());
    };
    copy(to.parameters(), policy.parameters.values());
    copy(to.Floats(kAdamExpAvg), policy.parameters.exp_avg());
    copy(to.Floats(kAdamExpAvgSq), policy.parameters.exp_avg_sq());
    policy.parameters.adam_steps = to.Integer(kAdamSteps);
    policy.observation_moments = to.Moments(policy::kObservationMoments);
    policy.value_moments = to.Moments(policy::kValueMoments);
    policy.trained_rows = to.Integer(kTrainedRows);
    policy.skipped_updates = to.Integer(kSkippedUpdates);
    policy.consecutive_skips = to.Integer(kConsecutiveSkips);
  }
  void ExpectState(int32_t slot, const PolicyState& expected) {
    const absl::StatusOr<PolicyState> state = store->Export(PolicySlot(slot));
    ASSERT_TRUE(state.ok()) << state.status();
    policy::ExpectSameBits(*state, expected);
    EXPECT_EQ(state->version, expected.version);
  }

  PolicyStoreOptions options;
  policy::FakeBlobStore blobs;
  std::vector<policy::PolicySpec> specs;
  std::vector<StateForm> forms;  ///< empty: all have value moments
  PolicyStore::Deps deps;
  int backends = 0;
  std::unique_ptr<PolicyStore> store;
};

TEST(PolicyStoreTest, OptionsAreChecked) {
  Fixture none(2, {.capacity = 0});
  EXPECT_THAT(std::string(none.Make().message()), testing::HasSubstr("policy_map_capacity is 0"));
  Fixture negative(2, {.host_budget_bytes = -1});
  EXPECT_EQ(negative.Make().code(), absl::StatusCode::kInvalidArgument);
  Fixture differ(3, {.states_are_swappable = true});
  differ.specs[2].mutable_critic()->hidden_sizes = {7};
  EXPECT_THAT(std::string(differ.Make().message()),
              testing::HasSubstr("policies \"p0\" and \"p2\" cannot swap their states"));
  Fixture normalizers(2, {.states_are_swappable = true});
  normalizers.forms = {{.value_moments = true}, {.value_moments = false}};
  EXPECT_EQ(normalizers.Make().message(),
            "policies \"p0\" and \"p1\" differ in use_value_norm or use_popart (true and false)");
}

TEST(PolicyStoreTest, AStateIsWrittenIntoTheMemoryOfAnotherPolicys) {
  Fixture f(2, {});
  ASSERT_TRUE(f.Make().ok());
  f.Change(0, f.Random(0, 1));
  f.Change(1, f.Random(1, 2));
  const auto first = f.store->Acquire(PolicySlot(0));
  const auto second = f.store->Acquire(PolicySlot(1));
  ASSERT_TRUE(first.ok() && second.ok());
  PolicyState state = f.store->StateOf(PolicySlot(0), (*first)[0]);
  const float* const memory = state.parameters().data();
  f.store->WriteState(PolicySlot(1), (*second)[0], &state);
  policy::ExpectSameBits(state, f.Random(1, 2));
  EXPECT_EQ(state.id, f.specs[1].id);
  EXPECT_EQ(state.parameters().data(), memory);
}

TEST(PolicyStoreTest, WhatCannotBeServedIsSaidAtTheStart) {
  for (const int64_t capacity : {1, 100}) {
    Fixture f(4, {.capacity = capacity});
    f.specs[3].SetActivation(policy::Activation::kGelu);
    EXPECT_EQ(f.Make(), absl::UnavailableError("no gelu"));
  }
}

TEST(PolicyStoreTest, WhereAllFitNoneEverLeaves) {
  Fixture f(4, {.capacity = 4, .host_budget_bytes = 0});
  ASSERT_TRUE(f.Make().ok());
  EXPECT_EQ(f.backends, 4);
  for (int32_t round = 0; round < 3; ++round) {
    for (int32_t slot = 0; slot < 4; ++slot) f.Change(slot, f.Random(slot, 5));
  }
  EXPECT_EQ(f.backends, 4);
  EXPECT_EQ(f.store->map_stats().evictions, 0);
  EXPECT_EQ(f.store->tier_stats().blob_writes, 0);
  EXPECT_TRUE(f.store->Metrics().empty());
}

TEST(PolicyStoreTest, EvictedPoliciesKeepEveryBit) {
  for (const auto& [swappable, shapes] : {std::pair(false, 1), std::pair(false, 2), std::pair(true, 1)}) {
    SCOPED_TRACE(absl::StrCat(swappable, " ", shapes));
    const int64_t budget = 2 * policy::BytesOf(policy::RandomState(policy::SmallSpecForTesting(), 1));
    Fixture f(7, {.capacity = 2, .states_are_swappable = swappable, .host_budget_bytes = budget});
    for (size_t slot = 1; shapes == 2 && slot < 7; slot += 2) f.specs[slot].mutable_critic()->hidden_sizes = {7};
    ASSERT_TRUE(f.Make().ok());
    std::vector<PolicyState> expected;
    for (const policy::PolicySpec& spec : f.specs) expected.push_back(*InitialState(spec, StateForm{true}, kSeed));
    for (int32_t slot = 0; slot < 7; ++slot) f.ExpectState(slot, expected[slot]);
    base::PhiloxSequence random(base::PhiloxKey::Make(3, base::RandomStream::kTest), {});
    for (uint64_t step = 0; step < 400; ++step) {
      const auto slot = static_cast<int32_t>(random.Below(7));
      const policy::WeightVersion version = expected[slot].version;
      expected[slot] = f.Random(slot, 1000 + step);
      switch (random.Below(3)) {
        case 0:
          ASSERT_TRUE(f.store->Import(PolicySlot(slot), expected[slot]).ok());
          break;
        case 1:
          expected[slot].version = version;
          ASSERT_TRUE(f.store->Restore(PolicySlot(slot), expected[slot]).ok());
          break;
        default:
          expected[slot].version = version;
          f.Change(slot, expected[slot]);
      }
      const auto other = static_cast<int32_t>(random.Below(7));
      f.ExpectState(other, expected[other]);
      const policy::WeightSnapshotPtr snapshot = *f.store->Snapshot(PolicySlot(other));
      ASSERT_TRUE(snapshot->Validate(f.specs[other]).ok());
      ASSERT_TRUE(std::equal(snapshot->actor.begin(), snapshot->actor.end(), expected[other].parameters().begin()));
      ASSERT_EQ(snapshot->version, expected[other].version);
      ASSERT_EQ(snapshot->observation_mean[0],
                static_cast<float>(expected[other].Moments(policy::kObservationMoments).mean[0]));
    }
    const policy::PolicyMapStats stats = f.store->map_stats();
    EXPECT_EQ(stats.resident, 2);
    EXPECT_EQ(stats.evictions, stats.misses - 2);
    EXPECT_EQ(stats.writes, stats.evictions) << "every one had changed";
    EXPECT_GT(f.store->tier_stats().blob_reads, 20);
    // One of each shape to see that it can be made, and one for each place: the capacity, and the one that comes while
    // another goes.
    EXPECT_EQ(f.backends, swappable ? 1 + 3 : shapes + stats.misses);
  }
}

TEST(PolicyStoreTest, MemoryOfEvictedPoliciesGoesToTheNextOfTheirShape) {
  Fixture f(6, {.capacity = 2});
  for (size_t slot = 1; slot < 6; slot += 2) f.specs[slot].mutable_critic()->hidden_sizes = {7};
  ASSERT_TRUE(f.Make().ok());
  // Gradients are nobody's between two updates: what stands there tells whose memory it was. Fresh memory is zero.
  const auto formerly_of = [&f](int32_t slot) {
    const auto batch = f.store->Acquire(PolicySlot(slot));
    return std::exchange((*batch)[0].parameters.gradients()[0], static_cast<float>(10 + slot));
  };
  EXPECT_EQ(formerly_of(0), 0);
  EXPECT_EQ(formerly_of(1), 0);
  EXPECT_EQ(formerly_of(2), 0) << "0 leaves after it has come";
  EXPECT_EQ(formerly_of(4), 10) << "1 leaves after it has come";
  EXPECT_EQ(formerly_of(3), 11);
  EXPECT_EQ(formerly_of(5), 0) << "of 2, which is of another shape, there is memory";
  EXPECT_EQ(formerly_of(0), 14) << "the last one of its shape that left";
}

TEST(PolicyStoreTest, MemoryOfEvictedPoliciesIsBounded) {
  for (const auto& [capacity, spares] : {std::pair(int64_t{4}, 1), std::pair(int64_t{24}, 3)}) {
    SCOPED_TRACE(capacity);
    const auto policies = static_cast<int32_t>(2 * capacity);
    Fixture f(policies, {.capacity = capacity});
    // All of one shape, and then all of another: nobody takes what the first ones leave.
    for (int64_t slot = capacity; slot < policies; ++slot) {
      f.specs[static_cast<size_t>(slot)].mutable_critic()->hidden_sizes = {7};
    }
    ASSERT_TRUE(f.Make().ok());
    int64_t most = 0;
    for (int32_t slot = 0; slot < policies; ++slot) {
      f.Change(slot, f.Random(slot, 5));
      most = std::max(most, f.store->num_spares());
    }
    EXPECT_EQ(f.store->map_stats().evictions, capacity);
    EXPECT_EQ(most, spares);
    for (int32_t slot = 0; slot < policies; ++slot) {
      PolicyState expected = f.Random(slot, 5);
      expected.version = {};
      f.ExpectState(slot, expected);
    }
  }
}

TEST(PolicyStoreTest, LookingAtPoliciesMovesNone) {
  Fixture f(5, {.capacity = 2, .host_budget_bytes = 0});
  ASSERT_TRUE(f.Make().ok());
  for (int32_t slot = 0; slot < 5; ++slot) f.Change(slot, f.Random(slot, 5));
  const policy::PolicyMapStats before = f.store->map_stats();
  for (int32_t slot = 0; slot < 5; ++slot) {
    ASSERT_TRUE(f.store->Export(PolicySlot(slot)).ok());
    ASSERT_TRUE(f.store->Snapshot(PolicySlot(slot)).ok());
  }
  for (int32_t slot = 0; slot < 3; ++slot) {
    ASSERT_TRUE(f.store->Import(PolicySlot(slot), f.Random(slot, 6)).ok());
  }
  const policy::PolicyMapStats after = f.store->map_stats();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.hits, before.hits);
  EXPECT_EQ(after.evictions, before.evictions);
}

TEST(PolicyStoreTest, ANewVersionTouchesNoPolicy) {
  Fixture f(5, {.capacity = 2, .host_budget_bytes = 0});
  ASSERT_TRUE(f.Make().ok());
  for (int32_t slot = 0; slot < 5; ++slot) f.Change(slot, f.Random(slot, 5));
  const policy::WeightSnapshotPtr old = *f.store->Snapshot(PolicySlot(0));
  const int64_t reads = f.store->tier_stats().blob_reads;
  f.store->SetVersions({4, 9});
  const policy::WeightSnapshotPtr made = *f.store->Snapshot(PolicySlot(0));
  EXPECT_NE(made, old) << "new after every update";
  EXPECT_EQ(made->version, (policy::WeightVersion{4, 9}));
  EXPECT_EQ(made->actor, old->actor);
  EXPECT_EQ(f.store->tier_stats().blob_reads, reads);
  EXPECT_EQ(f.store->Export(PolicySlot(3))->version, (policy::WeightVersion{4, 9}));
}

TEST(PolicyStoreTest, WeightsAloneBeginTheOptimizerAfreshWhereverTheyAre) {
  Fixture f(3, {.capacity = 1});
  ASSERT_TRUE(f.Make().ok());
  f.Change(2, f.Random(2, 5));
  for (const int32_t slot : {1, 2}) {  // evicted, resident
    PolicyState warm = f.Random(slot, 6);
    for (const char* name : {kAdamExpAvg, kAdamExpAvgSq}) warm.Remove(name);
    warm.SetMoments(policy::kValueMoments, {});
    ASSERT_TRUE(f.store->Import(PolicySlot(slot), warm).ok());
    const PolicyState state = *f.store->Export(PolicySlot(slot));
    EXPECT_EQ(state.Floats(kAdamExpAvg), std::vector<float>(warm.parameters().size(), 0.0f));
    EXPECT_EQ(state.Integer(kAdamSteps), 0);
    EXPECT_EQ(state.Moments(policy::kValueMoments).variance, std::vector<double>{1.0});
  }
}

TEST(PolicyStoreTest, AFullDiskLosesNothing) {
  Fixture f(8, {.capacity = 2, .states_are_swappable = true, .host_budget_bytes = 0});
  ASSERT_TRUE(f.Make().ok());
  f.blobs.Refuse(absl::ResourceExhaustedError("disk full"));
  std::vector<PolicyState> expected;
  for (int32_t slot = 0; slot < 8; ++slot) {
    expected.push_back(slot < 5 ? f.Random(slot, 5) : *InitialState(f.specs[slot], StateForm{true}, kSeed));
    expected.back().version = {};
    if (slot < 5) f.Change(slot, expected.back());
  }
  for (int32_t slot = 0; slot < 8; ++slot) f.ExpectState(slot, expected[slot]);
  EXPECT_GT(f.store->map_stats().resident, 2);
  EXPECT_GT(f.store->map_stats().write_failures, 0);
  f.blobs.Refuse(absl::OkStatus());
  for (int round = 0; round < 600; ++round) {
    const int32_t slot = round % 8;
    expected[slot] = f.Random(slot, 100 + static_cast<uint64_t>(round));
    expected[slot].version = {};
    f.Change(slot, expected[slot]);
  }
  EXPECT_EQ(f.store->map_stats().resident, 2);
  for (int32_t slot = 0; slot < 8; ++slot) f.ExpectState(slot, expected[slot]);
}

TEST(PolicyStoreTest, ALostPolicyIsAnErrorOfItsOwnOrComesFromTheFallback) {
  for (const bool has_fallback : {false, true}) {
    Fixture f(3, {.capacity = 1, .host_budget_bytes = 0}, has_fallback);
    ASSERT_TRUE(f.Make().ok());
    f.Change(0, f.Random(0, 5));
    f.store->SetVersions({1, 1});
    ASSERT_TRUE(f.store->Snapshot(PolicySlot(0)).ok());
    f.Change(1, f.Random(1, 5));
    f.blobs.Damage();
    f.Change(2, f.Random(2, 5));
    if (!has_fallback) {
      EXPECT_EQ(f.store->Acquire(PolicySlot(0)).status().code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(f.store->Export(PolicySlot(0)).status().code(), absl::StatusCode::kDataLoss);
    } else {
      PolicyState expected = f.Random(0, 700);
      expected.version = {1, 1};
      f.ExpectState(0, expected);
      const std::vector<float> actor = (*f.store->Snapshot(PolicySlot(0)))->actor;
      EXPECT_TRUE(std::equal(actor.begin(), actor.end(), expected.parameters().begin())) << "not of the lost weights";
      EXPECT_TRUE(f.store->Acquire(PolicySlot(0)).ok());
    }
    EXPECT_EQ(f.store->tier_stats().lost, 1);
    EXPECT_TRUE(f.store->Acquire(PolicySlot(1)).ok());
  }
}

TEST(PolicyStoreTest, SlotsThatAreNoneAreNotFound) {
  Fixture f(2, {.capacity = 1});
  ASSERT_TRUE(f.Make().ok());
  for (const PolicySlot slot : {PolicySlot(-1), PolicySlot(2)}) {
    EXPECT_EQ(f.store->Acquire(slot).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(f.store->Export(slot).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(f.store->Snapshot(slot).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(f.store->Import(slot, {}).code(), absl::StatusCode::kNotFound);
  }
}

}  // namespace
}  // namespace troupe::training
