// Random histories of workers that join, die, repeat, reorder, corrupt and lag, against a model that keeps books of its
// own.

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/learner/learner.h"
#include "lib/learner/testing/expected_iterations.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::Disposition;

struct SentFragment {
  uint64_t sequence;
  sample::MultiAgentBatchPtr batch;
};

struct SimWorker {
  std::shared_ptr<FakeWorkerPort> port;
  std::unique_ptr<sample::FakeRollout> rollout;
  WorkerTicket ticket;
  uint64_t next_sequence = 1;
  std::vector<SentFragment> outbox;  ///< made, not yet delivered
  std::vector<SentFragment> sent;    ///< delivered: for repeats
};

int64_t Rows(const sample::MultiAgentBatch& batch) {
  int64_t rows = 0;
  for (const auto& policy : batch.policies) rows += policy.rows;
  return rows;
}

enum class Mode { kTruncateEpisodes, kCompleteEpisodes, kAgentSteps };

class World {
 public:
  World(uint64_t seed, Mode mode)
      : random_(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {}),
        schema_(sample::RandomSchema(seed)),
        rollout_options_(sample::RandomRolloutOptions(schema_, seed)) {
    for (int64_t i = 0; i < schema_.num_info_columns; ++i) config_.info_columns.push_back("info");
    config_.schema = schema_;
    config_.options.num_envs = 1 + static_cast<int32_t>(random_.Below(7));
    config_.options.train_batch_size = 1 + random_.Below(60);
    config_.options.max_policy_lag = random_.Below(3);
    config_.options.num_workers = 1 + static_cast<int32_t>(random_.Below(3));
    config_.options.grant_timeout.fixed = absl::Seconds(2 + random_.Below(20));
    config_.options.complete_episodes = mode == Mode::kCompleteEpisodes;
    if (mode == Mode::kAgentSteps) config_.options.count_steps_by = CountStepsBy::kAgentSteps;
    // Some runs have a policy that no group trains, in some two are a group.
    config_.options.trains.assign(schema_.policies.size(), true);
    if (seed % 2 == 0) config_.options.trains[seed % schema_.policies.size()] = false;
    iterations_ = std::make_unique<ExpectedIterations>(config_.options);
    trainer_ = std::make_unique<FakeTrainer>(schema_.policies);
    if (seed % 3 == 0) {
      trainer_->KeepGroup({policy::GroupId("team"), "fake", {policy::PolicySlot(0), policy::PolicySlot(2)}});
    }
    LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = &publisher_;
    deps.clock = &clock_;
    auto made = Learner::Create(config_, deps);
    EXPECT_TRUE(made.ok()) << made.status();
    learner_ = *std::move(made);
    EXPECT_TRUE(learner_->Start().ok());
  }

  void Act() {
    switch (random_.Below(12)) {
      case 0:
        if (workers_.size() < 5) Join();
        break;
      case 1:
        if (workers_.size() > 1 && random_.Below(3) == 0) Die();
        break;
      case 2:
        if (!workers_.empty() && random_.Below(2) == 0) Rejoin();
        break;
      case 3:
        clock_.Advance(absl::Seconds(random_.Below(6)));
        for (const auto& worker : workers_) {
          // Some stay silent for a while; a void ticket is found out later.
          if (random_.Below(4) > 0) learner_->Heartbeat(worker->ticket).IgnoreError();
        }
        learner_->Tick();
        break;
      case 4:
        if (!workers_.empty()) Repeat(Any());
        break;
      case 5:
        if (!workers_.empty() && random_.Below(3) == 0) Corrupt(Any());
        break;
      case 6:
        Update();
        break;
      default:
        if (!workers_.empty()) {
          SimWorker& worker = Any();
          Sample(worker);
          Deliver(worker, random_.Below(5) == 0);
        }
    }
    Check();
  }

  /// Everybody honest from here on: the run must go on.
  void Settle() {
    const int64_t target = learner_->Status().progress.updates + 3;
    for (int round = 0; round < 200 && learner_->Status().progress.updates < target; ++round) {
      clock_.Advance(absl::Seconds(1));
      Join();
      for (size_t i = 0; i < workers_.size(); ++i) {
        SimWorker& worker = *workers_[i];
        if (!learner_->Heartbeat(worker.ticket).ok()) {
          graveyard_.push_back(std::move(workers_[i]->rollout));
          workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i--));
          continue;
        }
        Sample(worker);
        while (!worker.outbox.empty() && Deliver(worker, false)) {
        }
      }
      learner_->Tick();
      while (Update()) {
      }
      Check();
      while (workers_.size() > 3) Die();
    }
    EXPECT_GE(learner_->Status().progress.updates, target) << "the run is stuck";
    // An episode is begun once, by one worker, ever.
    std::set<std::pair<base::EnvId, uint32_t>> begun;
    for (const sample::FakeRollout* sampler : samplers_) {
      for (const auto& [episode, times] : sampler->begun()) {
        EXPECT_EQ(times, 1);
        EXPECT_TRUE(begun.insert(episode).second) << "env " << episode.first << " episode " << episode.second;
      }
    }
  }

  int64_t updates() const { return trainer_->updates(); }
  const std::map<Disposition, int64_t>& acked_rows() const { return acked_rows_; }
  int64_t expired() const { return learner_->Status().progress.expired_grants; }
  int64_t groupless_trained() const { return groupless_trained_; }
  bool free_running() const { return iterations_->free_running(); }
  int64_t dropped() const { return learner_->Status().progress.rows.dropped; }

 private:
  SimWorker& Any() { return *workers_[random_.Below(static_cast<uint32_t>(workers_.size()))]; }

  void Join() {
    auto worker = std::make_unique<SimWorker>();
    worker->port = std::make_shared<FakeWorkerPort>();
    worker->rollout = std::make_unique<sample::FakeRollout>(schema_, rollout_options_);
    auto ticket = learner_->Join({}, worker->port);
    ASSERT_TRUE(ticket.ok());
    worker->ticket = *ticket;
    samplers_.push_back(worker->rollout.get());
    workers_.push_back(std::move(worker));
  }

  void Die() {
    const size_t i = random_.Below(static_cast<uint32_t>(workers_.size()));
    learner_->Leave(workers_[i]->ticket);
    EXPECT_FALSE(learner_->Heartbeat(workers_[i]->ticket).ok());
    graveyard_.push_back(std::move(workers_[i]->rollout));
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  /// The connection broke: the same process comes again and sends what it has no acknowledgement for.
  void Rejoin() {
    SimWorker& worker = Any();
    worker.port = std::make_shared<FakeWorkerPort>();
    uint64_t oldest = worker.next_sequence;
    for (const SentFragment& fragment : worker.outbox) oldest = std::min(oldest, fragment.sequence);
    auto ticket = learner_->Join({worker.ticket.worker_id, oldest}, worker.port);
    ASSERT_TRUE(ticket.ok());
    EXPECT_TRUE(worker.ticket.worker_epoch < ticket->worker_epoch);
    EXPECT_FALSE(learner_->Heartbeat(worker.ticket).ok()) << "the zombie is fenced off";
    worker.ticket = *ticket;
  }

  void Sample(SimWorker& worker) {
    while (auto grant = worker.port->TryTakeGrant()) {
      const policy::WeightVersion newest = publisher_.version();
      EXPECT_FALSE(newest < grant->min_version) << "granted before its weights were out";
      for (auto& fragment : worker.rollout->Play(*grant, newest)) {
        worker.outbox.push_back({worker.next_sequence++, fragment});
      }
    }
  }

  /// Delivers the oldest fragment, or with `reorder` any one. False when it got no disposition.
  bool Deliver(SimWorker& worker, bool reorder) {
    if (worker.outbox.empty()) return false;
    const size_t i = reorder ? random_.Below(static_cast<uint32_t>(worker.outbox.size())) : 0;
    const SentFragment fragment = worker.outbox[i];
    const auto ack = learner_->Submit(worker.ticket, fragment.sequence, fragment.batch);
    if (!ack.ok()) {
      EXPECT_EQ(ack.status().code(), absl::StatusCode::kFailedPrecondition) << ack.status();  // silent for too long
      return false;
    }
    worker.outbox.erase(worker.outbox.begin() + static_cast<std::ptrdiff_t>(i));
    worker.sent.push_back(fragment);
    Book(worker, fragment, *ack);
    return true;
  }

  void Repeat(SimWorker& worker) {
    if (worker.sent.empty()) return;
    const SentFragment fragment = worker.sent[random_.Below(static_cast<uint32_t>(worker.sent.size()))];
    const auto ack = learner_->Submit(worker.ticket, fragment.sequence, fragment.batch);
    if (!ack.ok()) return;
    EXPECT_EQ(ack->disposition, Disposition::kDuplicate);
    Book(worker, fragment, *ack);
  }

  /// The next fragment arrives unreadable, or with a NaN in it.
  void Corrupt(SimWorker& worker) {
    if (worker.outbox.empty()) return;
    const SentFragment fragment = worker.outbox.front();
    if (fragment.batch->policies.empty()) return;
    absl::StatusOr<sample::FragmentAck> ack = sample::FragmentAck{};
    if (random_.Below(2) == 0) {
      ack = learner_->SubmitUndecodable(worker.ticket, fragment.sequence, "bad checksum");
      if (!ack.ok()) return;
      EXPECT_EQ(ack->disposition, Disposition::kInvalid);
      ++undecodable_;
    } else {
      sample::MutableColumn<float>(fragment.batch->policies[0].rewards)[0] = std::nanf("");
      ack = learner_->Submit(worker.ticket, fragment.sequence, fragment.batch);
      if (!ack.ok()) return;
      EXPECT_EQ(ack->disposition, Disposition::kInvalid);
      Book(worker, fragment, *ack);
    }
    worker.outbox.erase(worker.outbox.begin());
  }

  void Book(const SimWorker& worker, const SentFragment& fragment, const sample::FragmentAck& ack) {
    EXPECT_EQ(ack.sequence, fragment.sequence);
    acked_rows_[ack.disposition] += Rows(*fragment.batch);
    const std::pair<uint64_t, uint64_t> key{worker.ticket.worker_id.value(), fragment.sequence};
    const bool first = judged_.insert(key).second;
    EXPECT_EQ(first, ack.disposition != Disposition::kDuplicate) << "exactly one disposition each";
    if (ack.disposition == Disposition::kAccepted) {
      const int64_t iteration = iterations_->Next(*fragment.batch);
      accepted_steps_[iteration] += fragment.batch->num_env_steps;
      for (const auto& rows : fragment.batch->policies) {
        const int64_t oldest = iterations_->free_running() ? 0 : iteration - config_.options.max_policy_lag;
        EXPECT_GE(rows.version.n, oldest);
      }
    }
  }

  bool Update() {
    const int64_t before = trainer_->updates();
    const StepOutcome outcome = learner_->Step(absl::ZeroDuration());
    if (outcome.kind != StepOutcome::Kind::kUpdated) {
      EXPECT_EQ(outcome.kind, StepOutcome::Kind::kWaiting);
      return false;
    }
    EXPECT_EQ(trainer_->updates(), before + 1);
    EXPECT_EQ(publisher_.version().n, before + 1);
    EXPECT_EQ(trainer_->last_env_steps(), accepted_steps_[before]) << "all that was accepted for it, nothing else";
    if (config_.options.count_steps_by == CountStepsBy::kAgentSteps) {
      const int64_t size = config_.options.train_batch_size;
      if (iterations_->free_running()) return true;  // rows that are too old are no longer there
      EXPECT_GE(trainer_->last_agent_steps(), size);
      EXPECT_LT(trainer_->last_agent_steps(),
                size + config_.options.num_envs * static_cast<int64_t>(schema_.agent_ids.size()));
    } else if (config_.options.complete_episodes || iterations_->free_running()) {
      EXPECT_GE(trainer_->last_env_steps(), config_.options.train_batch_size);
    } else {
      EXPECT_EQ(trainer_->last_env_steps(), config_.options.train_batch_size);
    }
    return true;
  }

  void Check() {
    const LearnerStatus status = learner_->Status();
    const RowCounters& rows = status.progress.rows;
    ASSERT_EQ(CheckConservation(status.books), absl::OkStatus());
    CheckGroups(status.books);
    for (const RowCounters& policy : status.policy_rows) ASSERT_TRUE(CheckConservation(policy).ok());
    EXPECT_EQ(rows.accepted, acked_rows_[Disposition::kAccepted]);
    EXPECT_EQ(rows.duplicate, acked_rows_[Disposition::kDuplicate]);
    EXPECT_EQ(rows.stale, acked_rows_[Disposition::kStale]);
    EXPECT_EQ(rows.invalid, acked_rows_[Disposition::kInvalid]);
    EXPECT_LE(status.queue_bytes, status.queue_budget_bytes);
  }

  /// What the trainer got of each policy is what its group's books say, and theirs alone.
  void CheckGroups(const RowBooks& books) {
    std::map<std::string, int64_t> trained;
    for (const policy::PolicySlot slot : schema_.policies.ids()) {
      const bool trains = config_.options.trains[static_cast<size_t>(slot.value())];
      std::string group = trains ? schema_.policies[slot].id.value() : "";
      for (const policy::LearnGroup& one : trainer_->Groups()) {
        for (const policy::PolicySlot member : one.members) group = member == slot ? one.id.value() : group;
      }
      trained[group] += trainer_->ExportState(slot)->Integer("trained_rows");
    }
    std::vector<GroupRows> all = books.groups;
    all.push_back(books.groupless);
    for (const GroupRows& rows : all) {
      EXPECT_EQ(rows.trained, trained[rows.id.value()]) << "group '" << rows.id.value() << "'";
      EXPECT_EQ(rows.uses, rows.trained) << "in whole iterations each row is used once";
      groupless_trained_ += rows.id.value().empty() ? rows.trained : 0;
    }
  }

  base::PhiloxSequence random_;
  const sample::BatchSchema schema_;
  const sample::FakeRolloutOptions rollout_options_;
  LearnerConfig config_;
  base::FakeClock clock_;
  FakePublisher publisher_;
  std::unique_ptr<FakeTrainer> trainer_;
  std::unique_ptr<Learner> learner_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<std::unique_ptr<sample::FakeRollout>> graveyard_;
  std::vector<const sample::FakeRollout*> samplers_;  ///< all there ever were
  // The model's books.
  std::map<Disposition, int64_t> acked_rows_;
  std::set<std::pair<uint64_t, uint64_t>> judged_;
  std::map<int64_t, int64_t> accepted_steps_;  ///< by iteration
  std::unique_ptr<ExpectedIterations> iterations_;
  int64_t undecodable_ = 0;
  int64_t groupless_trained_ = 0;
};

class LearnerModelTest : public testing::TestWithParam<Mode> {};

TEST_P(LearnerModelTest, RandomHistories) {
  std::map<Disposition, int64_t> rows;
  int64_t updates = 0;
  int64_t dropped = 0;
  int64_t expired = 0;
  int64_t groupless = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(seed, GetParam());
    for (int i = 0; i < 250; ++i) {
      world.Act();
      if (testing::Test::HasFailure()) return;
    }
    world.Settle();
    if (testing::Test::HasFailure()) return;
    for (const auto& [disposition, count] : world.acked_rows()) rows[disposition] += count;
    updates += world.updates();
    if (!world.free_running()) dropped += world.dropped();
    expired += world.expired();
    groupless += world.groupless_trained();
  }
  // The histories reached what they are meant to reach.
  EXPECT_GT(rows[Disposition::kAccepted], 1000);
  EXPECT_GT(rows[Disposition::kDuplicate], 100);
  EXPECT_GT(rows[Disposition::kStale], 100);
  EXPECT_GT(rows[Disposition::kInvalid], 40);
  EXPECT_GT(updates, 400);
  EXPECT_GT(expired, 40);
  EXPECT_GT(groupless, 100);
  // Whole episodes leave nothing pending, so nothing gets too old in rounds.
  EXPECT_EQ(dropped > 0, GetParam() != Mode::kCompleteEpisodes);
}

std::string ModeName(const testing::TestParamInfo<Mode>& info) {
  switch (info.param) {
    case Mode::kTruncateEpisodes:
      return "truncate_episodes";
    case Mode::kCompleteEpisodes:
      return "complete_episodes";
    case Mode::kAgentSteps:
      return "agent_steps";
  }
  return "unknown";
}
INSTANTIATE_TEST_SUITE_P(BatchModes, LearnerModelTest,
                         testing::Values(Mode::kTruncateEpisodes, Mode::kCompleteEpisodes, Mode::kAgentSteps),
                         ModeName);

}  // namespace
}  // namespace troupe::learner
