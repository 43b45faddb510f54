#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "lib/learner/score.h"
#include "lib/sample/train_rules.h"

namespace troupe::learner {

/// How agents' rewards are shared before advantages are computed (EPyMARL's common_reward with its scalarisation).
/// Reported returns stay each agent's own.
enum class CommonReward : uint8_t {
  kNone = 1,  ///< each agent its own
  kMean = 2,  ///< mean over the agents that acted at the env step
  kSum = 3,   ///< their sum
};

/// What train_batch_size counts.
enum class CountStepsBy : uint8_t {
  kEnvSteps = 1,    ///< steps of environments, however many agents acted
  kAgentSteps = 2,  ///< rows with agent_mask 1, over all policies
};

/// How the training times of an update's policies become one.
enum class TrainTimeAggregator : uint8_t {
  kMin = 1,   ///< the shortest
  kMax = 2,   ///< the longest
  kMean = 3,  ///< their mean
};

/// How long a grant may be out until its work is granted to others; a grant that expires doubles it for its worker.
struct GrantTimeout {
  absl::Duration fixed = absl::ZeroDuration();  ///< for every grant; zero: by those that were delivered (GrantLimit)
  // Before the first one was delivered, at most GrantLimit::kLongest in all:
  absl::Duration first = absl::Seconds(60);                    ///< for the start, and in it
  absl::Duration first_per_env_step = absl::Milliseconds(10);  ///< for each env step of the grant
};

struct LearnerOptions {
  uint64_t seed = 0;
  /// Of one update: as many env steps exactly, or at least as many agent steps, and fewer than one env step of every
  /// environment with all agents more (GrantScheduler says how).
  int64_t train_batch_size = 4000;
  CountStepsBy count_steps_by = CountStepsBy::kEnvSteps;
  int64_t max_policy_lag = 0;      ///< 0: on-policy; 1: sampling overlaps the update; more: no worker waits (AheadFor)
  bool complete_episodes = false;  ///< batch_mode: complete_episodes
  CommonReward common_reward = CommonReward::kNone;
  TrainTimeAggregator train_time_aggregator = TrainTimeAggregator::kMax;
  std::vector<bool> trains;  ///< by policy slot: whether updates change it; empty: all of a trainable class
  std::vector<sample::TrainRule> train_rules;  ///< on which trajectories it trains; empty: on all
  int32_t num_workers = 2;                     ///< waited for before the first grant (0: the sampler in this process)
  int32_t num_envs = 16;                       ///< global environments over all workers
  int64_t ingest_budget_bytes =
      512 << 20;  ///< fragments held; must hold what may be sampled ahead (Ingest::CheckBudget)
  absl::Duration join_timeout = absl::Seconds(10);    ///< after the first worker: start with those that came
  absl::Duration worker_timeout = absl::Seconds(15);  ///< without a sign of life: its grants are granted again
  GrantTimeout grant_timeout;
  double max_failed_share = 1;  ///< of the last episodes: beyond it a worker gets no more work (EnvHealth)
};

/// When a run ends; whichever comes first. 0: not set.
struct StopOptions {
  int64_t env_steps = 0;
  int64_t agent_steps = 0;
  int64_t updates = 0;
  absl::Duration wall_clock = absl::ZeroDuration();
  std::vector<ReturnTarget> episode_return;  ///< 100-episode means at or above, all of them; empty: not set
};

}  // namespace troupe::learner
