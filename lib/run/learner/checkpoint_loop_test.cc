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
  absl::Status Save(const learner::LearnerState& /*state*/, bool /*is_best*/) override { return status; }
  absl::Status status;
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
