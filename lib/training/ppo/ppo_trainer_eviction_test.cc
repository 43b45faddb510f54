// TrainerHost with more policies than its map holds, beside one that holds them all.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/policy_state_codec.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/fake_blob_store.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::PolicySlot;

constexpr int32_t kPolicies = 7;

std::vector<policy::PolicySpec> Specs() {
  std::vector<policy::PolicySpec> specs;
  for (int p = 0; p < kPolicies; ++p) {
    specs.push_back(policy::SmallSpecForTesting());
    specs.back().id = policy::PolicyId(absl::StrCat("p", p));
    specs.back().normalize_observations = true;
    specs.back().actor.hidden_sizes = {16, 8};
  }
  return specs;
}

/// A train batch of several policies, each with rows of its own.
struct JointBatch {
  JointBatch(const std::vector<int32_t>& slots, uint64_t seed) {
    for (const int32_t slot : slots) {
      parts.push_back(std::make_unique<RandomBatch>(Specs()[static_cast<size_t>(slot)],
                                                    std::vector<int64_t>{7, 9, 5, 12}, 100 * seed + slot));
      learner::PolicyTrainBatch rows = parts.back()->rows();
      rows.policy = PolicySlot(slot);
      batch.policies.push_back(rows);
      batch.env_steps += rows.rows;
    }
  }
  std::vector<std::unique_ptr<RandomBatch>> parts;
  learner::TrainBatch batch;
};

learner::UpdateContext Context(int64_t iteration) {
  return {.seed = 3, .iteration = iteration, .env_steps = 0, .next_version = {1, iteration + 1}};
}

class PpoTrainerEvictionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }

  std::unique_ptr<TrainerHost> Make(const PolicyStoreOptions& store, bool has_fallback = false) {
    PpoOptions options;
    options.learning_rate = 1e-3;
    options.num_epochs = 2;
    options.minibatch_size = 16;
    PolicyStore::Deps deps;
    deps.blobs = &blobs_;
    if (has_fallback) {
      deps.fallback = [](PolicySlot slot) -> absl::StatusOr<policy::PolicyState> {
        return *InitialState(Specs()[static_cast<size_t>(slot.value())], StateForm{true}, 1);
      };
    }
    const auto team = std::make_shared<ThreadTeam>(1);
    auto trainer = MakePpoHost(
        Specs(), std::vector<PpoOptions>(kPolicies, options), 1,
        [team](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, team); }, team,
        tensor::TensorAllocator::Pageable(), store, deps);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }

  static void ExpectSame(TrainerHost& a, TrainerHost& b) {
    for (int32_t p = 0; p < kPolicies; ++p) {
      const auto of_a = a.ExportState(PolicySlot(p)), of_b = b.ExportState(PolicySlot(p));
      ASSERT_TRUE(of_a.ok() && of_b.ok()) << of_a.status() << of_b.status();
      policy::ExpectSameBits(*of_a, *of_b);
      EXPECT_EQ(of_a->version, of_b->version);
      const policy::WeightSnapshotPtr snap_a = *a.Snapshot(PolicySlot(p)), snap_b = *b.Snapshot(PolicySlot(p));
      EXPECT_EQ(snap_a->actor, snap_b->actor);
      EXPECT_EQ(snap_a->version, snap_b->version);
      EXPECT_EQ(snap_a->observation_mean, snap_b->observation_mean);
      EXPECT_EQ(snap_a->observation_inverse_std, snap_b->observation_inverse_std);
    }
  }

  policy::FakeBlobStore blobs_;
};

const std::vector<std::vector<int32_t>> kBatches = {{0, 1, 2, 3, 4, 5, 6}, {1, 4},   {0, 2, 3, 6}, {5},
                                                    {0, 1, 2, 3, 4, 5, 6}, {3, 5, 6}};

TEST_F(PpoTrainerEvictionTest, EvictedAndReloadedTrainToTheSameBits) {
  const int64_t bytes = policy::BytesOf(*InitialState(Specs()[0], StateForm{true}, 1));
  for (const bool swappable : {false, true}) {
    for (const int64_t capacity : {1, 3}) {
      for (const int64_t budget : {int64_t{0}, 2 * bytes, 100 * bytes}) {
        SCOPED_TRACE(absl::StrCat(swappable, " ", capacity, " ", budget));
        const auto all = Make({});
        const auto few = Make({capacity, swappable, budget});
        ExpectSame(*all, *few);
        for (size_t i = 0; i < kBatches.size(); ++i) {
          const JointBatch joint(kBatches[i], i);
          const auto of_all = all->Update(joint.batch, Context(static_cast<int64_t>(i)));
          const auto of_few = few->Update(joint.batch, Context(static_cast<int64_t>(i)));
          ASSERT_TRUE(of_all.ok() && of_few.ok()) << of_all.status() << of_few.status();
          ASSERT_EQ(of_all->size(), of_few->size());
          for (size_t r = 0; r < of_all->size(); ++r) {
            EXPECT_EQ((*of_all)[r].policy, (*of_few)[r].policy) << "reports stand in the order of the batch";
            EXPECT_EQ((*of_all)[r].metrics, (*of_few)[r].metrics);
            EXPECT_EQ((*of_few)[r].trained_rows, 33);
          }
          ExpectSame(*all, *few);
        }
        const policy::PolicyMapStats stats = few->policies().map_stats();
        EXPECT_EQ(stats.resident, capacity);
        EXPECT_EQ(stats.hits + stats.misses, 24) << "each policy of each batch once";
        EXPECT_EQ(stats.evictions, stats.misses - capacity);
        EXPECT_FALSE(few->Metrics().empty());
        EXPECT_TRUE(all->Metrics().empty());
      }
    }
  }
}

TEST_F(PpoTrainerEvictionTest, WhatIsResidentTrainsFirst) {
  const auto trainer = Make({.capacity = 3, .states_are_swappable = true});
  ASSERT_TRUE(trainer->Update(JointBatch({4, 5, 6}, 1).batch, Context(0)).ok());
  ASSERT_TRUE(trainer->Update(JointBatch({0, 1, 2, 3, 4, 5, 6}, 2).batch, Context(1)).ok());
  EXPECT_EQ(trainer->policies().map_stats().hits, 3) << "4, 5 and 6 did not have to make room first";
}

TEST_F(PpoTrainerEvictionTest, AFailedUpdateLeavesEveryPolicyAsItWas) {
  for (const int64_t budget : {int64_t{0}, int64_t{1} << 30}) {
    const auto trainer = Make({.capacity = 2, .states_are_swappable = true, .host_budget_bytes = budget});
    const auto untouched = Make({});
    for (TrainerHost* each : {trainer.get(), untouched.get()}) {
      ASSERT_TRUE(each->Update(JointBatch({0, 1, 2, 3, 4, 5, 6}, 1).batch, Context(0)).ok());
    }
    JointBatch bad({0, 1, 2, 3, 4, 5, 6}, 2);
    bad.batch.policies[4].rewards = bad.batch.policies[4].rewards.subspan(1);
    EXPECT_EQ(trainer->Update(bad.batch, Context(1)).status().code(), absl::StatusCode::kInvalidArgument);
    ExpectSame(*trainer, *untouched);
  }
}

TEST_F(PpoTrainerEvictionTest, WhoDoesNotTrainIsNotLoaded) {
  const auto trainer = Make({.capacity = 2});
  JointBatch joint({0, 1, 2, 3}, 1);
  for (const size_t frozen : {0, 2}) joint.batch.policies[frozen].train = false;
  const auto reports = trainer->Update(joint.batch, Context(0));
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(trainer->policies().map_stats().misses, 2);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*reports)[i].policy, PolicySlot(static_cast<int32_t>(i)));
    EXPECT_EQ((*reports)[i].trained_rows, i % 2 == 0 ? 0 : 33);
  }
}

TEST_F(PpoTrainerEvictionTest, ALostPolicyIsLeftOutAndTheOthersTrainOn) {
  for (const bool has_fallback : {false, true}) {
    const auto trainer = Make({.capacity = 1, .host_budget_bytes = 0}, has_fallback);
    ASSERT_TRUE(trainer->Update(JointBatch({0, 1, 2}, 1).batch, Context(0)).ok());
    ASSERT_TRUE(blobs_.Delete("policy_1").ok());
    const auto reports = trainer->Update(JointBatch({0, 1, 2}, 2).batch, Context(1));
    ASSERT_TRUE(reports.ok()) << reports.status();
    EXPECT_EQ((*reports)[0].trained_rows, 33);
    EXPECT_EQ((*reports)[1].trained_rows, has_fallback ? 33 : 0);
    EXPECT_EQ((*reports)[1].policy, PolicySlot(1));
    EXPECT_EQ((*reports)[2].trained_rows, 33);
    EXPECT_EQ(trainer->policies().tier_stats().lost, 1);
    // Workers go on with the weights they know.
    EXPECT_EQ((*trainer->Snapshot(PolicySlot(0)))->version, (policy::WeightVersion{1, 2}));
    if (has_fallback) {
      const auto state = trainer->ExportState(PolicySlot(1));
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_EQ(state->Integer(kTrainedRows), 33) << "of the last checkpoint, 0, and of this update";
    }
  }
}

}  // namespace
}  // namespace troupe::training
