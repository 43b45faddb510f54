#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/config/resolved_run.h"
#include "lib/envs/register_all.h"
#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/rollout/collector.h"
#include "lib/run/rollout_setup.h"

namespace troupe::integration {

/// Writes down every row that comes to the trainer behind it: "0.1 alice@4" is the decision of alice at step 4 in
/// episode 1 of environment 0; one that losses do not see ends with "-".
class RecordingTrainer final : public learner::Trainer {
 public:
  explicit RecordingTrainer(learner::Trainer* trainer) : trainer_(*trainer) {}

  struct Recorded {
    bool train = false;
    double reward_mean = 0;
    std::vector<std::string> rows;
    std::vector<std::vector<float>> obs;  ///< by row
  };
  struct Batch {
    int64_t env_steps = 0;
    int64_t agent_steps = 0;
    std::vector<Recorded> policies;  ///< by policy slot
    std::vector<learner::PolicyUpdateReport> reports;
  };
  const std::vector<Batch>& updates() const { return updates_; }

  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const learner::TrainBatch& batch,
                                                                  const learner::UpdateContext& context) override {
    Batch update;
    update.env_steps = batch.env_steps;
    update.agent_steps = batch.agent_steps;
    for (const learner::PolicyTrainBatch& rows : batch.policies) {
      const auto slot = static_cast<size_t>(rows.policy.value());
      if (update.policies.size() <= slot) update.policies.resize(slot + 1);
      update.policies[slot].train = rows.train;
      const double reward_sum = std::accumulate(rows.rewards.begin(), rows.rewards.end(), 0.0);
      update.policies[slot].reward_mean = reward_sum / static_cast<double>(rows.rows);
      for (const learner::TrainSegment& segment : rows.segments) {
        for (int64_t r = segment.first_row; r < segment.first_row + segment.rows; ++r) {
          const char* const agents[] = {"alice", "bob", "carol"};
          // alice and bob observe [slot, t, ...], carol [t, ...].
          const float* const obs = rows.obs.row(r);
          const float step = obs[segment.slot == base::AgentSlot(2) ? 0 : 1];
          update.policies[slot].obs.emplace_back(obs, obs + rows.obs.columns);
          const bool active = rows.agent_mask.empty() || rows.agent_mask[static_cast<size_t>(r)] != 0;
          update.policies[slot].rows.push_back(absl::StrCat(segment.env_id.value(), ".", segment.episode, " ",
                                                            agents[segment.slot.value()], "@", step,
                                                            active ? "" : " -"));
        }
      }
    }
    auto reports = trainer_.Update(batch, context);
    if (reports.ok()) update.reports = *reports;
    updates_.push_back(std::move(update));
    return reports;
  }
  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) override {
    return trainer_.Snapshot(policy);
  }
  absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) override {
    return trainer_.ExportState(policy);
  }
  absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) override {
    return trainer_.ImportState(state, policy);
  }
  absl::Status AddPolicy(policy::PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                         policy::PolicySlot like) override {
    return trainer_.AddPolicy(slot, spec, std::move(state), like);
  }
  absl::Status RemovePolicy(policy::PolicySlot slot) override { return trainer_.RemovePolicy(slot); }

 private:
  learner::Trainer& trainer_;
  std::vector<Batch> updates_;
};

/// A configuration on testing/turn_based.
inline absl::StatusOr<config::ResolvedRun> ResolveTurnBased(const std::string& yaml, const env::EnvRegistry& registry) {
  const auto config = config::RunConfig::FromYaml(
      absl::StrCat("env: {name: testing/turn_based, args: {state: none}}\nnum_workers: 0\nnum_envs_per_worker: 2\n",
                   yaml),
      "turn_based.yaml");
  if (!config.ok()) return config.status();
  return config::ResolveRun(*config, registry);
}

/// A learner and collectors in one thread: grants are taken in the order of the workers.
class TurnBasedRun {
 public:
  TurnBasedRun(const config::ResolvedRun& run, const env::EnvRegistry& registry, learner::Trainer* trainer,
               int num_workers)
      : recorder_(trainer) {
    learner::LearnerConfig config;
    config.options = run.learner;
    config.options.num_workers = num_workers;
    config.schema = run.schema;
    config.info_columns = run.env_spec.info_columns;
    learner::LearnerDeps deps;
    deps.trainer = &recorder_;
    deps.publisher = &weights_;
    auto learner = learner::Learner::Create(std::move(config), deps);
    TROUPE_CHECK(learner.ok());
    learner_ = *std::move(learner);
    TROUPE_CHECK(learner_->Start().ok());
    for (int i = 0; i < num_workers; ++i) {
      auto worker = std::make_unique<Worker>(*this);
      rollout::RolloutConfig rollout = *run::MakeRolloutConfig(run, registry);
      rollout.options.worker = i;
      worker->collector = *rollout::Collector::Create(std::move(rollout));
      worker->port = std::make_shared<learner::FakeWorkerPort>();
      worker->ticket = *learner_->Join({}, worker->port);
      workers_.push_back(std::move(worker));
    }
  }

  /// Samples and updates until there were `updates` updates.
  void TrainTo(size_t updates) {
    for (int round = 0; round < 1000 && recorder_.updates().size() < updates; ++round) {
      for (const auto& worker : workers_) {
        while (auto grant = worker->port->TryTakeGrant()) {
          grants_.push_back(0);
          for (const sample::GrantLane& lane : grant->lanes) grants_.back() += lane.env_steps;
          const absl::Status status = worker->collector->RunGrant(*grant, weights_at_hand_, *worker);
          TROUPE_CHECK(status.ok());
        }
      }
      const learner::StepOutcome outcome = learner_->Step(absl::ZeroDuration());
      TROUPE_CHECK(outcome.kind == learner::StepOutcome::Kind::kUpdated ||
                   outcome.kind == learner::StepOutcome::Kind::kWaiting);
    }
  }

  const std::vector<RecordingTrainer::Batch>& updates() const { return recorder_.updates(); }
  /// Env steps of each grant; with one worker a grant is a round.
  const std::vector<int64_t>& grants() const { return grants_; }
  learner::Learner& learner() { return *learner_; }

 private:
  class WeightsAtHand final : public rollout::WeightSource {
   public:
    explicit WeightsAtHand(const learner::FakePublisher& weights) : weights_(weights) {}
    absl::StatusOr<rollout::CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion,
                                                         absl::Duration) override {
      return rollout::CurrentWeights{weights_.Newest(policy.value()), weights_.version()};
    }

   private:
    const learner::FakePublisher& weights_;
  };
  struct Worker final : public rollout::SampleSink {
    explicit Worker(TurnBasedRun& owner) : run(owner) {}
    absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
      const auto ack = run.learner_->Submit(ticket, ++sequence, std::move(fragment));
      TROUPE_CHECK(ack.ok() && ack->disposition == sample::Disposition::kAccepted);
      return absl::OkStatus();
    }
    TurnBasedRun& run;
    std::unique_ptr<rollout::Collector> collector;
    std::shared_ptr<learner::FakeWorkerPort> port;
    learner::WorkerTicket ticket;
    uint64_t sequence = 0;
  };

  RecordingTrainer recorder_;
  learner::FakePublisher weights_;
  WeightsAtHand weights_at_hand_{weights_};
  std::unique_ptr<learner::Learner> learner_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<int64_t> grants_;
};

}  // namespace troupe::integration
