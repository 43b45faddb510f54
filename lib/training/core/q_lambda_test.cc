// Targets of action values, worked out by hand.

#include "lib/training/core/q_lambda.h"

#include <cmath>
#include <utility>
#include <vector>

#include "lib/training/core/group_units.h"
#include "lib/training/testing/joint_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

std::vector<testing::Matcher<float>> Near(const std::vector<double>& values) {
  std::vector<testing::Matcher<float>> all;
  for (const double value : values) all.push_back(FloatNear(static_cast<float>(value), 1e-5f));
  return all;
}

/// Three segments of two, one and two rows: terminated, cut and truncated.
class QLambdaTest : public testing::Test {
 protected:
  QLambdaTest() {
    batch_.rows = 5;
    batch_.final_rows = 2;
    batch_.segments = {{0, 2, -1, base::EnvId(0), 0, base::AgentSlot(0)},
                       {2, 1, 0, base::EnvId(0), 1, base::AgentSlot(0)},
                       {3, 2, 1, base::EnvId(1), 0, base::AgentSlot(0), /*truncated=*/true}};
    batch_.rewards = rewards_;
  }
  std::vector<float> Targets(const QLambda& options) {
    RowUses uses;
    uses.Take(batch_, true, true);
    return QLambdaTargets(batch_, uses, {greatest_, finals_}, options);
  }

  const std::vector<float> rewards_ = {1, 2, 3, 4, 5};
  const std::vector<float> greatest_ = {10, 20, 30, 40, 50};
  const std::vector<float> finals_ = {7, 8};
  const std::vector<uint8_t> dead_ = {1, 1, 1, 1, 0};
  const std::vector<int32_t> waits_ = {3, 1, 2, 1, 2};
  learner::PolicyTrainBatch batch_;
};

TEST_F(QLambdaTest, LambdaWeighsTheNextTargetAgainstTheGreatestValue) {
  EXPECT_THAT(Targets({.gamma = 0.5, .lambda = 0.25}),
              testing::ElementsAreArray(Near({1 + 0.5 * (0.25 * 2 + 0.75 * 20), 2, 3 + 0.5 * 7,
                                              4 + 0.5 * (0.25 * (5 + 0.5 * 8) + 0.75 * 50), 5 + 0.5 * 8})));
}

TEST_F(QLambdaTest, LambdaZeroIsOneStepAndOneIsTheReturn) {
  EXPECT_THAT(Targets({.gamma = 0.5, .lambda = 0}), ElementsAre(11, 2, 6.5f, 29, 9));
  EXPECT_THAT(Targets({.gamma = 0.5, .lambda = 1}), ElementsAre(2, 2, 6.5f, 8.5f, 9));
}

TEST_F(QLambdaTest, ATimeLimitIsTheEndWhereNothingIsToComeAfterIt) {
  EXPECT_THAT(Targets({.gamma = 0.5, .lambda = 1, .time_limit_bootstrap = false}), ElementsAre(2, 2, 6.5f, 6.5f, 5))
      << "the second segment was cut, which is no end";
}

TEST_F(QLambdaTest, GammaCountsEnvStepsOfWaitsAndLambdaDoesNot) {
  batch_.waits = waits_;
  const QLambda options = {.gamma = 0.5, .lambda = 0.25, .by_env_step = true};
  EXPECT_THAT(Targets(options),
              testing::ElementsAreArray(Near({1 + 0.125 * (0.25 * 2 + 0.75 * 20), 2, 3 + 0.25 * 7,
                                              4 + 0.5 * (0.25 * (5 + 0.25 * 8) + 0.75 * 50), 5 + 0.25 * 8})));
}

TEST_F(QLambdaTest, ADeadRowHasNoValue) {
  batch_.agent_mask = dead_;
  EXPECT_THAT(Targets({.gamma = 0.5, .lambda = 0.25}).at(3), 4) << "its agent is dead at what follows";
}

/// Q of a chain: states 0 to 3, where action 1 goes on (state 3: reward 1 and the end) and action 0 stays for -0.1. The
/// behaviour is scripted: action 1 with probability 3/4, whatever the values are.
TEST(QLambdaExactTest, TabularTargetsReachTheFixedPointOfTheMixedOperator) {
  constexpr int kStates = 4;
  constexpr double kGamma = 0.9, kGoes = 0.75;
  const auto reward = [](int s, int a) { return a == 0 ? -0.1 : s == kStates - 1 ? 1.0 : 0.0; };
  for (const double lambda : {0.0, 0.6}) {
    // G(s, a) = r + gamma (lambda sum_b pi(b) G(s', b) + (1 - lambda) max_b G(s', b)), by iteration.
    double fixed[kStates][2] = {};
    for (int sweep = 0; sweep < 1000; ++sweep) {
      for (int s = 0; s < kStates; ++s) {
        for (int a = 0; a < 2; ++a) {
          const int next = s + a;
          double ahead = 0;
          if (next < kStates) {
            const double* const q = fixed[next];
            ahead = lambda * ((1 - kGoes) * q[0] + kGoes * q[1]) + (1 - lambda) * std::max(q[0], q[1]);
          }
          fixed[s][a] = reward(s, a) + kGamma * ahead;
        }
      }
    }
    // The same by means of targets of sampled episodes, many at once, cut after 40 decisions.
    double q[kStates][2] = {};
    base::PhiloxSequence random(base::PhiloxKey::Make(1, base::RandomStream::kTest), {});
    for (int update = 0; update < 60; ++update) {
      learner::PolicyTrainBatch batch;
      std::vector<float> rewards, greatest, finals;
      std::vector<std::pair<int, int>> visits;
      for (int episode = 0; episode < 2000; ++episode) {
        learner::TrainSegment segment{batch.rows,        0, -1, base::EnvId(static_cast<uint32_t>(episode)), 0,
                                      base::AgentSlot(0)};
        int s = 0;
        while (s < kStates && segment.rows < 40) {
          const int a = random.Uniform() < kGoes ? 1 : 0;
          visits.emplace_back(s, a);
          rewards.push_back(static_cast<float>(reward(s, a)));
          greatest.push_back(static_cast<float>(std::max(q[s][0], q[s][1])));
          s += a;
          ++segment.rows;
        }
        batch.rows += segment.rows;
        if (s < kStates) {
          segment.final_row = batch.final_rows++;
          finals.push_back(static_cast<float>(std::max(q[s][0], q[s][1])));
        }
        batch.segments.push_back(segment);
      }
      batch.rewards = rewards;
      RowUses uses;
      uses.Take(batch, true, true);
      const std::vector<float> targets =
          QLambdaTargets(batch, uses, {greatest, finals}, {.gamma = kGamma, .lambda = lambda});
      double sum[kStates][2] = {}, count[kStates][2] = {};
      for (size_t row = 0; row < visits.size(); ++row) {
        sum[visits[row].first][visits[row].second] += targets[row];
        ++count[visits[row].first][visits[row].second];
      }
      for (int s = 0; s < kStates; ++s) {
        for (int a = 0; a < 2; ++a) q[s][a] = sum[s][a] / count[s][a];
      }
    }
    for (int s = 0; s < kStates; ++s) {
      for (int a = 0; a < 2; ++a) EXPECT_NEAR(q[s][a], fixed[s][a], lambda == 0 ? 1e-5 : 0.01) << lambda << s << a;
    }
    // At 0 the fixed point is Q*: on always.
    const double best = kGamma * kGamma * kGamma;
    EXPECT_TRUE(lambda != 0 || std::abs(q[0][1] - best) < 1e-5) << q[0][1];
  }
}

/// Targets of the joint steps of one policy's agents.
std::vector<float> Team(const JointBatch& joint, const std::vector<float>& greatest, const std::vector<float>& finals,
                        const QLambda& options) {
  RowUses uses;
  uses.Take(joint.policy(), true, true);
  const std::vector<TeamMember> members = {{joint.policy(), uses, {greatest, finals}}};
  return TeamQLambdaTargets(joint.joint(), members, options);
}

TEST(TeamQLambdaTest, AgentsThatActTogetherAreOneAgentWithTheirSums) {
  // Two agents for three steps, cut. Rows: agent 0's three, then agent 1's.
  JointBatch joint(
      {{.agent = 0, .steps = {0, 1, 2}, .final_step = 3}, {.agent = 1, .steps = {0, 1, 2}, .final_step = 3}},
      {1, 2, 3, 10, 20, 30});
  const std::vector<float> targets = Team(joint, {1, 2, 3, 4, 5, 6}, {7, 8}, {.gamma = 0.5, .lambda = 0.25});
  const double g2 = 33 + 0.5 * 15, g1 = 22 + 0.5 * (0.25 * g2 + 0.75 * 9), g0 = 11 + 0.5 * (0.25 * g1 + 0.75 * 7);
  EXPECT_THAT(targets, testing::ElementsAreArray(Near({g0, g1, g2, 0}))) << "nobody acts at the last";
}

TEST(TeamQLambdaTest, OneThatTerminatesHasNoPartFromThenOn) {
  JointBatch joint({{.agent = 0, .steps = {0, 1, 2}, .final_step = 3}, {.agent = 1, .steps = {0}}}, {1, 2, 3, 10});
  const std::vector<float> targets = Team(joint, {1, 2, 3, 4}, {7}, {.gamma = 0.5, .lambda = 0.25});
  const double g2 = 3 + 0.5 * 7, g1 = 2 + 0.5 * (0.25 * g2 + 0.75 * 3), g0 = 11 + 0.5 * (0.25 * g1 + 0.75 * 2);
  EXPECT_THAT(targets, testing::ElementsAreArray(Near({g0, g1, g2, 0})));
}

TEST(TeamQLambdaTest, OneWhoseSegmentEndsWithAValueHasThatWhateverLambdaIs) {
  for (const bool truncated : {false, true}) {
    JointBatch joint(
        {{.agent = 0, .steps = {0, 1}}, {.agent = 1, .steps = {0}, .final_step = 1, .truncated = truncated}},
        {1, 2, 10});
    QLambda options = {.gamma = 0.5, .lambda = 0.25};
    const auto expected = [](double final_value) {
      return testing::ElementsAreArray(Near({11 + 0.5 * (0.25 * 2 + 0.75 * 2 + final_value), 2}));
    };
    EXPECT_THAT(Team(joint, {1, 2, 3}, {8}, options), expected(8));
    options.time_limit_bootstrap = false;
    EXPECT_THAT(Team(joint, {1, 2, 3}, {8}, options), expected(truncated ? 0 : 8));
  }
}

TEST(TeamQLambdaTest, OneThatJoinsHasAPartFromThenOn) {
  JointBatch joint({{.agent = 0, .steps = {0, 1}}, {.agent = 1, .steps = {1}}}, {1, 2, 10});
  EXPECT_THAT(Team(joint, {1, 2, 3}, {}, {.gamma = 0.5, .lambda = 0.25}),
              testing::ElementsAreArray(Near({1 + 0.5 * (0.25 * 12 + 0.75 * 5), 12})));
}

TEST(TeamQLambdaTest, OneThatWaitsHasNoPartMeanwhile) {
  // Agent 1 acts at 0 and 3, agent 0 at 0, 1 and 3; at 2 nobody does. All are over after 3.
  JointBatch joint({{.agent = 0, .steps = {0, 1, 3}}, {.agent = 1, .steps = {0, 3}}}, {1, 2, 3, 10, 20});
  const std::vector<float> greatest = {1, 2, 3, 4, 5};
  const auto expected = [](double gamma_wait) {
    const double g1 = 2 + gamma_wait * (0.25 * 23 + 0.75 * 8), g0 = 11 + 0.5 * (0.25 * g1 + 0.75 * 2);
    return testing::ElementsAreArray(Near({g0, g1, 23}));
  };
  EXPECT_THAT(Team(joint, greatest, {}, {.gamma = 0.5, .lambda = 0.25}), expected(0.5));
  EXPECT_THAT(Team(joint, greatest, {}, {.gamma = 0.5, .lambda = 0.25, .by_env_step = true}), expected(0.25));
}

TEST(TeamQLambdaTest, AStepWhereAgentsEndAndNobodyActsIsWorthThemAndWhatFollows) {
  // Agent 1's segment is cut at 1; agent 0 waits from 0 to 2.
  JointBatch joint({{.agent = 0, .steps = {0, 2}}, {.agent = 1, .steps = {0}, .final_step = 1}}, {1, 2, 10});
  const double ahead = 0.25 * 2 + 0.75 * 2;
  EXPECT_THAT(Team(joint, {1, 2, 3}, {8}, {.gamma = 0.5, .lambda = 0.25}),
              testing::ElementsAreArray(Near({11 + 0.5 * (8 + ahead), 0, 2})));
  EXPECT_THAT(Team(joint, {1, 2, 3}, {8}, {.gamma = 0.5, .lambda = 0.25, .by_env_step = true}),
              testing::ElementsAreArray(Near({11 + 0.5 * (8 + 0.5 * ahead), 0, 2})));
}

TEST(TeamQLambdaTest, ASegmentThatGoesOnWithinTheBatchCountsOnce) {
  JointBatch joint({{.agent = 0, .steps = {0}, .final_step = 1}, {.agent = 0, .steps = {1}}}, {1, 2});
  EXPECT_THAT(Team(joint, {1, 3}, {8}, {.gamma = 0.5, .lambda = 0}), ElementsAre(1 + 0.5f * 3, 2));
}

TEST(TeamQLambdaTest, DeadAgentsAndStrangersHaveNoPart) {
  JointBatch joint({{.agent = 0, .steps = {0, 1}, .final_step = 2}, {.agent = 1, .steps = {0, 1}, .final_step = 2}},
                   {1, 2, 10, 20});
  joint.SetMask({1, 1, 1, 0});
  EXPECT_THAT(Team(joint, {1, 2, 3, 4}, {7, 8}, {.gamma = 0.5, .lambda = 0}),
              ElementsAre(11 + 0.5f * 2, 2 + 0.5f * 7, 0))
      << "the final row is a dead agent's where its last row is";
  EXPECT_THAT(TeamQLambdaTargets(joint.joint(), {}, {}), ElementsAre(0, 0, 0));
}

/// Rows of each unit.
std::vector<std::vector<int32_t>> UnitsOf(const JointBatch& joint, bool joins) {
  RowUses uses;
  uses.Take(joint.policy(), true, true);
  GroupUnits units;
  units.Take(std::vector<MemberRows>{{&joint.policy(), &uses}}, joins);
  std::vector<std::vector<int32_t>> rows;
  for (int64_t unit = 0; unit < units.size(); ++unit) {
    rows.emplace_back();
    for (const GroupUnits::Piece& piece : units.PiecesOf(unit)) rows.back().push_back(piece.at);
  }
  return rows;
}

TEST(GroupUnitsTest, RowsStandAloneOrByJointStep) {
  JointBatch joint({{.agent = 0, .steps = {0, 1, 2}}, {.agent = 1, .steps = {1, 2}}}, {1, 2, 3, 4, 5});
  joint.SetMask({1, 1, 1, 1, 0});
  EXPECT_THAT(UnitsOf(joint, false), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(UnitsOf(joint, true), ElementsAre(ElementsAre(0), ElementsAre(1, 3), ElementsAre(2)));
}

TEST(GroupUnitsTest, SequencesThatShareAJointStepStayTogether) {
  // Agent 0 in sequences of steps 0-1, 2-3 and 4-5; agent 1 joins at 3: one that overlaps two of them.
  JointBatch joint({{.agent = 0, .steps = {0, 1, 2, 3, 4, 5}}, {.agent = 1, .steps = {3, 4}}}, std::vector<float>(8));
  joint.SetSequences({{0, 2, 0}, {2, 2, 2}, {4, 2, 4}, {6, 2, 0}});
  EXPECT_THAT(UnitsOf(joint, false), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(UnitsOf(joint, true), ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3)));
  joint.SetMask({0, 0, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(UnitsOf(joint, true), ElementsAre(ElementsAre(1, 2, 3))) << "a sequence without a row that counts";
}

TEST(GroupUnitsTest, MinibatchesAreOfTheRowsThatTheLargestPolicyHas) {
  JointBatch joint({{.agent = 0, .steps = {0, 1, 2, 3, 4}}, {.agent = 1, .steps = {0, 1, 2, 3, 4}}},
                   std::vector<float>(10));
  RowUses uses;
  uses.Take(joint.policy(), true, true);
  GroupUnits units;
  const auto ends = [&](bool joins, int64_t minibatch) {
    units.Take(std::vector<MemberRows>{{&joint.policy(), &uses}}, joins);
    std::vector<int32_t> order(static_cast<size_t>(units.size()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::vector<int64_t> all;
    for (const GroupUnits::Range& range : units.Minibatches(order, minibatch)) all.push_back(range.end);
    return all;
  };
  EXPECT_THAT(ends(false, 4), ElementsAre(4, 8, 10));
  EXPECT_THAT(ends(true, 4), ElementsAre(2, 4, 5));
  EXPECT_THAT(ends(true, 3), ElementsAre(2, 3, 5)) << "multiples of it, counted from the epoch's beginning";
  EXPECT_EQ(units.width(), 2);
}

}  // namespace
}  // namespace troupe::training
