#include "lib/run/checkpoint_engine.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/serving/testing/query_builder.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

namespace fs = std::filesystem;

/// A run folder with checkpoints of one small policy, whose version is a hundredth of the env steps.
class CheckpointEngineTest : public testing::Test {
 protected:
  CheckpointEngineTest() { std::ofstream(scratch_.path() + "/config.yaml") << "seed: 1\n"; }
  std::string Folder(int64_t env_steps) const { return absl::StrCat(scratch_.path(), "/checkpoints/", env_steps); }
  void Link(const std::string& name, int64_t env_steps) const {
    EXPECT_EQ(storage::FileSystem::Posix().ReplaceLink(absl::StrCat(env_steps),
                                                       absl::StrCat(scratch_.path(), "/checkpoints/", name)),
              absl::OkStatus());
  }
  /// The newest.
  void Write(int64_t env_steps) const { Write(env_steps, spec_); }
  void Write(int64_t env_steps, const policy::PolicySpec& spec) const {
    fs::create_directories(Folder(env_steps));
    learner::LearnerState state = storage::StateForTesting(spec, env_steps);
    state.table = *policy::PolicyTable::Make({spec}, {true}, {{"*", {{spec.id, 1.0}}}}, {"agent"});
    EXPECT_EQ(storage::WriteCheckpointFiles(storage::FileSystem::Posix(), Folder(env_steps), state, {spec},
                                            {42, "seed: 1\n", false}),
              absl::OkStatus());
    Link("latest", env_steps);
  }
  /// As a bad disk would.
  void Damage(int64_t env_steps, const char* file = "policies.safetensors") const {
    const std::string path = absl::StrCat(Folder(env_steps), "/", file);
    std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(-1, std::ios::end);
    stream.put('\x7f');
  }
  void Open(std::map<std::string, std::string> labels = {}) {
    AskedCheckpoint asked;
    asked.run_folder = scratch_.path();
    asked.labels = std::move(labels);
    auto opened = CheckpointEngine::Open(asked);
    ASSERT_TRUE(opened.ok()) << opened.status();
    engine_ = *std::move(opened);
  }
  /// Of the weights that answer; -1: an error.
  int64_t Served(const std::string& version = "") const {
    serving::OwnedRows rows = serving::MakeRows(spec_, 1);
    rows.version = version;
    const auto answer = engine_->engine()->Compute(serving::Ask({&rows}, true));
    return answer.ok() ? (*answer)[0].version.n : -1;
  }
  absl::StatusCode RefreshCode() const { return engine_->Refresh().status().code(); }

  const storage::ScratchDirectory scratch_;
  const policy::PolicySpec spec_ = policy::SmallSpecForTesting();
  std::unique_ptr<CheckpointEngine> engine_;
};

TEST_F(CheckpointEngineTest, NewerCheckpointsAreTaken) {
  Write(400);
  Open();
  EXPECT_EQ(Served(), 4);
  EXPECT_FALSE(*engine_->Refresh());
  Write(500);
  EXPECT_EQ(Served(), 4) << "not before somebody looks";
  EXPECT_TRUE(*engine_->Refresh());
  EXPECT_EQ(Served(), 5);
  EXPECT_EQ(engine_->checkpoint(), Folder(500));
}

TEST_F(CheckpointEngineTest, WhatWasIsServedOnWhereANewerOneIsDamagedOrGone) {
  Write(400);
  Open();
  const auto expect_refused = [this](absl::StatusCode code) {
    for (int look = 0; look < 2; ++look) {
      EXPECT_EQ(RefreshCode(), code);
      EXPECT_EQ(Served(), 4);
      EXPECT_EQ(engine_->checkpoint(), Folder(400));
    }
  };
  Write(500);
  Damage(500);
  expect_refused(absl::StatusCode::kDataLoss);
  Write(600);
  Damage(600, "manifest.json");
  expect_refused(absl::StatusCode::kDataLoss);
  Write(700);
  fs::remove(Folder(700) + "/policies.safetensors");
  expect_refused(absl::StatusCode::kDataLoss);
  fs::remove_all(scratch_.path() + "/checkpoints");
  expect_refused(absl::StatusCode::kNotFound);
  Write(800);
  EXPECT_TRUE(*engine_->Refresh());
  EXPECT_EQ(Served(), 8);
}

TEST_F(CheckpointEngineTest, VersionsDoNotGoBack) {
  Write(400);
  Write(500);
  Open();
  Link("latest", 400);
  EXPECT_EQ(RefreshCode(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Served(), 5);
}

TEST_F(CheckpointEngineTest, ALabelThatIsLostKeepsNothingElseFromBeingServed) {
  Write(400);
  Link("best", 400);
  Open({{"best", "best"}});
  EXPECT_EQ(Served("best"), 4);
  Write(500);
  Damage(500, "manifest.json");
  Link("best", 500);
  Write(600);
  EXPECT_EQ(RefreshCode(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Served(), 6) << "the newest is taken all the same";
  EXPECT_EQ(Served("best"), 4) << "and the label stands where it stood";
  Write(700);
  Damage(700);
  Link("best", 600);
  EXPECT_EQ(RefreshCode(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Served(), 6);
  EXPECT_EQ(Served("best"), 6) << "nor does the newest keep the label";
  Link("latest", 600);
  fs::remove(scratch_.path() + "/checkpoints/best");
  EXPECT_TRUE(*engine_->Refresh());
  EXPECT_EQ(Served("best"), -1) << "the run has none any more";
}

TEST_F(CheckpointEngineTest, ALabelHasNoWeightsOfAnotherPolicyOfThatName) {
  policy::PolicySpec other = spec_;
  other.actor.activation =
      spec_.actor.activation == policy::Activation::kRelu ? policy::Activation::kTanh : policy::Activation::kRelu;
  Write(100, other);
  Link("best", 100);
  Write(200);
  Open({{"best", "best"}});
  EXPECT_EQ(Served(), 2);
  EXPECT_EQ(Served("best"), -1);
  EXPECT_EQ(engine_->engine()->ListPolicies().policies[0].versions.size(), 0u);
}

TEST_F(CheckpointEngineTest, ADamagedOneIsNotOpened) {
  Write(400);
  Damage(400);
  AskedCheckpoint asked;
  asked.run_folder = scratch_.path();
  EXPECT_EQ(CheckpointEngine::Open(asked).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace troupe::run
