#include "lib/training/torch/captured_steps.h"

#include <functional>
#include <vector>

#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_device.h"
#include "lib/training/torch/torch_minibatches.h"
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using torch::Tensor;

/// Steps that add what they read to a sum on the device.
class CapturedStepsTest : public testing::Test {
 protected:
  CapturedStepsTest() : device_(ToTorch(TestDevice())), steps_(device_) {
    if (device_.is_cuda()) stream_.reset_stream(UpdateStream(device_));
    sum_ = torch::zeros({}, Options(torch::kInt64));
  }

  torch::TensorOptions Options(torch::ScalarType type) const {
    return torch::TensorOptions().dtype(type).device(device_);
  }
  Minibatches Rows(std::vector<int64_t> rows) const {
    Minibatches minibatches;
    minibatches.actor.rows = torch::tensor(rows, torch::kInt64).to(device_);
    minibatches.actor.run = minibatches.actor.rows;
    minibatches.critic = minibatches.actor;
    return minibatches;
  }
  void Run(const Minibatches& minibatches) {
    RunCaptured(minibatches, settings_, &steps_, [this](const Minibatches& rows) {
      ++handed_over_;
      sum_.add_(rows.actor.rows.sum() + 100 * rows.critic.run.sum());
    });
  }
  int64_t Sum() const { return sum_.item<int64_t>(); }

  const torch::Device device_;
  c10::OptionalStreamGuard stream_;
  CapturedSteps<MinibatchKey> steps_;
  StepSettings settings_;
  Tensor sum_;
  int handed_over_ = 0;  ///< how often the work was asked for; on CUDA a replay is no such time
};

TEST_F(CapturedStepsTest, EveryStepReadsItsOwnMinibatch) {
  for (const int64_t first : {1, 2, 3, 4}) {
    const int64_t before = Sum();
    Run(Rows({first, 10 * first}));
    EXPECT_EQ(Sum() - before, 101 * 11 * first);
  }
  EXPECT_EQ(steps_.replays_for_testing(), 3);
  EXPECT_EQ(handed_over_, device_.is_cuda() ? 2 : 4);
}

TEST_F(CapturedStepsTest, AMinibatchOfAnotherShapeIsAnotherStep) {
  Run(Rows({1, 2, 3}));
  Run(Rows({1, 2}));
  EXPECT_EQ(steps_.replays_for_testing(), 0);
  Run(Rows({4, 5, 6}));
  Run(Rows({7, 8}));
  EXPECT_EQ(steps_.replays_for_testing(), 2);
  // The same sizes, but the critic reads rows of its own.
  Minibatches own = Rows({1, 2});
  own.critic = Rows({3, 4}).actor;
  const int64_t before = Sum();
  Run(own);
  EXPECT_EQ(steps_.replays_for_testing(), 2);
  EXPECT_EQ(Sum() - before, 3 + 100 * 7);
  EXPECT_EQ(Sum(), 101 * (6 + 3 + 15 + 15) + 703);
}

TEST_F(CapturedStepsTest, OtherSettingsAreAnotherStep) {
  const std::vector<ParameterRange> frozen = {{0, 4}};
  const RowLoss loss = {.name = "other"};
  const std::vector<std::function<void(StepSettings*)>> changes = {
      [](StepSettings* settings) { settings->learning_rate = 0.5; },
      [](StepSettings* settings) { settings->critic_learning_rate = 0.5; },
      [](StepSettings* settings) { settings->value_loss_coeff = 0.5; },
      [](StepSettings* settings) { settings->huber_delta = 0.5; },
      [](StepSettings* settings) { settings->entropy_coeff = 0.5; },
      [](StepSettings* settings) { settings->max_grad_norm = 0.5; },
      [](StepSettings* settings) { settings->loss.numbers[1] = 0.5; },
      [&](StepSettings* settings) { settings->loss.loss = &loss; },
      [&](StepSettings* settings) { settings->frozen = frozen; }};
  for (const auto& change : changes) {
    steps_.Release();
    settings_ = {};
    const int64_t before = steps_.replays_for_testing();
    Run(Rows({1}));
    change(&settings_);
    Run(Rows({1}));
    EXPECT_EQ(steps_.replays_for_testing(), before) << &change - changes.data();
    Run(Rows({1}));
    EXPECT_EQ(steps_.replays_for_testing(), before + 1) << &change - changes.data();
  }
}

TEST_F(CapturedStepsTest, KeepsAFewShapes) {
  const auto rows = [&](size_t count) { return Rows(std::vector<int64_t>(count, 1)); };
  for (size_t count = 1; count <= CapturedSteps<MinibatchKey>::kMostShapes + 1; ++count) Run(rows(count));
  Run(rows(1));  // forgotten: the first of its shape again
  EXPECT_EQ(steps_.replays_for_testing(), 0);
  Run(rows(CapturedSteps<MinibatchKey>::kMostShapes + 1));
  EXPECT_EQ(steps_.replays_for_testing(), 1);
  steps_.Release();
  Run(rows(1));
  EXPECT_EQ(steps_.replays_for_testing(), 1);
}

TEST_F(CapturedStepsTest, AShapeThatComesAgainIsNotPushedOut) {
  const auto rows = [&](size_t count) { return Rows(std::vector<int64_t>(count, 1)); };
  constexpr int64_t kOthers = 3 * CapturedSteps<MinibatchKey>::kMostShapes;
  Run(rows(1));
  for (size_t other = 0; other < kOthers; ++other) {
    Run(rows(2 + other));
    Run(rows(1));
  }
  EXPECT_EQ(steps_.replays_for_testing(), kOthers);
}

TEST_F(CapturedStepsTest, SequencesOfTheSameLengthsAreTheSameStep) {
  const auto sequences = [&](const std::vector<int64_t>& batch_sizes) {
    Minibatches minibatches = Rows({1, 2, 3, 4});
    minibatches.actor.sequences = torch::zeros({batch_sizes[0]}, Options(torch::kInt64));
    minibatches.actor.batch_sizes = torch::tensor(batch_sizes, torch::kInt64);
    return minibatches;
  };
  Run(sequences({2, 2}));
  Run(sequences({2, 1, 1}));
  EXPECT_EQ(steps_.replays_for_testing(), 0);
  Run(sequences({2, 2}));
  Run(sequences({2, 1, 1}));
  EXPECT_EQ(steps_.replays_for_testing(), 2);
}

TEST_F(CapturedStepsTest, WorkThatWaitsForTheDeviceIsDoneAsItIs) {
  int64_t seen = 0;
  const auto run = [&](const Minibatches& minibatches) {
    RunCaptured(minibatches, settings_, &steps_,
                [&](const Minibatches& rows) { seen += rows.actor.rows.sum().item<int64_t>(); });
  };
  for (const int64_t row : {1, 2, 3}) run(Rows({row}));
  EXPECT_EQ(seen, 6);
  EXPECT_EQ(steps_.replays_for_testing(), device_.is_cuda() ? 0 : 2);  // the CPU waits for nothing
  Run(Rows({5}));                                                      // the stream is as it was
  EXPECT_EQ(Sum(), 505);
}

}  // namespace
}  // namespace troupe::training
