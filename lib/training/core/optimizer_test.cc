#include "lib/training/core/optimizer.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

/// One parameter with its moments.
struct One {
  std::vector<float> value = {1}, gradient = {0}, m = {0}, v = {0};

  void Step(int64_t step, double learning_rate, const OptimizerOptions& options, float g) {
    gradient[0] = g;
    const ParameterBlock block{"", absl::MakeSpan(value), absl::MakeSpan(gradient), absl::MakeSpan(m),
                               absl::MakeSpan(v)};
    StepBlock(step, learning_rate, options, std::abs(g), block);
  }
};

// Each worked by hand, with learning rate 0.1, from a parameter of 1 and gradients of 2, then -1.

TEST(OptimizerTest, SgdByHand) {
  One one;
  const OptimizerOptions options{.optimizer = OptimizerKind::kSgd};
  one.Step(1, 0.1, options, 2);
  EXPECT_FLOAT_EQ(one.value[0], 0.8f);
  one.Step(2, 0.1, options, -1);
  EXPECT_FLOAT_EQ(one.value[0], 0.9f);
  EXPECT_EQ(one.m[0], 0);
}

TEST(OptimizerTest, SgdWithMomentumAndDecayByHand) {
  One one;
  const OptimizerOptions options{.optimizer = OptimizerKind::kSgd, .weight_decay = 0.5, .momentum = 0.5};
  one.Step(1, 0.1, options, 2);  // g = 2 + 0.5, its momentum
  EXPECT_FLOAT_EQ(one.value[0], 0.75f);
  one.Step(2, 0.1, options, -1);  // g = -1 + 0.375; 1.25 - 0.625
  EXPECT_FLOAT_EQ(one.m[0], 0.625f);
  EXPECT_FLOAT_EQ(one.value[0], 0.6875f);
}

TEST(OptimizerTest, RmspropByHand) {
  One one;
  const OptimizerOptions options{
      .optimizer = OptimizerKind::kRmsprop, .momentum = 0.5, .rmsprop_alpha = 0.75, .rmsprop_epsilon = 1};
  one.Step(1, 0.1, options, 2);  // average 1, 2 / (1 + 1)
  EXPECT_FLOAT_EQ(one.v[0], 1.0f);
  EXPECT_FLOAT_EQ(one.value[0], 0.9f);
  one.Step(2, 0.1, options, -1);  // average 1; -1 / 2 and half of 1
  EXPECT_FLOAT_EQ(one.v[0], 1.0f);
  EXPECT_FLOAT_EQ(one.m[0], 0.0f);
  EXPECT_FLOAT_EQ(one.value[0], 0.9f);
}

TEST(OptimizerTest, AdamsDecayIsInItsGradientAndAdamWsIsNot) {
  One adam, adamw;
  const OptimizerOptions options{.adam_epsilon = 1e-8, .weight_decay = 0.5};
  OptimizerOptions apart = options;
  apart.optimizer = OptimizerKind::kAdamW;
  // The first step of Adam is the learning rate in the gradient's direction.
  adam.Step(1, 0.1, options, -0.25f);  // -0.25 + 0.5
  EXPECT_NEAR(adam.value[0], 0.9, 1e-6);
  EXPECT_NEAR(adam.m[0], 0.025, 1e-7);
  adamw.Step(1, 0.1, apart, -0.25f);  // 0.95 + 0.1
  EXPECT_NEAR(adamw.value[0], 1.05, 1e-6);
  EXPECT_NEAR(adamw.m[0], -0.025, 1e-7);
}

TEST(OptimizerTest, NormsAreClippedEachOrTogether) {
  OptimizerOptions options;
  EXPECT_EQ((NetworkNorms{3, 4}).ToClip(options).actor, 3);
  EXPECT_EQ((NetworkNorms{3, 4}).ToClip(options).critic, 4);
  options.clip_grad_norm_by = ClipGradNormBy::kPolicy;
  EXPECT_EQ((NetworkNorms{3, 4}).ToClip(options).actor, 5);
  EXPECT_EQ((NetworkNorms{3, 4}).ToClip(options).critic, 5);
  EXPECT_DOUBLE_EQ(ClipScale(10, 0), 1);
  EXPECT_DOUBLE_EQ(ClipScale(10, -1), 1);
  EXPECT_DOUBLE_EQ(ClipScale(0.4, 0.5), 1);
  EXPECT_NEAR(ClipScale(10, 0.5), 0.05, 1e-7);
}

TEST(OptimizerTest, SumOfSquaresOfAnyLength) {
  for (size_t size : {0u, 1u, 3u, 4u, 7u, 100u}) {
    const std::vector<float> values(size, 2.0f);
    EXPECT_DOUBLE_EQ(SumOfSquares(values), 4.0 * static_cast<double>(size));
  }
}

TEST(OptimizerTest, PiecesThatAreTrained) {
  const auto pieces = [](std::vector<ParameterRange> frozen, int64_t first, int64_t end) {
    std::vector<std::pair<int64_t, int64_t>> result;
    ForTrained(frozen, first, end, [&](int64_t from, int64_t to) { result.emplace_back(from, to); });
    return result;
  };
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(pieces({}, 0, 64), (Pieces{{0, 64}}));
  EXPECT_EQ(pieces({}, 16, 16), Pieces{});
  EXPECT_EQ(pieces({{16, 32}}, 0, 64), (Pieces{{0, 16}, {32, 64}}));
  EXPECT_EQ(pieces({{0, 16}, {48, 64}}, 0, 64), (Pieces{{16, 48}}));
  EXPECT_EQ(pieces({{16, 48}}, 32, 64), (Pieces{{48, 64}}));
  EXPECT_EQ(pieces({{16, 48}}, 16, 32), Pieces{});
  EXPECT_EQ(pieces({{0, 16}, {80, 96}}, 32, 64), (Pieces{{32, 64}}));
}

TEST(OptimizerOptionsTest, SaysWhatIsWrong) {
  const auto message = [](auto change) {
    OptimizerOptions options;
    change(&options);
    const absl::Status status = CheckOptimizerOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckOptimizerOptions({}).ok());
  EXPECT_TRUE(CheckOptimizerOptions({.optimizer = OptimizerKind::kSgd, .momentum = 0.9}).ok());
  EXPECT_EQ(message([](auto* o) { o->momentum = 0.5; }),
            "algorithm.momentum is 0.5; expected 0 with optimizer adam or adamw, whose moments are adam_beta1 and "
            "adam_beta2");
  EXPECT_EQ(message([](auto* o) { o->weight_decay = -1; }),
            "algorithm.weight_decay is -1; expected a finite number of at least 0");
  EXPECT_EQ(message([](auto* o) { o->rmsprop_alpha = 1; }),
            "algorithm.rmsprop_alpha is 1; expected a number in [0, 1)");
  EXPECT_EQ(message([](auto* o) { o->rmsprop_epsilon = 0; }),
            "algorithm.rmsprop_epsilon is 0; expected a finite number above 0");
  EXPECT_EQ(message([](auto* o) { o->adam_beta2 = 1; }), "algorithm.adam_beta2 is 1; expected a number in [0, 1)");
  EXPECT_EQ(message([](auto* o) { o->max_grad_norm = std::nan(""); }),
            "algorithm.max_grad_norm is nan; expected a number");
}

TEST(OptimizerOptionsTest, WordsAreReadAndWritten) {
  const OptimizerOptions options{
      .optimizer = OptimizerKind::kRmsprop, .momentum = 0.5, .clip_grad_norm_by = ClipGradNormBy::kPolicy};
  policy::AlgorithmSpec spec{.name = "x"};
  WriteOptimizerOptions(options, &spec);
  OptimizerOptions read;
  OptionReader reader(spec);
  ReadOptimizerOptions(&reader, &read);
  EXPECT_TRUE(reader.Finish().ok()) << reader.Finish();
  EXPECT_EQ(read.optimizer, OptimizerKind::kRmsprop);
  EXPECT_EQ(read.momentum, 0.5);
  EXPECT_EQ(read.clip_grad_norm_by, ClipGradNormBy::kPolicy);

  spec.options["optimizer"] = std::string("lion");
  OptionReader again(spec);
  ReadOptimizerOptions(&again, &read);
  EXPECT_EQ(again.Finish().message(),
            "algorithm.optimizer is \"lion\"; expected one of adam, adamw, rmsprop, sgd (algorithm \"x\")");
}

}  // namespace
}  // namespace troupe::training
