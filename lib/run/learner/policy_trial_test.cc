#include "lib/run/learner/policy_trial.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/envs/register_all.h"
#include "lib/policy/policy_class.h"
#include "lib/run/stopped_run.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using policy::PolicyId;
using policy::PolicyTable;
using policy::PolicyTablePtr;
using testing::AllOf;
using testing::HasSubstr;

constexpr char kRun[] = R"(
env: {name: rock_paper_scissors}
algorithm: {name: ippo}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
multi_agent: {policies: {main: {}, dice: {class: random}}, policy_mapping: {player_0: main, player_1: dice}}
)";

constexpr char kModule[] = R"(
import os
import pathlib
import time


def act(observations, rows):
    # As a table of what there is in this game: an observation that the environment never gives is none of it.
    assert observations.shape == (1, 7) and (observations == 0).all(), observations
    assert list(rows.env_steps) == [0]
    return [0]


def raises(observations):
    raise KeyError("no such board")


def dies(observations):
    os._exit(3)


def hangs(observations):
    (pathlib.Path(os.environ["TROUPE_TRIAL_MARK"]) / "hangs").touch()
    time.sleep(3600)


class Unmade:
    def __init__(self):
        raise OSError("no weights here")


def choose(agent_id, episode, worker):
    return "main" if agent_id == "player_0" else worker.policies[-1]


def unknown(agent_id):
    return "nobody"


def picky(agent_id, episode, worker):
    assert len(worker.policies) == 2
    return "main"
)";

class PolicyTrialTest : public testing::Test {
 protected:
  PolicyTrialTest() {
    envs::RegisterAllEnvs(registry_);
    std::ofstream(scratch_.path() + "/trial_module.py") << kModule;
    setenv("TROUPE_TRIAL_MARK", scratch_.path().c_str(), 1);
    const auto config = config::RunConfig::FromYaml(kRun, "run.yaml", {});
    EXPECT_TRUE(config.ok()) << config.status();
    run_ = *config::ResolveRun(*config, registry_);
    run_.env.python.interpreter = TROUPE_TEST_PYTHON;
    run_.env.python.path = {scratch_.path()};
    table_ = *PolicyTable::Make(run_.policies, run_.learner.trains, run_.mapping_rules, run_.agent_ids());
  }
  PolicyTablePtr With(const std::string& function) const {
    policy::PolicySpec spec = run_.policies[1];
    spec.id = PolicyId("new");
    spec.policy_class = *policy::ParsePolicyClass("python:trial_module:" + function);
    return *table_->Add(spec, /*trains=*/false);
  }
  PolicyTablePtr Mapped(const std::string& function) const {
    return *table_->SetMapping({{.agent_glob = "*", .policies = {}, .function = "python:trial_module:" + function}});
  }
  absl::Status Try(const PolicyTablePtr& next) {
    const auto trial = PolicyTrial::OfChange(run_, registry_, next, *table_);
    return trial == nullptr ? absl::UnknownError("nothing to try") : trial->Run();
  }
  void ExpectRefused(const PolicyTablePtr& next, const std::string& words) {
    const absl::Status status = Try(next);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  env::EnvRegistry registry_;
  config::ResolvedRun run_;
  PolicyTablePtr table_;
  storage::ScratchDirectory scratch_;
};

TEST_F(PolicyTrialTest, WhatWorksPassesWithAnObservationOfTheEnvironment) {
  EXPECT_EQ(Try(With("act")), absl::OkStatus());
  EXPECT_EQ(Try(Mapped("choose")), absl::OkStatus());
}

// Nobody plays it, but "done" was said, and each worker ended as it made it.
TEST_F(PolicyTrialTest, APolicyThatCannotBeMadeOrCalledIsRefusedInPythonsWords) {
  ExpectRefused(With("Unmade"), "policy \"new\": ");
  ExpectRefused(With("Unmade"), "OSError: no weights here");
  ExpectRefused(With("raises"), "KeyError: 'no such board'");
  ExpectRefused(With("dies"), "exited with 3");
  ExpectRefused(With("atc"), "'atc' is no attribute of module trial_module, did you mean act");
}

TEST_F(PolicyTrialTest, AFunctionThatAnswersWrongIsRefused) {
  ExpectRefused(Mapped("unknown"), "got policy \"nobody\", expected one of");
  ExpectRefused(Mapped("raises"), "no such board");
  ExpectRefused(Mapped("nobody"), "'nobody' is no attribute of module trial_module");
}

TEST_F(PolicyTrialTest, AFunctionIsTriedAgainWhereItHasOthersToChooseFrom) {
  table_ = Mapped("picky");
  EXPECT_EQ(Try(Mapped("picky")), absl::OkStatus());
  ExpectRefused(With("act"), "AssertionError");
}

TEST_F(PolicyTrialTest, NothingInPythonIsNothingToTry) {
  policy::PolicySpec spec = run_.policies[1];
  spec.id = PolicyId("dice_2");
  EXPECT_EQ(PolicyTrial::OfChange(run_, registry_, *table_->Add(spec, false), *table_), nullptr);
  // Functions from before the change have been tried.
  const PolicyTablePtr now = With("raises");
  spec.id = PolicyId("dice_3");
  EXPECT_EQ(PolicyTrial::OfChange(run_, registry_, *now->Add(spec, false), *now), nullptr);
}

TEST_F(PolicyTrialTest, OneThatHangsEndsInTimeAndWhenItIsStopped) {
  run_.env.python.step_timeout = absl::Seconds(1);
  ExpectRefused(With("hangs"), "policy \"new\": ");
  std::filesystem::remove(scratch_.path() + "/hangs");
  run_.env.python.step_timeout = absl::Seconds(600);
  const auto trial = PolicyTrial::OfChange(run_, registry_, With("hangs"), *table_);
  absl::Status status;
  std::thread trying([&] { status = trial->Run(); });
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(10), base::Deadline::After(absl::Seconds(60)),
                                 [&] { return std::filesystem::exists(scratch_.path() + "/hangs"); }));
  trial->Stop();
  trying.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

TEST_F(PolicyTrialTest, AResumeTriesWhatAgentsPlayAndNothingElse) {
  const PolicyTablePtr idle = With("raises");
  EXPECT_EQ(PolicyTrial::OfResume(run_, registry_, idle), nullptr) << "nobody plays it";
  const PolicyTablePtr played =
      *idle->SetMapping({{"player_0", {{PolicyId("main")}}}, {"player_1", {{PolicyId("new")}}}});
  EXPECT_THAT(std::string(PolicyTrial::OfResume(run_, registry_, played)->Run().message()),
              AllOf(HasSubstr("policy \"new\""), HasSubstr("no such board")));
}

/// A run with a checkpoint and nobody who trains it.
class StoppedRunTest : public PolicyTrialTest {
 protected:
  void SetUp() override {
    folder_ = scratch_.path() + "/run";
    storage::RunFolder::Options options;
    options.directory = folder_;
    options.config_yaml = options.checkpoint.config_yaml = kRun;
    learner_ = *storage::RunFolder::Open(std::move(options));
    learner::LearnerState state = storage::StateForTesting(run_.policies[0], 7);
    policy::PolicyState dice, added;
    dice.id = PolicyId("dice");
    added.id = PolicyId("new");
    state.policies.push_back(dice);
    state.policies.push_back(added);
    state.table = *With("raises")->SetMapping({{"player_0", {{PolicyId("main")}}}, {"player_1", {{PolicyId("new")}}}});
    ASSERT_EQ(learner_->Save(state, /*is_best=*/false), absl::OkStatus());
  }
  PolicyTablePtr Saved() {
    const std::string checkpoint = *storage::FindCheckpoint(storage::FileSystem::Posix(), folder_, "latest");
    // All of it, with its sums.
    const auto read = storage::VerifyCheckpoint(storage::FileSystem::Posix(), checkpoint);
    EXPECT_TRUE(read.ok()) << read.status();
    return read->state.table;
  }

  std::string folder_;
  std::unique_ptr<storage::RunFolder> learner_;
};

TEST_F(StoppedRunTest, APolicyThatCannotBeMadeIsUnmappedAndRemoved) {
  learner_ = nullptr;
  const policy::PolicyChange remove = policy::RemovePolicy{PolicyId("new")};
  EXPECT_EQ(ChangeStoppedRun(folder_, remove).status().code(), absl::StatusCode::kFailedPrecondition)
      << "an agent plays it";
  const policy::SetMapping remap = {{{"player_0", {{PolicyId("main")}}}, {"player_1", {{PolicyId("dice")}}}}};
  const auto mapped = ChangeStoppedRun(folder_, remap);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto removed = ChangeStoppedRun(folder_, remove);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(removed->revision, mapped->revision + 1);
  EXPECT_EQ(Saved()->revision(), removed->revision);
  EXPECT_FALSE(Saved()->FindSlot(PolicyId("new")).has_value());
  EXPECT_EQ(Saved()->rules()[1].policies[0].policy, PolicyId("dice"));
  EXPECT_EQ(PolicyTrial::OfResume(run_, registry_, Saved()), nullptr);
}

TEST_F(StoppedRunTest, NothingElseCanBeChangedAndNothingBesideALearner) {
  const int64_t revision = Saved()->revision();
  const policy::SetMapping remap = {{{"*", {{PolicyId("main")}}}}};
  EXPECT_THAT(std::string(ChangeStoppedRun(folder_, remap).status().message()), HasSubstr("another learner"));
  learner_ = nullptr;
  EXPECT_EQ(ChangeStoppedRun(folder_, policy::SetTrainable{}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ChangeStoppedRun(folder_, policy::SetMapping{{{"*", {{PolicyId("nobody")}}}}}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ChangeStoppedRun(folder_, policy::RemovePolicy{PolicyId("nobody")}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Saved()->revision(), revision);
}

}  // namespace
}  // namespace troupe::run
