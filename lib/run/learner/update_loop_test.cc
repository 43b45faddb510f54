// A whole run in one process, from its configuration to its summary, with a trainer that is none.

#include "lib/run/learner/update_loop.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/policy/parameter_layout.h"
#include "lib/run/learner/callback_host.h"
#include "lib/run/learner/run_end.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/learner/testing/run_in_process.h"
#include "lib/storage/file_system.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::run {
namespace {

using learner::StepOutcome;
using policy::PolicyId;

constexpr char kConfig[] = R"(
env: {name: rock_paper_scissors}
algorithm: {name: ippo, train_batch_size: 40, minibatch_size: 40}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
num_workers: 0
num_envs_per_worker: 2
evaluation: {episodes: 3}
stop: {env_steps: 400}
)";

policy::PolicyState Zeros(const policy::PolicySpec& spec, const policy::AlgorithmSpec& /*algorithm*/,
                          uint64_t /*seed*/) {
  policy::PolicyState state;
  state.id = spec.id;
  state.Set(policy::kParameters, std::vector<float>(static_cast<size_t>(policy::ParameterLayout::For(spec).size())));
  return state;
}

/// Remembers of which env steps the states were.
class FakeStore final : public learner::CheckpointStore {
 public:
  absl::Status Save(const learner::LearnerState& state, bool is_best) override {
    saved.push_back(state.env_steps);
    if (is_best) best = state.env_steps;
    return status;
  }
  absl::Status SaveTo(const learner::LearnerState& state, const std::string& path) override {
    saved_to.emplace_back(state.env_steps, path);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Prune(int keep) override { return keep; }
  std::vector<int64_t> saved;
  int64_t best = -1;  ///< env steps of the last that was
  std::vector<std::pair<int64_t, std::string>> saved_to;
  absl::Status status;
};

class UpdateLoopTest : public testing::Test {
 protected:
  RunEnd MakeEnd() {
    return RunEnd({.learner = run_.learner.get(),
                   .reporter = run_.reporter.get(),
                   .evaluator = run_.evaluator.get(),
                   .updates = run_.updates.get(),
                   .checkpoints = &run_.checkpoints,
                   .degradations = &run_.degradations},
                  run_.setup.name, run_.setup.folder->directory());
  }
  nlohmann::json Summary() const {
    const auto text = storage::FileSystem::Posix().ReadFile(run_.setup.folder->Path("summary.json"), 1 << 20);
    return nlohmann::json::parse(text.ok() ? *text : std::string(), nullptr, false);
  }

  FakeStore store_;
  learner::FakeTrainer* trainer_ = nullptr;
  RunInProcess run_{{.config = kConfig,
                     .change =
                         [](config::ResolvedRun& run) {
                           run.experiment.write_interval_env_steps = 0;
                           run.experiment.checkpoint_interval_env_steps = 200;
                           run.evaluation.interval_env_steps = 120;
                           run.experiment.best_by = learner::Score{};
                         },
                     .make_trainer =
                         [this](const RunSetup& /*setup*/, const policy::PolicyTable& policies) {
                           auto trainer = std::make_unique<learner::FakeTrainer>(policies.Specs());
                           trainer_ = trainer.get();
                           return trainer;
                         },
                     .draw = &Zeros,
                     .store = &store_}};
};

TEST_F(UpdateLoopTest, BetweenUpdatesItEvaluatesSavesAndDoesWhatIsAskedFor) {
  std::vector<absl::StatusOr<int64_t>> saved, changed;
  run_.control->RequestCheckpoint({}, "",
                                  [&](absl::StatusOr<int64_t> env_steps) { saved.push_back(std::move(env_steps)); });
  run_.control->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("next")},
                               [&](absl::StatusOr<int64_t> revision) { changed.push_back(std::move(revision)); });
  EXPECT_EQ(run_.updates->env_steps(), 0);
  const StepOutcome outcome = run_.StepToTheEnd();
  EXPECT_EQ(outcome.kind, StepOutcome::Kind::kStopped) << outcome.reason << outcome.status;
  EXPECT_EQ(run_.updates->env_steps(), 400);
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_TRUE(changed[0].ok()) << changed[0].status();
  ASSERT_NE(run_.evaluator->evaluated(), nullptr) << "an evaluation was due";
  EXPECT_TRUE(run_.evaluator->evaluated()->FindSlot(PolicyId("next")).has_value())
      << "of the policies that there are now";
  EXPECT_TRUE(saved.empty()) << "nobody has written yet";
  run_.WriteCheckpoints();
  ASSERT_EQ(saved.size(), 1u);
  ASSERT_TRUE(saved[0].ok()) << saved[0].status();
  EXPECT_GT(*saved[0], 0) << "a newer state serves who asked for an older one";
  EXPECT_THAT(store_.saved, testing::Contains(400));
  EXPECT_THAT(run_.degradations.List(), testing::IsEmpty());
}

TEST_F(UpdateLoopTest, TrainingGoesOnWhileAnEvaluationIsPlayed) {
  run_.setup.run.evaluation.parallel = true;
  run_.setup.run.evaluation.episodes = 20'000;
  std::promise<void> trained;
  const std::shared_future<void> end_of_training = trained.get_future().share();
  run_.interrupted = [end_of_training] {
    end_of_training.wait();  // the thread that plays looks whether it is to end
    return false;
  };
  ASSERT_EQ(run_.StepToTheEnd().kind, StepOutcome::Kind::kStopped);
  EXPECT_EQ(run_.updates->env_steps(), 400);
  EXPECT_TRUE(run_.evaluator->is_playing());
  trained.set_value();
  ASSERT_EQ(run_.updates->EndUpdates(), absl::OkStatus());
  EXPECT_FALSE(run_.evaluator->is_playing());
  EXPECT_THAT(run_.degradations.List(), testing::IsEmpty());
  run_.WriteCheckpoints();
  EXPECT_EQ(store_.best, 120) << "the weights were those of then";
}

// Its thread ends with it.
TEST_F(UpdateLoopTest, AnEvaluationBesideTrainingEndsWithTheProcess) {
  run_.setup.run.evaluation.parallel = true;
  run_.setup.run.evaluation.episodes = 10'000'000;
  ASSERT_EQ(run_.StepToTheEnd().kind, StepOutcome::Kind::kStopped);
  EXPECT_TRUE(run_.evaluator->is_playing());
  run_.updates.reset();
  run_.evaluator.reset();
}

TEST_F(UpdateLoopTest, WhatIsAskedForBesidesGoesToTheStore) {
  std::vector<absl::StatusOr<int64_t>> saved, pruned;
  run_.control->RequestCheckpoint({}, "/elsewhere/a", [&](absl::StatusOr<int64_t> done) { saved.push_back(done); });
  run_.control->RequestPrune({}, 7, [&](absl::StatusOr<int64_t> done) { pruned.push_back(done); });
  ASSERT_EQ(run_.StepToTheEnd().kind, StepOutcome::Kind::kStopped);
  run_.WriteCheckpoints();
  ASSERT_EQ(store_.saved_to.size(), 1u);
  EXPECT_EQ(store_.saved_to[0].second, "/elsewhere/a");
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(*saved[0], store_.saved_to[0].first);
  ASSERT_EQ(pruned.size(), 1u);
  EXPECT_EQ(*pruned[0], 7);
}

// A kill in the evaluation, which may take long, costs no training.
TEST_F(UpdateLoopTest, TheLastStateIsSavedBeforeItIsEvaluated) {
  const StepOutcome outcome = run_.StepToTheEnd();
  run_.WriteCheckpoints();
  store_.saved.clear();
  RunEnd end = MakeEnd();
  run_.setup.run.evaluation.episodes = 10'000'000;
  bool saved_first = false;
  run_.interrupted = [&] {
    run_.WriteCheckpoints();
    saved_first = testing::Matches(testing::Contains(400))(store_.saved);
    return true;
  };
  ASSERT_EQ(end.Conclude(outcome, /*evaluate=*/true), absl::OkStatus());
  EXPECT_TRUE(saved_first);
  run_.StopSampling();
  EXPECT_EQ(end.Tell(), absl::OkStatus());
  EXPECT_TRUE(Summary()["evaluation"].is_null());
  EXPECT_THAT(Summary()["evaluation_error"].get<std::string>(),
              testing::MatchesRegex("interrupted after [0-9]+ of 10000000 episodes"));
}

TEST_F(UpdateLoopTest, WithoutAFinalCheckpointNoneIsWrittenAtTheEnd) {
  run_.setup.run.experiment.final_checkpoint = false;
  const StepOutcome outcome = run_.StepToTheEnd();
  run_.WriteCheckpoints();
  store_.saved.clear();
  RunEnd end = MakeEnd();
  ASSERT_EQ(end.Conclude(outcome, /*evaluate=*/true), absl::OkStatus());
  run_.WriteCheckpoints();
  EXPECT_THAT(store_.saved, testing::IsEmpty());
}

// The clock stands still: env steps alone, and the time before the first one.
TEST(UpdateLoopTimeTest, ACheckpointIsDueByTime) {
  for (const bool due : {false, true}) {
    FakeStore store;
    base::FakeClock clock;
    RunInProcess run{{.config = kConfig,
                      .change =
                          [due](config::ResolvedRun& resolved) {
                            resolved.experiment.checkpoint_interval_env_steps = 0;
                            resolved.experiment.first_checkpoint_after =
                                due ? absl::ZeroDuration() : absl::InfiniteDuration();
                          },
                      .make_trainer =
                          [](const RunSetup& /*setup*/, const policy::PolicyTable& policies) {
                            return std::make_unique<learner::FakeTrainer>(policies.Specs());
                          },
                      .draw = &Zeros,
                      .store = &store,
                      .clock = &clock}};
    ASSERT_EQ(run.StepToTheEnd().kind, StepOutcome::Kind::kStopped);
    run.WriteCheckpoints();
    EXPECT_EQ(store.saved, due ? std::vector<int64_t>{40} : std::vector<int64_t>{});
  }
}

TEST_F(UpdateLoopTest, AtTheEndTheLastWeightsAreEvaluatedAndToldOf) {
  const StepOutcome outcome = run_.StepToTheEnd();
  run_.desk->RefuseAll();
  RunEnd end = MakeEnd();
  ASSERT_EQ(end.Conclude(outcome, /*evaluate=*/true), absl::OkStatus());
  run_.StopSampling();
  run_.WriteCheckpoints();
  EXPECT_EQ(end.Tell(), absl::OkStatus());
  const nlohmann::json summary = Summary();
  ASSERT_TRUE(summary.is_object());
  EXPECT_EQ(summary["env_steps"], 400);
  const double wall_clock_s = summary["wall_clock_s"].get<double>();
  EXPECT_GT(wall_clock_s, 0);
  EXPECT_DOUBLE_EQ(summary["env_steps_per_s"].get<double>(), 400 / wall_clock_s);
  EXPECT_LT(wall_clock_s, run_.learner->Status().progress.wall_clock_s) << "the evaluation is no training";
  EXPECT_EQ(summary["reason"], outcome.reason);
  EXPECT_EQ(summary["evaluation"]["episodes"], 3);
  EXPECT_TRUE(summary["evaluation_error"].is_null());
  absl::Status asked;
  run_.control->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("late")},
                               [&](const absl::StatusOr<int64_t>& revision) { asked = revision.status(); });
  EXPECT_EQ(asked.code(), absl::StatusCode::kUnavailable);
}

TEST_F(UpdateLoopTest, ALastCheckpointThatIsNotWrittenIsHowTheRunEnds) {
  store_.status = absl::ResourceExhaustedError("no room");
  const StepOutcome outcome = run_.StepToTheEnd();
  RunEnd end = MakeEnd();
  ASSERT_EQ(end.Conclude(outcome, /*evaluate=*/false), absl::OkStatus());
  run_.StopSampling();
  run_.WriteCheckpoints();
  EXPECT_EQ(end.Tell(), absl::DataLossError("the last checkpoint was not written: no room"));
  EXPECT_TRUE(Summary()["evaluation"].is_null());
  EXPECT_THAT(Summary()["degraded"].dump(), testing::HasSubstr("checkpoints cannot be written"));
}

/// A run with more updates than callbacks may be behind, and callbacks that are not called before somebody steps them.
class CalledBackTest : public testing::Test {
 protected:
  static std::unique_ptr<CallbackHost> MakeHost(const std::string& notes, Degradations* degradations) {
    setenv("TROUPE_TEST_NOTES", notes.c_str(), 1);
    CallbackHost::Options options;
    options.callbacks = {"python:host_test_callbacks:Second"};
    options.python.interpreter = TROUPE_TEST_PYTHON;
    options.python.path = {TROUPE_SOURCE_DIR "/lib/run/learner/testing"};
    options.degradations = degradations;
    absl::StatusOr<std::unique_ptr<CallbackHost>> host = CallbackHost::Start(std::move(options));
    EXPECT_TRUE(host.ok()) << host.status();
    return *std::move(host);
  }

  static constexpr int64_t kUpdates = 70;
  const storage::ScratchDirectory scratch_;
  const std::string notes_ = scratch_.path() + "/notes";
  FakeStore store_;
  Degradations degradations_;
  std::unique_ptr<CallbackHost> host_ = MakeHost(notes_, &degradations_);
  RunInProcess run_{{.config = kConfig,
                     .change =
                         [](config::ResolvedRun& run) {
                           run.experiment.write_interval_env_steps = 0;
                           run.stop.env_steps = 40 * kUpdates;
                         },
                     .make_trainer =
                         [](const RunSetup& /*setup*/, const policy::PolicyTable& policies) {
                           return std::make_unique<learner::FakeTrainer>(policies.Specs());
                         },
                     .draw = &Zeros,
                     .store = &store_,
                     .callbacks = host_.get()}};
};

TEST_F(CalledBackTest, TheLoopWaitsForCallbacksThatAreFarBehindAndDoesWhatTheyAskMeanwhile) {
  constexpr int64_t kFull = CallbackHost::kMaxWaiting;
  static_assert(kUpdates > kFull + 1);
  std::thread asks([this] {
    // The update after those that wait finds no room, which nobody but this thread makes.
    const base::Deadline deadline = base::Deadline::After(absl::Minutes(1));
    EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(1), deadline,
                                   [this] { return run_.learner->Status().progress.updates > kFull; }));
    const auto changed = std::make_shared<std::promise<absl::Status>>();
    run_.control->ChangePolicies(
        {}, policy::AddPolicy{.id = PolicyId("asked")},
        [changed](const absl::StatusOr<int64_t>& revision) { changed->set_value(revision.status()); });
    std::future<absl::Status> answer = changed->get_future();
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "asked in vain";
    EXPECT_EQ(run_.learner->Status().progress.updates, kFull + 1) << "the loop waits";
    host_->Run();
  });
  const StepOutcome outcome = run_.StepToTheEnd();
  EXPECT_EQ(outcome.kind, StepOutcome::Kind::kStopped) << outcome.reason << outcome.status;
  EXPECT_EQ(run_.updates->AwaitCallbacks(), absl::OkStatus());
  host_->Stop();
  asks.join();
  std::ifstream file(notes_);
  std::string line;
  int64_t calls = 0;
  while (std::getline(file, line)) EXPECT_EQ(line, absl::StrCat("second ", 40 * ++calls));
  EXPECT_EQ(calls, kUpdates) << "each update once, in order";
  EXPECT_TRUE(run_.learner->Policies()->FindSlot(PolicyId("asked")).has_value());
}

TEST_F(UpdateLoopTest, ATrainerThatFailsEndsTheLoopWithAStateThatIsWhole) {
  trainer_->FailNext(absl::InternalError("out of order"));
  const StepOutcome outcome = run_.StepToTheEnd();
  ASSERT_EQ(outcome.kind, StepOutcome::Kind::kFailed);
  EXPECT_TRUE(outcome.state_is_whole);
  EXPECT_EQ(UpdateFailed(outcome.status, "", 0, "runs/run"),
            absl::InternalError("an update failed: out of order; the policies are as they were before this update, "
                                "saved at 0 env steps: --resume runs/run goes on from there"));
  EXPECT_EQ(UpdateFailed(outcome.status, "no room", 0, "runs/run"),
            absl::InternalError("an update failed: out of order; and the last checkpoint was not written: no room"));
}

TEST_F(UpdateLoopTest, APolicyThatCameLaterIsTrainedAsTheOneItIsNotedWith) {
  const policy::PolicyTablePtr policies = run_.learner->Policies();
  std::vector<size_t> trained_as(run_.setup.run.policies.size());
  std::iota(trained_as.begin(), trained_as.end(), 0);
  EXPECT_EQ(TrainedAs(run_.setup, *policies), trained_as);
  policy::PolicySpec late = run_.setup.run.policies[0];
  late.id = PolicyId("late");
  const policy::PolicyTablePtr more = *policies->Add(late, true);
  trained_as.push_back(0);
  EXPECT_EQ(TrainedAs(run_.setup, *more), trained_as) << "the first, where it is not known";
  learner::LearnerState& resumed = run_.setup.resumed.emplace();
  for (const policy::PolicySpec& spec : run_.setup.run.policies) resumed.trained_as.push_back(spec.id);
  resumed.trained_as.push_back(run_.setup.run.policies.back().id);
  trained_as.back() = run_.setup.run.policies.size() - 1;
  EXPECT_EQ(TrainedAs(run_.setup, *more), trained_as);
}

}  // namespace
}  // namespace troupe::run
