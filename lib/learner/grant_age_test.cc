// Workers that are given work and do not do it, beside others that do, over hours of virtual time.

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <vector>

#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::Disposition;

constexpr absl::Duration kTick = absl::Seconds(1);

class Fleet {
 public:
  enum class Kind {
    kHonest,      ///< takes step_time for each env step, gives up what it is told is over
    kSilent,      ///< heartbeats, nothing else
    kWrongGrant,  ///< samples, and hands in under another grant's id
    kNeverLast,   ///< hands in everything but never says that the grant is done
    kShort,       ///< says at once that every grant is done
    kInvalid,     ///< hands in what is refused
    kDeaf,        ///< honest, but finishes what it was told is over
  };
  struct Worker {
    Kind kind = Kind::kHonest;
    absl::Duration step_time = absl::ZeroDuration();
    std::shared_ptr<FakeWorkerPort> port = std::make_shared<FakeWorkerPort>();
    std::unique_ptr<sample::FakeRollout> rollout;
    WorkerTicket ticket;
    uint64_t sequence = 0;
    std::deque<sample::Grant> queue;
    absl::Duration busy_until = absl::ZeroDuration();  ///< with the first of the queue
    int64_t stale = 0;
    int64_t accepted = 0;
  };

  explicit Fleet(int32_t num_envs = 16, int32_t env_steps = 10) : schema_(sample::SimpleSchema(1, 2)) {
    config_.schema = schema_;
    config_.options.num_envs = num_envs;
    config_.options.train_batch_size = int64_t{num_envs} * env_steps;
    config_.options.num_workers = 1;
  }
  LearnerOptions& options() { return config_.options; }

  void Start() {
    trainer_ = std::make_unique<FakeTrainer>(schema_.policies);
    LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = &publisher_;
    deps.clock = &clock_;
    auto made = Learner::Create(config_, deps);
    ASSERT_TRUE(made.ok()) << made.status();
    learner_ = *std::move(made);
    ASSERT_TRUE(learner_->Start().ok());
  }
  Worker& Join(Kind kind, absl::Duration step_time = absl::Milliseconds(50)) {
    auto worker = std::make_unique<Worker>();
    worker->kind = kind;
    worker->step_time = step_time;
    worker->rollout = std::make_unique<sample::FakeRollout>(schema_, sample::FakeRolloutOptions{});
    auto ticket = learner_->Join({}, worker->port);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    worker->ticket = *ticket;
    return *workers_.emplace_back(std::move(worker));
  }
  void Join(int count, Kind kind) {
    for (int i = 0; i < count; ++i) Join(kind);
  }
  /// The newest worker goes.
  void Leave() {
    learner_->Leave(workers_.back()->ticket);
    workers_.pop_back();
  }

  /// Env steps trained in so much time from now on.
  int64_t Run(absl::Duration time) {
    const int64_t before = learner_->Status().progress.env_steps;
    const absl::Duration end = clock_.SteadyNow() + time;
    while (clock_.SteadyNow() < end && !testing::Test::HasFailure()) Tick();
    return learner_->Status().progress.env_steps - before;
  }
  /// Until so many more updates were made; the time that took.
  absl::Duration RunUntil(int64_t updates, absl::Duration at_most) {
    const absl::Duration begin = clock_.SteadyNow();
    const int64_t target = trainer_->updates() + updates;
    while (trainer_->updates() < target && clock_.SteadyNow() - begin < at_most) Tick();
    EXPECT_GE(trainer_->updates(), target) << "training stands still";
    return clock_.SteadyNow() - begin;
  }
  Learner& learner() { return *learner_; }
  base::FakeClock& clock() { return clock_; }
  LearnerStatus Status() const { return learner_->Status(); }

 private:
  void Tick() {
    clock_.Advance(kTick);
    const bool heartbeats = ++ticks_ % 10 == 0;
    for (const auto& worker : workers_) {
      if (heartbeats) {
        EXPECT_TRUE(learner_->Heartbeat(worker->ticket).ok());
      }
      if (heartbeats || worker->kind != Kind::kSilent) Work(*worker);
    }
    learner_->Tick();
    while (learner_->Step(absl::ZeroDuration()).kind == StepOutcome::Kind::kUpdated) {
    }
  }
  void Work(Worker& worker) {
    for (const sample::GrantId over : worker.port->TakeOver()) {
      if (worker.kind != Kind::kDeaf) GiveUp(worker, over);
    }
    while (auto grant = worker.port->TryTakeGrant()) {
      if (worker.queue.empty()) worker.busy_until = clock_.SteadyNow() + Needs(worker, *grant);
      worker.queue.push_back(*grant);
    }
    if (worker.kind == Kind::kSilent) return worker.queue.clear();
    while (!worker.queue.empty() && worker.busy_until <= clock_.SteadyNow()) {
      const sample::Grant grant = worker.queue.front();
      worker.queue.pop_front();
      HandIn(worker, grant);
      if (!worker.queue.empty()) worker.busy_until += Needs(worker, worker.queue.front());
    }
  }
  void GiveUp(Worker& worker, sample::GrantId over) {
    const auto given_up = [over](const sample::Grant& grant) { return grant.id == over; };
    const auto found = std::find_if(worker.queue.begin(), worker.queue.end(), given_up);
    if (found == worker.queue.end()) return;
    const bool current = found == worker.queue.begin();
    worker.queue.erase(found);
    if (current && !worker.queue.empty()) worker.busy_until = clock_.SteadyNow() + Needs(worker, worker.queue.front());
  }
  static absl::Duration Needs(const Worker& worker, const sample::Grant& grant) {
    int64_t steps = 0;
    for (const sample::GrantLane& lane : grant.lanes) steps += lane.env_steps;
    return steps * worker.step_time;
  }
  void HandIn(Worker& worker, const sample::Grant& grant) {
    for (const auto& fragment : worker.rollout->Play(grant, publisher_.version())) {
      switch (worker.kind) {
        case Kind::kWrongGrant:
          fragment->grant = sample::GrantId(fragment->grant.value() + 1);
          break;
        case Kind::kNeverLast:
          fragment->last_of_grant = false;
          break;
        case Kind::kShort:
          *fragment = Nothing(*fragment);
          break;
        case Kind::kInvalid:
          fragment->env_rows = -1;
          break;
        default:
          break;
      }
      const auto ack = learner_->Submit(worker.ticket, ++worker.sequence, fragment);
      ASSERT_TRUE(ack.ok()) << ack.status();
      worker.stale += ack->disposition == Disposition::kStale ? 1 : 0;
      worker.accepted += ack->disposition == Disposition::kAccepted ? 1 : 0;
    }
  }
  static sample::MultiAgentBatch Nothing(const sample::MultiAgentBatch& of) {
    sample::MultiAgentBatch nothing;
    nothing.grant = of.grant;
    nothing.iteration = of.iteration;
    nothing.last_of_grant = true;
    return nothing;
  }

  const sample::BatchSchema schema_;
  LearnerConfig config_;
  base::FakeClock clock_;
  FakePublisher publisher_;
  std::unique_ptr<FakeTrainer> trainer_;
  std::unique_ptr<Learner> learner_;
  std::vector<std::unique_ptr<Worker>> workers_;
  int64_t ticks_ = 0;
};

using WorkerKind = Fleet::Kind;

TEST(GrantAgeTest, AWorkerThatDeliversNothingDoesNotStopTheRun) {
  for (const WorkerKind kind : {WorkerKind::kSilent, WorkerKind::kWrongGrant, WorkerKind::kNeverLast,
                                WorkerKind::kShort, WorkerKind::kInvalid}) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind));
    Fleet fleet;
    fleet.Start();
    fleet.Join(kind);
    const Fleet::Worker& honest = fleet.Join(WorkerKind::kHonest);
    fleet.RunUntil(100, absl::Hours(1));
    const LearnerStatus status = fleet.Status();
    EXPECT_GE(status.progress.expired_grants, 1);
    EXPECT_EQ(status.workers[0].expired_grants, status.progress.expired_grants);
    EXPECT_EQ(status.workers[1].expired_grants, 0);
    EXPECT_EQ(honest.stale, 0);
    EXPECT_TRUE(CheckConservation(status.progress.rows).ok());
  }
}

/// Env steps that two honest workers bring in so many hours, with and without those that `add` brings.
template <typename Add>
double Ratio(absl::Duration time, Add add) {
  Fleet alone;
  alone.Start();
  alone.Join(2, WorkerKind::kHonest);
  const int64_t expected = alone.Run(time);
  Fleet fleet;
  fleet.Start();
  const int64_t got = add(fleet);
  const LearnerStatus status = fleet.Status();
  std::printf("%lld of %lld env steps, %lld grants expired\n", static_cast<long long>(got),
              static_cast<long long>(expected), static_cast<long long>(status.progress.expired_grants));
  return static_cast<double>(got) / static_cast<double>(expected);
}

constexpr absl::Duration kHorizon = absl::Hours(2);

TEST(GrantAgeTest, ThreeHundredSilentWorkersBesideTwoHonestOnes) {
  EXPECT_GE(Ratio(kHorizon,
                  [](Fleet& fleet) {
                    fleet.Join(2, WorkerKind::kHonest);
                    fleet.Join(300, WorkerKind::kSilent);
                    return fleet.Run(kHorizon);
                  }),
            0.8);
}

TEST(GrantAgeTest, ThreeHundredSilentWorkersThatComeLater) {
  EXPECT_GE(Ratio(kHorizon,
                  [](Fleet& fleet) {
                    fleet.Join(2, WorkerKind::kHonest);
                    const int64_t before = fleet.Run(absl::Minutes(1));
                    fleet.Join(300, WorkerKind::kSilent);
                    return before + fleet.Run(kHorizon - absl::Minutes(1));
                  }),
            0.8);
}

/// Nobody can tell who is honest before somebody has delivered: every silent one is waited for once.
TEST(GrantAgeTest, ThreeHundredSilentWorkersThatCameFirst) {
  EXPECT_GE(Ratio(4 * kHorizon,
                  [](Fleet& fleet) {
                    fleet.Join(300, WorkerKind::kSilent);
                    fleet.Join(2, WorkerKind::kHonest);
                    return fleet.Run(4 * kHorizon);
                  }),
            0.8);
}

TEST(GrantAgeTest, SilentWorkersThatComeAgainAndAgainUnderNewNames) {
  for (const absl::Duration life : {absl::Seconds(5), absl::Seconds(59)}) {
    SCOPED_TRACE(life);
    EXPECT_GE(Ratio(kHorizon,
                    [life](Fleet& fleet) {
                      fleet.Join(2, WorkerKind::kHonest);
                      int64_t steps = 0;
                      for (absl::Duration t; t < kHorizon; t += life) {
                        fleet.Join(10, WorkerKind::kSilent);
                        steps += fleet.Run(life);
                        for (int i = 0; i < 10; ++i) fleet.Leave();
                      }
                      return steps;
                    }),
              0.8);
  }
}

TEST(GrantAgeTest, AFleetThatIsSlowAsAWholeGoesOn) {
  for (const int workers : {1, 4}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    Fleet fleet;
    fleet.Start();
    // 160 env steps of 25 s: more than an hour's work for one, a quarter of that for each of four.
    for (int i = 0; i < workers; ++i) fleet.Join(WorkerKind::kHonest, absl::Seconds(25));
    const absl::Duration alone = absl::Seconds(25 * 160 / workers);
    // What expired before the limit was long enough was shorter than twice the work, all together.
    EXPECT_LE(fleet.RunUntil(1, absl::Hours(100)), 3 * alone + absl::Minutes(1));
    const int64_t expired = fleet.Status().progress.expired_grants;
    EXPECT_GE(expired, workers);
    // Once delivered, their own pace is what they are allowed.
    EXPECT_LE(fleet.RunUntil(10, absl::Hours(100)), 10 * alone + absl::Minutes(1));
    EXPECT_EQ(fleet.Status().progress.expired_grants, expired);
  }
}

/// As workers of an earlier release do.
TEST(GrantAgeTest, AFleetThatIsSlowAndFinishesWhatIsOverGoesOn) {
  for (const int workers : {1, 4}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    Fleet fleet;
    fleet.Start();
    for (int i = 0; i < workers; ++i) fleet.Join(WorkerKind::kDeaf, absl::Seconds(25));
    fleet.RunUntil(10, absl::Hours(100));
  }
}

TEST(GrantAgeTest, AGivenLimitThatIsTooShortOnlySlowsAFleetDown) {
  Fleet fleet;
  fleet.options().grant_timeout.fixed = absl::Seconds(1);
  fleet.Start();
  fleet.Join(WorkerKind::kHonest, absl::Seconds(1));
  fleet.Join(WorkerKind::kHonest, absl::Seconds(1));
  const absl::Duration took = fleet.RunUntil(20, absl::Hours(10));
  EXPECT_LE(took, absl::Seconds(20 * 160)) << "as one of them alone";
}

TEST(GrantAgeTest, AStoppedLearnerLetsNothingExpire) {
  Fleet fleet;
  fleet.options().grant_timeout.fixed = absl::Seconds(10);
  fleet.options().worker_timeout = absl::Hours(10);
  fleet.Start();
  fleet.Join(WorkerKind::kHonest);
  fleet.Join(WorkerKind::kHonest);
  fleet.Run(absl::Seconds(10.4));
  fleet.clock().Advance(absl::Hours(1));  // SIGSTOP, SIGCONT
  fleet.learner().Tick();
  EXPECT_EQ(fleet.Status().progress.expired_grants, 0);
  fleet.RunUntil(10, absl::Minutes(1));
  EXPECT_EQ(fleet.Status().progress.expired_grants, 0);
}

TEST(GrantAgeTest, AWorkerThatWasAwayComesBackIn) {
  Fleet fleet;
  fleet.Start();
  fleet.Join(WorkerKind::kHonest);
  Fleet::Worker& away = fleet.Join(WorkerKind::kHonest);
  fleet.Run(absl::Minutes(1));
  away.kind = WorkerKind::kSilent;
  fleet.Run(absl::Minutes(5));
  EXPECT_EQ(fleet.Status().workers[1].lanes, 0);
  away.kind = WorkerKind::kHonest;
  const int64_t accepted = away.accepted;
  fleet.Run(absl::Minutes(20));
  EXPECT_GT(away.accepted, accepted + 100);
  EXPECT_EQ(fleet.Status().workers[1].lanes, 8) << "its full share";
}

TEST(GrantAgeTest, AWorkerIsToldThatItsGrantIsOver) {
  Fleet fleet;
  fleet.options().grant_timeout.fixed = absl::Seconds(5);
  fleet.Start();
  const auto port = std::make_shared<FakeWorkerPort>();
  const auto ticket = fleet.learner().Join({}, port);
  ASSERT_TRUE(ticket.ok());
  const auto grant = port->TryTakeGrant();
  ASSERT_TRUE(grant.has_value());
  for (int second = 1; second <= 5; ++second) {
    EXPECT_TRUE(port->TakeOver().empty());
    EXPECT_FALSE(port->TryTakeGrant().has_value());
    fleet.clock().Advance(absl::Seconds(1));
    fleet.learner().Tick();
  }
  EXPECT_EQ(port->TakeOver(), std::vector<sample::GrantId>{grant->id});
  const auto again = port->TryTakeGrant();
  ASSERT_TRUE(again.has_value()) << "the only one there is";
  ASSERT_EQ(again->lanes.size(), grant->lanes.size());
  for (size_t i = 0; i < again->lanes.size(); ++i) {
    EXPECT_TRUE(again->lanes[i].fresh);
    EXPECT_GT(again->lanes[i].next_episode, grant->lanes[i].next_episode);
  }
}

}  // namespace
}  // namespace troupe::learner
