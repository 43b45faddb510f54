#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/metric_sink.h"
#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/sample/testing/fake_rollout.h"
#include <gtest/gtest.h>

namespace troupe::learner {

class FakeMetricSink final : public base::MetricSink {
 public:
  void Scalar(std::string_view tag, double value, int64_t env_steps) override {
    values_[std::string(tag)] = value;
    last_env_steps_ = env_steps;
  }
  void Flush() override {}
  std::map<std::string, double> values_;
  int64_t last_env_steps_ = 0;
};

class FakeListener final : public ProgressListener {
 public:
  void OnProgress(const ProgressRecord& record) override { records_.push_back(record); }
  std::vector<ProgressRecord> records_;
};

/// One worker as its own process would be: a port, a sampler, sequence numbers.
struct Worker {
  Worker(const sample::BatchSchema& schema, const sample::FakeRolloutOptions& options) : rollout(schema, options) {}

  std::shared_ptr<FakeWorkerPort> port = std::make_shared<FakeWorkerPort>();
  sample::FakeRollout rollout;
  WorkerTicket ticket;
  uint64_t next_sequence = 1;
};

/// A learner with fakes around it: 4 environments, episodes of 5 steps, 40 env steps an update.
class TestRun {
 public:
  explicit TestRun(
      std::function<void(LearnerConfig&)> change = [](LearnerConfig&) {}, TrainChooser* chooser = nullptr) {
    config_.schema = sample::SimpleSchema(2, 3);
    config_.options.num_envs = 4;
    config_.options.train_batch_size = 40;
    config_.options.num_workers = 1;
    config_.options.seed = 11;
    rollout_options_.min_episode_steps = rollout_options_.max_episode_steps = 5;
    change(config_);
    trainer_ = std::make_unique<FakeTrainer>(config_.schema.policies);
    LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = &publisher_;
    deps.metrics = &sink_;
    deps.progress = &listener_;
    deps.clock = &clock_;
    deps.chooser = chooser;
    auto made = Learner::Create(config_, deps);
    EXPECT_TRUE(made.ok()) << made.status();
    learner_ = *std::move(made);
  }

  std::unique_ptr<Worker> Join(WorkerHello hello = {}) {
    auto worker = std::make_unique<Worker>(config_.schema, rollout_options_);
    auto ticket = learner_->Join(hello, worker->port);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (ticket.ok()) worker->ticket = *ticket;
    worker->next_sequence = std::max<uint64_t>(1, hello.next_sequence);
    return worker;
  }
  /// Samples every grant the worker has and hands the fragments in; the number of grants.
  int Work(Worker& worker) {
    int grants = 0;
    while (auto grant = worker.port->TryTakeGrant()) {
      ++grants;
      EXPECT_FALSE(publisher_.version() < grant->min_version);
      for (auto& fragment : worker.rollout.Play(*grant, publisher_.version())) {
        const auto ack = learner_->Submit(worker.ticket, worker.next_sequence++, fragment);
        EXPECT_TRUE(ack.ok()) << ack.status();
        EXPECT_EQ(ack->disposition, sample::Disposition::kAccepted) << ack->reason;
      }
    }
    return grants;
  }
  StepOutcome Step() { return learner_->Step(absl::ZeroDuration()); }
  std::vector<float> Weights() { return publisher_.Newest(0)->actor; }

  LearnerConfig config_;
  sample::FakeRolloutOptions rollout_options_;
  base::FakeClock clock_;
  FakePublisher publisher_;
  FakeMetricSink sink_;
  FakeListener listener_;
  std::unique_ptr<FakeTrainer> trainer_;
  std::unique_ptr<Learner> learner_;
};

}  // namespace troupe::learner
