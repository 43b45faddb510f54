#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lib/learner/grant_scheduler.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::learner {

/// A scheduler and a sampler for each worker, on a schema of two agents with episodes of 5 steps.
class GrantSchedulerFixture : public testing::Test {
 protected:
  static constexpr uint64_t kEpoch = 3;
  static constexpr absl::Duration kNow = absl::Seconds(1000);

  void Make(int32_t num_envs, int64_t batch, int32_t num_workers, int64_t lag = 0) {
    options_.num_envs = num_envs;
    options_.train_batch_size = batch;
    options_.num_workers = num_workers;
    options_.max_ahead = lag;
    scheduler_ = std::make_unique<GrantScheduler>(options_, kEpoch, 0, std::vector<LaneState>{});
  }
  void Join(uint64_t worker) { scheduler_->AddWorker(sample::WorkerId(worker), kNow); }
  std::vector<GrantOrder> Schedule() { return scheduler_->Schedule(kNow); }

  CheckedFragment Check(sample::MultiAgentBatchPtr batch) { return CheckFragment(std::move(batch), schema_, {}); }
  std::vector<sample::MultiAgentBatchPtr> Play(const GrantOrder& order, int64_t version) {
    auto& rollout = rollouts_[order.worker.value()];
    if (rollout == nullptr) rollout = std::make_unique<sample::FakeRollout>(schema_, rollout_options_);
    std::vector<sample::MultiAgentBatchPtr> fragments;
    for (auto& fragment : rollout->Play(order.grant, policy::WeightVersion{kEpoch, version})) {
      fragments.push_back(fragment);
    }
    return fragments;
  }
  Verdict Deliver(uint64_t worker, const sample::MultiAgentBatchPtr& batch) {
    const CheckedFragment fragment = Check(batch);
    EXPECT_TRUE(fragment.status.ok()) << fragment.status;
    const Verdict verdict = scheduler_->Judge(sample::WorkerId(worker), fragment);
    if (verdict.disposition == sample::Disposition::kAccepted) {
      const uint64_t sequence = ++sequences_[worker];
      scheduler_->Accept(sample::WorkerId(worker), sequence, sequence, fragment);
    }
    return verdict;
  }
  void PlayAndDeliver(const std::vector<GrantOrder>& orders, int64_t version) {
    for (const GrantOrder& order : orders) {
      for (const auto& fragment : Play(order, version)) {
        EXPECT_EQ(Deliver(order.worker.value(), fragment).disposition, sample::Disposition::kAccepted);
      }
    }
  }
  static int64_t Steps(const std::vector<GrantOrder>& orders) {
    int64_t steps = 0;
    for (const GrantOrder& order : orders) {
      for (const sample::GrantLane& lane : order.grant.lanes) steps += lane.env_steps;
    }
    return steps;
  }

  sample::BatchSchema schema_ = sample::SimpleSchema(2, 3);
  sample::FakeRolloutOptions rollout_options_ = [] {
    sample::FakeRolloutOptions options;
    options.min_episode_steps = options.max_episode_steps = 5;
    return options;
  }();
  GrantScheduler::Options options_;
  std::unique_ptr<GrantScheduler> scheduler_;
  std::map<uint64_t, std::unique_ptr<sample::FakeRollout>> rollouts_;
  std::map<uint64_t, uint64_t> sequences_;
};

}  // namespace troupe::learner
