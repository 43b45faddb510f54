#include "lib/env/vector_env.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/random_rollout.h"
#include "lib/env/testing/elsewhere_env.h"
#include "lib/env/testing/scripted_env.h"

namespace troupe::env {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

/// Two agents; rewards are the actions; observations t/10; agent_1 leaves at t = 2; ends at `length` (truncated) with a
/// last observation.
std::unique_ptr<MultiAgentEnv> Counter(int64_t length) {
  return std::make_unique<ScriptedEnv>(SmallSpec(2), [length](int64_t t, ActionRows actions, StepWriter& out) {
    for (int32_t slot = 0; slot < 2; ++slot) {
      if (t > 0 && actions[static_cast<size_t>(slot)] == nullptr) continue;
      if (t > 0) out.AddReward(AgentSlot(slot), static_cast<float>(actions[static_cast<size_t>(slot)]->i32));
      ObserveAs(out, slot, static_cast<float>(t) / 10);
    }
    if (t == 2 && t < length) out.TerminateAgent(AgentSlot(1));
    if (t == length) out.TruncateAll();
    return absl::OkStatus();
  });
}

std::vector<std::unique_ptr<MultiAgentEnv>> Counters(std::vector<int64_t> lengths) {
  std::vector<std::unique_ptr<MultiAgentEnv>> envs;
  for (const int64_t length : lengths) envs.push_back(Counter(length));
  return envs;
}

TEST(VectorEnvTest, ResetsByItself) {
  auto envs = *VectorEnv::Make(Counters({1, 3}),
                               {.seed = 9, .first_env_id = base::EnvId(40), .first_episode = 2, .keep_final = true});
  EXPECT_EQ(envs->action_stride(), 1);
  ASSERT_EQ(envs->action_size(), 4u);
  const std::vector<space::ActionWord> actions = {{.i32 = 1}, {.i32 = 2}, {.i32 = 1}, {.i32 = 2}};
  EXPECT_FALSE(envs->Step(actions).ok());
  ASSERT_TRUE(envs->Reset().ok());
  EXPECT_THAT(envs->buffers().observations(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));

  ASSERT_TRUE(envs->Step(actions).ok());
  ASSERT_EQ(envs->finished().size(), 1u);
  const VectorEnv::EpisodeEnd& end = envs->finished()[0];
  EXPECT_EQ(end.env, 0);
  EXPECT_EQ(end.seed.seed, 9u);
  EXPECT_EQ(end.seed.env_id, base::EnvId(40));
  EXPECT_EQ(end.seed.episode, 2u);
  EXPECT_EQ(end.length, 1);
  EXPECT_TRUE(end.truncated);
  EXPECT_THAT(end.returns, ElementsAre(1.0, 2.0));
  // Rewards and flags are those of the end, observations those of the next episode.
  EXPECT_TRUE(envs->buffers().all_truncated(0));
  EXPECT_EQ(envs->buffers().reward(0, 1), 2.0f);
  EXPECT_EQ(envs->buffers().observation(0, 0)[0], 0.0f);
  EXPECT_TRUE(envs->buffers().ready(0, 0));
  EXPECT_EQ(envs->final_buffers().observation(0, 0)[0], 0.1f);
  EXPECT_FALSE(envs->final_buffers().ready(0, 0));
  EXPECT_EQ(envs->buffers().observation(1, 0)[0], 0.1f);

  ASSERT_TRUE(envs->Step(actions).ok());
  EXPECT_TRUE(envs->buffers().terminated(1, 1));
  EXPECT_FALSE(envs->buffers().ready(1, 1));
  EXPECT_EQ(envs->finished()[0].seed.episode, 3u);
  ASSERT_TRUE(envs->Step(actions).ok());
  ASSERT_EQ(envs->finished().size(), 2u);
  EXPECT_EQ(envs->finished()[1].length, 3);
  EXPECT_THAT(envs->finished()[1].returns, ElementsAre(3.0, 4.0));  // agent_1 acted twice
  EXPECT_EQ(envs->env_steps(), 6);
  EXPECT_EQ(envs->agent_steps(), 11);
}

TEST(VectorEnvTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(std::string(VectorEnv::Make({}, {}).status().message()), HasSubstr("no environments"));
  EXPECT_THAT(std::string(VectorEnv::Make(Counters({1, 1}), {.env_ids = {base::EnvId(1)}}).status().message()),
              HasSubstr("1 env ids for 2"));
  auto mixed = Counters({1});
  mixed.push_back(
      std::make_unique<ScriptedEnv>(SmallSpec(3), [](int64_t, ActionRows, StepWriter&) { return absl::OkStatus(); }));
  EXPECT_THAT(std::string(VectorEnv::Make(std::move(mixed), {}).status().message()), HasSubstr("different specs"));
  auto envs = *VectorEnv::Make(Counters({1}), {});
  ASSERT_TRUE(envs->Reset().ok());
  EXPECT_THAT(std::string(envs->Step({}).message()), HasSubstr("got 0 action words, expected 2"));
}

/// The actions of an environment depend on its id and the seed alone, not on its neighbours.
TEST(VectorEnvTest, RandomActionsDoNotDependOnTheBatch) {
  const auto play = [](const std::vector<uint32_t>& numbers, uint64_t seed) {
    std::vector<base::EnvId> ids;
    for (const uint32_t number : numbers) ids.emplace_back(number);
    auto envs = *VectorEnv::Make(Counters(std::vector<int64_t>(ids.size(), 5)), {.seed = seed, .env_ids = ids});
    std::vector<space::ActionWord> actions(envs->action_size());
    std::vector<std::vector<float>> rewards(ids.size());
    EXPECT_TRUE(envs->Reset().ok());
    for (int i = 0; i < 40; ++i) {
      envs->SampleActions(absl::MakeSpan(actions));
      EXPECT_TRUE(envs->Step(actions).ok());
      for (size_t e = 0; e < ids.size(); ++e) rewards[e].push_back(envs->buffers().reward(static_cast<int>(e), 0));
    }
    return rewards;
  };
  EXPECT_EQ(play({3, 8}, 1)[1], play({8}, 1)[0]);
  EXPECT_NE(play({3, 8}, 1)[0], play({8}, 1)[0]);
  EXPECT_NE(play({8}, 2)[0], play({8}, 1)[0]);
}

TEST(VectorEnvTest, EnvironmentsElsewhereStepAtTheSameTimeAndBringTheSame) {
  testing::ElsewhereEnv::Calls calls;
  const auto play = [&calls](bool elsewhere) {
    std::vector<std::unique_ptr<MultiAgentEnv>> made = Counters({5, 3, 4});
    for (auto& env : made) {
      if (elsewhere) env = std::make_unique<testing::ElsewhereEnv>(std::move(env), calls);
    }
    auto envs = *VectorEnv::Make(std::move(made), {.seed = 4});
    std::vector<space::ActionWord> actions(envs->action_size());
    std::vector<float> seen;
    EXPECT_TRUE(envs->Reset().ok());
    for (int i = 0; i < 20; ++i) {
      envs->SampleActions(absl::MakeSpan(actions));
      EXPECT_TRUE(envs->Step(actions).ok());
      seen.insert(seen.end(), envs->buffers().rewards().begin(), envs->buffers().rewards().end());
      seen.insert(seen.end(), envs->buffers().observations().begin(), envs->buffers().observations().end());
      seen.push_back(static_cast<float>(envs->finished().size()));
    }
    return seen;
  };
  EXPECT_EQ(play(true), play(false));
  EXPECT_EQ(calls.most_in_flight, 3);
  EXPECT_EQ(calls.in_flight, 0);
  EXPECT_EQ(calls.out_of_order, 0);
}

TEST(RandomRolloutTest, CountsAndTimes) {
  auto envs = *VectorEnv::Make(Counters({5, 5}), {});
  base::FakeClock clock;
  const absl::StatusOr<RandomRolloutResult> result = RandomRollout(*envs, 20, clock);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->env_steps, 20);
  EXPECT_EQ(result->episodes, 4);
  EXPECT_EQ(result->agent_steps, 4 * (5 + 2));
  EXPECT_EQ(result->episode_length, 5);
  EXPECT_GT(result->return_sum, 0);
  EXPECT_EQ(result->return_mean, result->return_sum / 2);
  EXPECT_EQ(result->env_steps_per_s, 0);  // no time has passed

  auto broken = *VectorEnv::Make(Counters({5}), {});
  EXPECT_GT(RandomRollout(*broken, 100)->env_steps_per_s, 0);
}

}  // namespace
}  // namespace troupe::env
