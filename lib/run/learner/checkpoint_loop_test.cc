#include "lib/run/learner/checkpoint_loop.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::run {
namespace {

/// Fails as a disk does, with a path in its message.
class FakeStore final : public learner::CheckpointStore {
 public:
  absl::Status Save(const learner::LearnerState& state, bool /*is_best*/) override {
    saved.push_back(state.env_steps);
    return status;
  }
  absl::Status SaveTo(const learner::LearnerState& /*state*/, const std::string& path) override {
    return path == "/bad" ? absl::AlreadyExistsError("not a checkpoint") : absl::OkStatus();
  }
  absl::StatusOr<int64_t> Prune(int keep) override { return 10 - keep; }
  absl::Status status;
  std::vector<int64_t> saved;
};

class CheckpointLoopTest : public testing::Test {
 protected:
  void Save(int64_t env_steps) {
    learner::LearnerState state;
    state.env_steps = env_steps;
    loop_.Save(std::move(state), false);
    ASSERT_TRUE(loop_.Step());
  }
  FakeStore store_;
  Degradations degradations_;
  CheckpointLoop loop_{&store_, &degradations_};
};

TEST_F(CheckpointLoopTest, CheckpointsThatCannotBeWrittenDegradeTheRunUntilTheyCan) {
  store_.status = absl::ResourceExhaustedError("write 400/policies.safetensors: No space left on device");
  Save(400);
  EXPECT_EQ(degradations_.List(),
            std::vector<std::string>{"checkpoints cannot be written: no room on the disk, or a limit "
                                     "on the size of files; this process has written none"});
  store_.status = absl::OkStatus();
  Save(800);
  EXPECT_TRUE(degradations_.List().empty());
  store_.status = absl::NotFoundError("open run/learner_epoch: No such file or directory");
  Save(1200);
  EXPECT_EQ(degradations_.List(), std::vector<std::string>{"checkpoints cannot be written: the run folder is gone; the "
                                                           "newest of this process is of 800 env steps"});
}

TEST_F(CheckpointLoopTest, AnOlderBestTakesNoNewerStatesPlace) {
  learner::LearnerState newer, older;
  newer.env_steps = 800;
  older.env_steps = 400;
  loop_.Save(std::move(newer), false);
  loop_.Save(std::move(older), true);
  loop_.Stop();
  loop_.Run();
  EXPECT_EQ(store_.saved, std::vector<int64_t>({800, 400}));
  EXPECT_EQ(loop_.last_saved_env_steps(), 800);
}

TEST_F(CheckpointLoopTest, WhatIsAskedForBesidesDegradesNothingAndWaitsForTheRunsOwn) {
  std::vector<absl::StatusOr<int64_t>> done;
  const auto note = [&](absl::StatusOr<int64_t> result) { done.push_back(std::move(result)); };
  const auto state = [](int64_t env_steps) {
    learner::LearnerState made;
    made.env_steps = env_steps;
    return made;
  };
  loop_.SaveTo(state(100), "/good", note);
  loop_.SaveTo(state(100), "/bad", note);
  loop_.Prune(3, note);
  loop_.Prune(4, note);
  loop_.Prune(5, note);
  ASSERT_EQ(done.size(), 1u) << "four wait";
  EXPECT_TRUE(absl::IsResourceExhausted(done[0].status()));
  loop_.Save(state(200), false);
  ASSERT_TRUE(loop_.Step());
  EXPECT_EQ(loop_.last_saved_env_steps(), 200);
  EXPECT_EQ(done.size(), 1u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(loop_.Step());
  ASSERT_EQ(done.size(), 5u);
  EXPECT_EQ(*done[1], 100);
  EXPECT_TRUE(absl::IsAlreadyExists(done[2].status()));
  EXPECT_EQ(*done[3], 7);
  EXPECT_EQ(*done[4], 6);
  EXPECT_TRUE(degradations_.List().empty());
  EXPECT_EQ(loop_.last_saved_env_steps(), 200) << "of the run";
}

TEST_F(CheckpointLoopTest, WordsNameNoPath) {
  for (int code = 1; code <= 16; ++code) {
    store_.status = absl::Status(static_cast<absl::StatusCode>(code), "write /home/me/400/policies.safetensors: bad");
    Save(code);
    ASSERT_EQ(degradations_.List().size(), 1u);
    EXPECT_EQ(degradations_.List()[0].find("safetensors"), std::string::npos) << degradations_.List()[0];
  }
}

}  // namespace
}  // namespace troupe::run
