// algorithm.discount_by: env_step from the environment to the advantages, against values worked out by hand. Where the
// critic says the exact values, every advantage is 0 and every return is the value.

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "lib/learner/assembler.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/training/core/advantages.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

using rollout::Script;
using rollout::ScriptedCall;
using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;

constexpr double kGamma = 0.9;
constexpr double kForever = 1 / (1 - kGamma);  // of 1 at each env step without an end

/// Agent 0 acts at every env step and earns nothing. Agent 1 acts at every third one and is paid 1 at each.
Script EveryThirdStep(int steps) {
  Script script = {{.observe = {0, 1}}};
  for (int step = 1; step <= steps; ++step) {
    ScriptedCall call = {.observe = {0}, .rewards = {{1, 1.0f}}};
    if (step % 3 == 0) call.observe.push_back(1);
    script.push_back(call);
  }
  return script;
}

/// The learner's batch of the rows of agent 1, which has a policy of its own.
struct Rows {
  std::vector<float> rewards;
  std::vector<int32_t> waits;
  std::vector<learner::TrainSegment> segments;
  int64_t final_rows = 0;

  /// ... where the critic says `values` of its rows and `final_value` of what comes after.
  training::Advantages Gae(const std::vector<float>& values, double final_value, double lambda) const {
    const std::vector<float> finals(static_cast<size_t>(final_rows), static_cast<float>(final_value));
    return training::ComputeGae(segments, rewards, values, finals, kGamma, lambda, true, waits);
  }
};

/// Plays the script on one environment, in grants of so many env steps each, all of which are in one batch.
Rows Play(const Script& script, const std::vector<int32_t>& grants, double reward_discount = kGamma) {
  rollout::RolloutConfig config = rollout::ScriptedConfig(
      {}, [script] { return rollout::MakeScriptedEnv({}, script); }, 2);
  for (policy::PolicySpec& spec : config.policies) spec.reward_discount = reward_discount;
  rollout::Rig rig(config);
  for (const int32_t steps : grants) EXPECT_EQ(rig.Run(rollout::ScriptedGrant(1, steps)), absl::OkStatus());
  learner::Assembler assembler(rollout::ScriptedSchema(config), {.max_policy_lag = 10});
  const learner::Assembly& assembly = assembler.Assemble(rig.sink.fragments, 3);
  Rows rows;
  for (const learner::PolicyTrainBatch& batch : assembly.batch.policies) {
    if (batch.policy != policy::PolicySlot(1)) continue;
    rows.rewards.assign(batch.rewards.begin(), batch.rewards.end());
    rows.waits.assign(batch.waits.begin(), batch.waits.end());
    rows.segments = batch.segments;
    rows.final_rows = batch.final_rows;
  }
  return rows;
}

void ExpectExact(const Rows& rows, const std::vector<float>& values, double final_value) {
  for (const double lambda : {0.0, 0.95, 1.0}) {
    SCOPED_TRACE(lambda);
    const training::Advantages made = rows.Gae(values, final_value, lambda);
    EXPECT_THAT(made.advantages, Each(FloatNear(0, 1e-5)));
    ASSERT_EQ(made.returns.size(), values.size());
    for (size_t row = 0; row < values.size(); ++row) EXPECT_NEAR(made.returns[row], values[row], 1e-5) << row;
  }
}

TEST(DiscountByTest, AnAgentThatWaitsIsPaidByEnvSteps) {
  const Rows rows = Play(EveryThirdStep(9), {9});
  // 1 + 0.9 + 0.81 in each wait.
  EXPECT_THAT(rows.rewards, Each(FloatNear(2.71f, 1e-6)));
  EXPECT_THAT(rows.waits, ElementsAre(3, 3, 3));
  ExpectExact(rows, {kForever, kForever, kForever}, kForever);
}

TEST(DiscountByTest, CutsWithinWaitsChangeNothing) {
  for (const std::vector<int32_t>& grants :
       std::vector<std::vector<int32_t>>{{4, 5}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 7}}) {
    const Rows rows = Play(EveryThirdStep(9), grants);
    EXPECT_THAT(rows.rewards, ElementsAre(FloatNear(2.71f, 1e-6), FloatNear(2.71f, 1e-6), FloatNear(2.71f, 1e-6)));
    EXPECT_THAT(rows.waits, ElementsAre(3, 3, 3));
    ExpectExact(rows, {kForever, kForever, kForever}, kForever);
  }
}

TEST(DiscountByTest, TheEndComesWithinAWait) {
  Script script = EveryThirdStep(7);
  script.back().terminate_all = true;
  // Decisions at 0, 3 and 6; the episode has 7 env steps.
  const auto worth = [](int steps) { return static_cast<float>((1 - std::pow(kGamma, steps)) * kForever); };
  const Rows rows = Play(script, {7});
  EXPECT_THAT(rows.waits, ElementsAre(3, 3, 1));
  ExpectExact(rows, {worth(7), worth(4), worth(1)}, 1e6);
}

TEST(DiscountByTest, ATruncationIsBootstrappedByTheEnvStepsUntilIt) {
  Script script = EveryThirdStep(8);
  script.back().truncate_all = true;
  const Rows without_a_last_look = Play(script, {8});
  EXPECT_THAT(without_a_last_look.waits, ElementsAre(3, 3, 2));
  ExpectExact(without_a_last_look, {kForever, kForever, kForever}, kForever);
  script.back().observe.push_back(1);
  ExpectExact(Play(script, {8}), {kForever, kForever, kForever}, kForever);
  // It alone is truncated.
  script.back().truncate_all = false;
  script.back().truncate = {1};
  script.push_back({.observe = {0}});
  ExpectExact(Play(script, {9}), {kForever, kForever, kForever}, kForever);
}

// Action 0 earns 1 and takes one env step; action 1 earns 3, at its end, and takes five.
TEST(DiscountByTest, WorkOrPause) {
  Script work = {{.observe = {0, 1}}};
  Script pause = work;
  for (int step = 1; step <= 10; ++step) {
    work.push_back({.observe = {0, 1}, .rewards = {{1, 1.0f}}});
    pause.push_back({.observe = {0}});
    if (step % 5 == 0) pause.back() = {.observe = {0, 1}, .rewards = {{1, 3.0f}}};
  }
  ExpectExact(Play(work, {10}), std::vector<float>(10, kForever), kForever);
  const double paused = 3 * std::pow(kGamma, 4) / (1 - std::pow(kGamma, 5));
  EXPECT_NEAR(paused, 4.81, 0.005);
  ExpectExact(Play(pause, {10}), std::vector<float>(2, static_cast<float>(paused)), paused);
}

// discount_by: decision: a wait counts once, and its rewards are added as they come.
TEST(DiscountByTest, ByDecisionAWaitCountsOnce) {
  const Rows rows = Play(EveryThirdStep(9), {4, 5}, /*reward_discount=*/1);
  EXPECT_THAT(rows.rewards, ElementsAre(3, 3, 3));
  EXPECT_THAT(rows.waits, testing::IsEmpty());
  const auto value = static_cast<float>(3 * kForever);
  ExpectExact(rows, {value, value, value}, value);
}

}  // namespace
}  // namespace troupe::integration
