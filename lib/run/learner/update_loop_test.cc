// A whole run in one process, from its configuration to its summary, with a trainer that is none.

#include "lib/run/learner/update_loop.h"

#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/await.h"
#include "lib/envs/register_all.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/policy/parameter_layout.h"
#include "lib/run/learner/local_sampler.h"
#include "lib/run/learner/policy_map_cache.h"
#include "lib/run/learner/run_end.h"
#include "lib/run/learner/run_setup.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/rollout_setup.h"
#include "lib/storage/file_system.h"
#include "lib/storage/testing.h"
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
  absl::Status Save(const learner::LearnerState& state, bool /*is_best*/) override {
    saved.push_back(state.env_steps);
    return status;
  }
  std::vector<int64_t> saved;
  absl::Status status;
};

class UpdateLoopTest : public testing::Test {
 protected:
  UpdateLoopTest() {
    envs::RegisterAllEnvs(registry_);
    const std::string path = scratch_.path() + "/run.yaml";
    std::ofstream(path) << kConfig;
    RunRequest request;
    request.config_path = path;
    request.directory = scratch_.path();
    request.name = "run";
    absl::StatusOr<RunSetup> setup = SetUpRun(request, registry_, clock_);
    EXPECT_TRUE(setup.ok()) << setup.status();
    setup_ = *std::move(setup);
    setup_.run.experiment.write_interval_env_steps = 0;
    setup_.run.experiment.checkpoint_interval_env_steps = 200;
    setup_.run.evaluation.interval_env_steps = 120;
    const policy::PolicyTablePtr policies = *FirstPolicies(setup_);
    trainer_ = std::make_unique<learner::FakeTrainer>(policies->Specs());
    reporter_ = *RunReporter::Open(setup_.run, "run", setup_.folder->directory(), 0, {.degradations = &degradations_});
    sampler_ = std::make_shared<LocalSampler>(setup_.run.policies.size());
    learner::LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = sampler_.get();
    deps.metrics = reporter_.get();
    deps.progress = reporter_.get();
    auto learner = learner::Learner::Create(LearnerConfigOf(setup_, policies), deps);
    EXPECT_TRUE(learner.ok()) << learner.status();
    learner_ = *std::move(learner);
    binding_ = std::make_unique<rpc::LearnerBinding>(learner_.get());
    control_ = std::make_unique<ControlHandler>(learner_.get(), binding_.get(), &degradations_, "run");
    cache_ = std::make_unique<PolicyMapCache>(&setup_, &Zeros);
    desk_ = std::make_unique<PolicyDesk>(PolicyDesk::Deps{.run = &setup_.run,
                                                          .learner = learner_.get(),
                                                          .trainer = trainer_.get(),
                                                          .workers = binding_.get(),
                                                          .control = control_.get(),
                                                          .cache = cache_.get(),
                                                          .draw = &Zeros});
    evaluator_ = std::make_unique<RunEvaluator>(RunEvaluator::Deps{.run = &setup_.run,
                                                                   .registry = &registry_,
                                                                   .learner = learner_.get(),
                                                                   .trainer = trainer_.get(),
                                                                   .reporter = reporter_.get()});
    updates_ = std::make_unique<UpdateLoop>(UpdateLoop::Deps{.run = &setup_.run,
                                                             .learner = learner_.get(),
                                                             .reporter = reporter_.get(),
                                                             .evaluator = evaluator_.get(),
                                                             .checkpoints = &checkpoints_,
                                                             .control = control_.get(),
                                                             .policies = desk_.get(),
                                                             .degradations = &degradations_},
                                            0);
    EXPECT_EQ(learner_->Start(), absl::OkStatus());
    EXPECT_EQ(sampler_->Join(*MakeRolloutConfig(setup_.run, registry_), learner_.get()), absl::OkStatus());
    sampling_ = std::thread([this] { sampler_->Run(); });
  }
  ~UpdateLoopTest() override { StopSampling(); }

  void StopSampling() {
    sampler_->Stop();
    if (sampling_.joinable()) sampling_.join();
  }
  /// Steps until the run stops, or does anything else than wait and update.
  StepOutcome StepToTheEnd() {
    const base::Deadline deadline = base::Deadline::After(absl::Seconds(60));
    while (!deadline.passed()) {
      const absl::StatusOr<StepOutcome> outcome = updates_->Step(absl::Milliseconds(20));
      EXPECT_TRUE(outcome.ok()) << outcome.status();
      if (!outcome.ok()) break;
      if (outcome->kind != StepOutcome::Kind::kWaiting && outcome->kind != StepOutcome::Kind::kUpdated) return *outcome;
    }
    return {};
  }
  /// Writes what waits.
  void WriteCheckpoints() {
    checkpoints_.Stop();
    checkpoints_.Run();
  }
  RunEnd MakeEnd() {
    return RunEnd({.learner = learner_.get(),
                   .reporter = reporter_.get(),
                   .evaluator = evaluator_.get(),
                   .updates = updates_.get(),
                   .checkpoints = &checkpoints_,
                   .degradations = &degradations_},
                  setup_.name, setup_.folder->directory());
  }
  nlohmann::json Summary() const {
    const auto text = storage::FileSystem::Posix().ReadFile(setup_.folder->Path("summary.json"), 1 << 20);
    return nlohmann::json::parse(text.ok() ? *text : std::string(), nullptr, false);
  }

  const storage::ScratchDirectory scratch_;
  env::EnvRegistry registry_;
  base::FakeClock clock_;
  RunSetup setup_;
  Degradations degradations_;
  FakeStore store_;
  CheckpointLoop checkpoints_{&store_, &degradations_};
  std::unique_ptr<learner::FakeTrainer> trainer_;
  std::unique_ptr<RunReporter> reporter_;
  std::shared_ptr<LocalSampler> sampler_;
  std::unique_ptr<learner::Learner> learner_;
  std::unique_ptr<rpc::LearnerBinding> binding_;
  std::unique_ptr<ControlHandler> control_;
  std::unique_ptr<PolicyMapCache> cache_;
  std::unique_ptr<PolicyDesk> desk_;
  std::unique_ptr<RunEvaluator> evaluator_;
  std::unique_ptr<UpdateLoop> updates_;
  std::thread sampling_;
};

TEST_F(UpdateLoopTest, BetweenUpdatesItEvaluatesSavesAndDoesWhatIsAskedFor) {
  std::vector<absl::StatusOr<int64_t>> saved, changed;
  control_->RequestCheckpoint({}, [&](absl::StatusOr<int64_t> env_steps) { saved.push_back(std::move(env_steps)); });
  control_->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("next")},
                           [&](absl::StatusOr<int64_t> revision) { changed.push_back(std::move(revision)); });
  EXPECT_EQ(updates_->env_steps(), 0);
  const StepOutcome outcome = StepToTheEnd();
  EXPECT_EQ(outcome.kind, StepOutcome::Kind::kStopped) << outcome.reason << outcome.status;
  EXPECT_EQ(updates_->env_steps(), 400);
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_TRUE(changed[0].ok()) << changed[0].status();
  ASSERT_NE(evaluator_->evaluated(), nullptr) << "an evaluation was due";
  EXPECT_TRUE(evaluator_->evaluated()->FindSlot(PolicyId("next")).has_value()) << "of the policies that there are now";
  EXPECT_TRUE(saved.empty()) << "nobody has written yet";
  WriteCheckpoints();
  ASSERT_EQ(saved.size(), 1u);
  ASSERT_TRUE(saved[0].ok()) << saved[0].status();
  EXPECT_GT(*saved[0], 0) << "a newer state serves who asked for an older one";
  EXPECT_THAT(store_.saved, testing::Contains(400));
  EXPECT_THAT(degradations_.List(), testing::IsEmpty());
}

TEST_F(UpdateLoopTest, AtTheEndTheLastWeightsAreEvaluatedAndToldOf) {
  const StepOutcome outcome = StepToTheEnd();
  desk_->RefuseAll();
  RunEnd end = MakeEnd();
  ASSERT_EQ(end.Conclude(outcome, /*evaluate=*/true), absl::OkStatus());
  StopSampling();
  WriteCheckpoints();
  EXPECT_EQ(end.Tell(), absl::OkStatus());
  const nlohmann::json summary = Summary();
  ASSERT_TRUE(summary.is_object());
  EXPECT_EQ(summary["env_steps"], 400);
  const double wall_clock_s = summary["wall_clock_s"].get<double>();
  EXPECT_GT(wall_clock_s, 0);
  EXPECT_DOUBLE_EQ(summary["env_steps_per_s"].get<double>(), 400 / wall_clock_s);
  EXPECT_LT(wall_clock_s, learner_->Status().progress.wall_clock_s) << "the evaluation is no training";
  EXPECT_EQ(summary["reason"], outcome.reason);
  EXPECT_EQ(summary["evaluation"]["episodes"], 3);
  EXPECT_TRUE(summary["evaluation_error"].is_null());
  absl::Status asked;
  control_->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("late")},
                           [&](const absl::StatusOr<int64_t>& revision) { asked = revision.status(); });
  EXPECT_EQ(asked.code(), absl::StatusCode::kUnavailable);
}

TEST_F(UpdateLoopTest, ALastCheckpointThatIsNotWrittenIsHowTheRunEnds) {
  store_.status = absl::ResourceExhaustedError("no room");
  const StepOutcome outcome = StepToTheEnd();
  RunEnd end = MakeEnd();
  ASSERT_EQ(end.Conclude(outcome, /*evaluate=*/false), absl::OkStatus());
  StopSampling();
  WriteCheckpoints();
  EXPECT_EQ(end.Tell(), absl::DataLossError("the last checkpoint was not written: no room"));
  EXPECT_TRUE(Summary()["evaluation"].is_null());
  EXPECT_THAT(Summary()["degraded"].dump(), testing::HasSubstr("checkpoints cannot be written"));
}

TEST_F(UpdateLoopTest, ATrainerThatFailsEndsTheLoopWithAStateThatIsWhole) {
  trainer_->FailNext(absl::InternalError("out of order"));
  const StepOutcome outcome = StepToTheEnd();
  ASSERT_EQ(outcome.kind, StepOutcome::Kind::kFailed);
  EXPECT_TRUE(outcome.state_is_whole);
  EXPECT_EQ(UpdateFailed(outcome.status, "", 0, "runs/run"),
            absl::InternalError("an update failed: out of order; the policies are as they were before this update, "
                                "saved at 0 env steps: --resume runs/run goes on from there"));
  EXPECT_EQ(UpdateFailed(outcome.status, "no room", 0, "runs/run"),
            absl::InternalError("an update failed: out of order; and the last checkpoint was not written: no room"));
}

TEST_F(UpdateLoopTest, APolicyThatCameLaterIsTrainedAsTheOneItIsNotedWith) {
  const policy::PolicyTablePtr policies = learner_->Policies();
  std::vector<size_t> trained_as(setup_.run.policies.size());
  std::iota(trained_as.begin(), trained_as.end(), 0);
  EXPECT_EQ(TrainedAs(setup_, *policies), trained_as);
  policy::PolicySpec late = setup_.run.policies[0];
  late.id = PolicyId("late");
  const policy::PolicyTablePtr more = *policies->Add(late, true);
  trained_as.push_back(0);
  EXPECT_EQ(TrainedAs(setup_, *more), trained_as) << "the first, where it is not known";
  learner::LearnerState& resumed = setup_.resumed.emplace();
  for (const policy::PolicySpec& spec : setup_.run.policies) resumed.trained_as.push_back(spec.id);
  resumed.trained_as.push_back(setup_.run.policies.back().id);
  trained_as.back() = setup_.run.policies.size() - 1;
  EXPECT_EQ(TrainedAs(setup_, *more), trained_as);
}

}  // namespace
}  // namespace troupe::run
