#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/training/core/advantages.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr double kGamma = 0.5;

// Segment one terminates, segment two was cut and is worth 8 after its last row.
const std::vector<learner::TrainSegment> kSegments = {{.first_row = 0, .rows = 3, .final_row = -1},
                                                      {.first_row = 3, .rows = 2, .final_row = 0}};
const std::vector<float> kRewards = {1, 2, 3, 1, 0};
const std::vector<float> kValues = {2, 4, 6, 2, 4};
const std::vector<float> kFinalValues = {8};

TEST(VtraceTest, ByHand) {
  // rho-bar 1.5, pg-rho-bar 1, lambda 1, gamma 1/2.
  // Row 2: delta = 3 - 6 = -3, ratio 2.       e = 1.5 x -3 = -4.5,                   A = 1 x -3
  // Row 1: delta = 2 + 3 - 4 = 1, ratio 0.5.  e = 0.5 x 1 + 0.5 x 0.5 x -4.5 = -0.625,  A = 0.5 (1 - 2.25) = -0.625
  // Row 0: delta = 1 + 2 - 2 = 1, ratio 4.    e = 1.5 x 1 + 1 x 0.5 x -0.625 = 1.1875,  A = 1 - 0.3125 = 0.6875
  // Row 4: delta = 0 + 4 - 4 = 0, ratio 1.    e = 0,  A = 0
  // Row 3: delta = 1 + 2 - 2 = 1, ratio 0.25. e = 0.25,  A = 0.25
  const std::vector<float> ratios = {4, 0.5f, 2, 0.25f, 1};
  const Advantages result = ComputeVtrace(kSegments, kRewards, kValues, kFinalValues, ratios, kGamma, 1, {1.5, 1});
  EXPECT_EQ(result.advantages, (std::vector<float>{0.6875f, -0.625f, -3, 0.25f, 0}));
  EXPECT_EQ(result.returns, (std::vector<float>{3.1875f, 3.375f, 1.5f, 2.25f, 4}));
}

TEST(VtraceTest, RatiosOfOneGiveTheBitsOfGae) {
  std::vector<learner::TrainSegment> segments = kSegments;
  segments[1].truncated = true;
  const std::vector<float> rewards = {0.1f, -0.7f, 1e-3f, 3.3f, 0.9f};
  const std::vector<float> values = {0.31f, 0.7f, -1.1f, 0.03f, 17.7f};
  const std::vector<int32_t> waits = {1, 3, 1, 2, 1};
  for (const double lambda : {1.0, 0.95, 0.0}) {
    for (const bool bootstrap : {true, false}) {
      for (const absl::Span<const int32_t> by : {absl::Span<const int32_t>(), absl::MakeConstSpan(waits)}) {
        const Advantages gae = ComputeGae(segments, rewards, values, {0.77f}, 0.99, lambda, bootstrap, by);
        const Advantages vtrace = ComputeVtrace(segments, rewards, values, {0.77f}, std::vector<float>(5, 1.0f), 0.99,
                                                lambda, {}, bootstrap, by);
        EXPECT_EQ(vtrace.returns, gae.returns);
        EXPECT_EQ(vtrace.advantages, gae.advantages);
      }
    }
  }
}

TEST(VtraceTest, AnActionThatWouldNeverBeTakenEndsTheTrace) {
  const std::vector<float> ratios = {1, 0, 1, 1, 1};
  const Advantages result = ComputeVtrace(kSegments, kRewards, kValues, kFinalValues, ratios, kGamma, 1, {});
  EXPECT_EQ(result.returns[1], kValues[1]) << "nothing is learned from it";
  EXPECT_EQ(result.advantages[1], 0);
  EXPECT_EQ(result.returns[0], 3) << "1 + 2, by the value that is there";
}

// A process of three states, of which the last ends. Action 0 goes on to the next state, action 1 goes back to the
// first (from the first: stays). A reward for each.
struct Toy {
  static constexpr int kStates = 3;
  double mu[kStates] = {0.3, 0.6, 0.5};  ///< probability of action 0 of who acted
  double pi[kStates] = {0.8, 0.2, 0.9};  ///< of who learns
  double reward[kStates][2] = {{1, -0.5}, {0.25, 2}, {4, -1}};
  double gamma = 0.9;

  static double Of(const double* probability, int state, int action) {
    return action == 0 ? probability[state] : 1 - probability[state];
  }
  /// -1: the end.
  static int Next(int state, int action) { return action == 1 ? 0 : state + 1 < kStates ? state + 1 : -1; }
  double Ratio(int state, int action) const { return Of(pi, state, action) / Of(mu, state, action); }

  /// The value of the policy that takes action 0 with this probability, by iteration.
  std::vector<double> ValueOf(const double* probability) const {
    std::vector<double> value(kStates);
    for (int i = 0; i < 2000; ++i) {
      std::vector<double> better(kStates);
      for (int s = 0; s < kStates; ++s) {
        for (int a = 0; a < 2; ++a) {
          const int next = Next(s, a);
          better[s] += Of(probability, s, a) * (reward[s][a] + (next < 0 ? 0 : gamma * value[next]));
        }
      }
      value = better;
    }
    return value;
  }
  /// pi of rho-bar (eq. 3): proportional to min(rho-bar mu, pi).
  std::vector<double> Bounded(double rho) const {
    std::vector<double> bounded;
    for (int s = 0; s < kStates; ++s) {
      const double go = std::min(rho * mu[s], pi[s]);
      const double back = std::min(rho * (1 - mu[s]), 1 - pi[s]);
      bounded.push_back(go / (go + back));
    }
    return bounded;
  }

  /// The fixed point of V-trace: all paths of three decisions, by how likely mu takes them.
  std::vector<double> LearnedValue(double rho, double lambda) const {
    std::vector<double> value(kStates);
    for (int i = 0; i < 600; ++i) {
      std::vector<double> learned(kStates);
      for (int first = 0; first < kStates; ++first) {
        for (int path = 0; path < 8; ++path) learned[first] += OfPath(first, path, rho, lambda, value);
      }
      value = learned;
    }
    return value;
  }

 private:
  double OfPath(int first, int path, double rho, double lambda, const std::vector<double>& value) const {
    std::vector<float> rewards, values, ratios, finals;
    double probability = 1;
    int state = first;
    int decisions = 0;
    for (; decisions < 3 && state >= 0; ++decisions) {
      const int action = (path >> decisions) & 1;
      probability *= Of(mu, state, action);
      rewards.push_back(static_cast<float>(reward[state][action]));
      values.push_back(static_cast<float>(value[static_cast<size_t>(state)]));
      ratios.push_back(static_cast<float>(Ratio(state, action)));
      state = Next(state, action);
    }
    // Paths that end early are met once for each decision that is not made any more.
    if (decisions < 3 && (path >> decisions) != 0) return 0;
    learner::TrainSegment segment{.first_row = 0, .rows = decisions, .final_row = -1};
    if (state >= 0) {
      segment.final_row = 0;
      finals.push_back(static_cast<float>(value[static_cast<size_t>(state)]));
    }
    return probability * ComputeVtrace({segment}, rewards, values, finals, ratios, gamma, lambda, {rho, 1}).returns[0];
  }
};

TEST(VtraceTest, LearnsTheValueOfThePolicyThatRhoBarBounds) {
  const Toy toy;
  const std::vector<double> of_pi = toy.ValueOf(toy.pi);
  const std::vector<double> bounded = toy.ValueOf(toy.Bounded(1).data());
  ASSERT_GT(std::abs(of_pi[0] - bounded[0]), 0.2) << "they are told apart";
  for (const double lambda : {1.0, 0.7, 0.0}) {
    const std::vector<double> learned = toy.LearnedValue(1, lambda);
    for (int s = 0; s < Toy::kStates; ++s) EXPECT_NEAR(learned[s], bounded[s], 1e-4) << lambda << ", state " << s;
  }
}

TEST(VtraceTest, ALargeRhoBarLearnsTheValueOfThePolicy) {
  const Toy toy;
  const std::vector<double> of_pi = toy.ValueOf(toy.pi);
  for (const double lambda : {1.0, 0.7, 0.0}) {
    const std::vector<double> learned = toy.LearnedValue(1e6, lambda);
    for (int s = 0; s < Toy::kStates; ++s) EXPECT_NEAR(learned[s], of_pi[s], 1e-4) << lambda << ", state " << s;
  }
}

}  // namespace
}  // namespace troupe::training
