#include "lib/learner/episode_window.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include "lib/policy/testing/slots.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::PolicySlot;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

sample::FinishedEpisode Episode(uint32_t env_id, uint32_t episode, std::vector<float> returns,
                                std::initializer_list<int32_t> policies, int32_t length = 10, float info = 0) {
  return {base::EnvId(env_id), episode, length, std::move(returns), policy::SlotsForTesting(policies), {info}};
}

TEST(EpisodeWindowTest, NothingBeforeTheFirstEpisode) {
  EpisodeWindow window(2, 1);
  const EpisodeStats stats = window.Stats(1);
  EXPECT_EQ(stats.episodes(), 0);
  EXPECT_EQ(stats.return_sum.mean(), std::nullopt);
  EXPECT_EQ(stats.return_mean.mean(), std::nullopt);
  EXPECT_EQ(stats.length.mean(), std::nullopt);
  ASSERT_EQ(stats.agents.size(), 2u);
  EXPECT_EQ(stats.agents[0].mean(), std::nullopt);
  ASSERT_EQ(stats.policies.size(), 1u);
  EXPECT_EQ(stats.policies[PolicySlot(0)].mean(), std::nullopt);
  EXPECT_EQ(window.info(0), std::nullopt);
  EXPECT_FALSE(window.full());
}

TEST(EpisodeWindowTest, MeansPerAgentAndPolicy) {
  EpisodeWindow window(3, 1);
  window.Add({Episode(0, 0, {1, 2, 3}, {0, 0, 1}, 10, 4), Episode(1, 0, {5, kNaN, 7}, {1, -1, 1}, 20, kNaN)});
  const EpisodeStats stats = window.Stats(3);
  EXPECT_DOUBLE_EQ(*stats.return_sum.mean(), (6 + 12) / 2.0);
  EXPECT_EQ(stats.return_sum.min, 6);
  EXPECT_EQ(stats.return_sum.max, 12);
  EXPECT_DOUBLE_EQ(*stats.return_mean.mean(), (2 + 6) / 2.0) << "over the agents that took part";
  EXPECT_DOUBLE_EQ(*stats.length.mean(), 15);
  EXPECT_EQ(stats.length.min, 10);
  EXPECT_EQ(stats.length.max, 20);
  EXPECT_DOUBLE_EQ(*stats.agents[0].mean(), 3);
  EXPECT_DOUBLE_EQ(*stats.agents[1].mean(), 2);
  EXPECT_EQ(stats.agents[1].count, 1);
  EXPECT_TRUE(stats.policies[PolicySlot(2)].empty()) << "it has not played";
  EXPECT_DOUBLE_EQ(*stats.policies[PolicySlot(0)].mean(), 1.5);
  EXPECT_DOUBLE_EQ(*stats.policies[PolicySlot(1)].mean(), 5);
  EXPECT_EQ(stats.policies[PolicySlot(1)].min, 3);
  EXPECT_EQ(stats.policies[PolicySlot(1)].max, 7);
  EXPECT_DOUBLE_EQ(*window.info(0), 4) << "NaN: never set";
}

TEST(EpisodeWindowTest, OfAnAgentThatReturnedTheSumCountsAllTrajectories) {
  EpisodeWindow window(2, 1);
  sample::FinishedEpisode episode = Episode(0, 0, {1, 4}, {0, 0}, 10, kNaN);
  episode.trajectories = {1, 3};
  window.Add({episode});
  const EpisodeStats stats = window.Stats(1);
  EXPECT_DOUBLE_EQ(*stats.return_sum.mean(), 13);
  EXPECT_DOUBLE_EQ(*stats.agents[1].mean(), 4);
  EXPECT_DOUBLE_EQ(*stats.return_mean.mean(), 2.5);
}

TEST(EpisodeWindowTest, KeepsTheLastHundredWhateverTheOrderOfArrival) {
  // 60 environments end two episodes each: the first of every one, then the second; 20 of the first fall out.
  std::vector<sample::FinishedEpisode> finished;
  for (uint32_t env = 0; env < 60; ++env) {
    for (uint32_t e = 0; e < 2; ++e) {
      finished.push_back(Episode(env, 5 + e, {static_cast<float>(1000 * e + env)}, {0}));
    }
  }
  EpisodeWindow forward(1, 1);
  forward.Add(finished);
  std::reverse(finished.begin(), finished.end());
  EpisodeWindow backward(1, 1);
  backward.Add(finished);
  EXPECT_TRUE(forward.full());
  LearnerState a, b;
  forward.Save(a);
  backward.Save(b);
  EXPECT_EQ(a.recent_return_sums, b.recent_return_sums);
  EXPECT_EQ(a.recent_return_sums.front(), 20);
  EXPECT_EQ(a.recent_return_sums.back(), 1059);
}

TEST(EpisodeWindowTest, SurvivesARestart) {
  EpisodeWindow window(2, 1);
  window.Add({Episode(0, 0, {1, kNaN}, {0, -1}, 3), Episode(1, 0, {5, 7}, {0, 0}, 5)});
  LearnerState state;
  window.Save(state);
  EpisodeWindow restored(2, 1);
  restored.Restore(state);
  const EpisodeStats before = window.Stats(2);
  const EpisodeStats after = restored.Stats(2);
  EXPECT_EQ(after.return_sum.mean(), before.return_sum.mean());
  EXPECT_EQ(after.return_mean.mean(), before.return_mean.mean());
  EXPECT_EQ(after.length.mean(), before.length.mean());
  EXPECT_EQ(after.agents[1].mean(), before.agents[1].mean());
  EXPECT_EQ(after.policies[PolicySlot(0)].mean(), before.policies[PolicySlot(0)].mean());
  EXPECT_EQ(restored.size(), 2);
  state.recent_agent_policies.clear();  // a checkpoint of an earlier version
  restored.Restore(state);
  EXPECT_TRUE(restored.Stats(2).policies[PolicySlot(0)].empty()) << "who played is not known";
  EXPECT_EQ(restored.Stats(2).agents[1].mean(), before.agents[1].mean());
}

TEST(EpisodeWindowTest, ASlotsNextPolicyHasPlayedNothing) {
  EpisodeWindow window(2, 1);
  window.Add({Episode(0, 0, {1, 2}, {0, 1})});
  window.ForgetPolicy(PolicySlot(1));
  const EpisodeStats stats = window.Stats(2);
  EXPECT_TRUE(stats.policies[PolicySlot(1)].empty());
  EXPECT_DOUBLE_EQ(*stats.policies[PolicySlot(0)].mean(), 1);
  EXPECT_DOUBLE_EQ(*stats.agents[1].mean(), 2);
}

TEST(EpisodeWindowTest, APolicyThatIsNotThereHasPlayedNothing) {
  EpisodeWindow window(3, 1);
  window.Add({Episode(0, 0, {1, 2, 3}, {0, 1, std::numeric_limits<int32_t>::max()})});
  EXPECT_EQ(window.Stats(2).policies.size(), 2u) << "whatever a worker says";
  EXPECT_DOUBLE_EQ(*window.Stats(2).agents[2].mean(), 3);
  window.KeepPolicies([](PolicySlot policy) { return policy == PolicySlot(1); });
  EXPECT_TRUE(window.Stats(2).policies[PolicySlot(0)].empty());
  EXPECT_DOUBLE_EQ(*window.Stats(2).policies[PolicySlot(1)].mean(), 2);
}

TEST(EpisodeStatsTest, RewardsOfAgentsDifferOrDoNot) {
  EXPECT_FALSE(ReturnsDiffer(std::vector<float>{-3.5f, kNaN, -3.5f}));
  EXPECT_FALSE(ReturnsDiffer(std::vector<float>{2.0f}));
  EXPECT_FALSE(ReturnsDiffer(std::vector<float>{kNaN, kNaN}));
  EXPECT_FALSE(ReturnsDiffer(std::vector<float>{1000.0f, 1000.001f})) << "rounding of a common reward";
  EXPECT_TRUE(ReturnsDiffer(std::vector<float>{1.0f, -1.0f}));
  EXPECT_TRUE(ReturnsDiffer(std::vector<float>{kNaN, 0.0f, 0.001f}));
  const std::vector<sample::FinishedEpisode> draws = {Episode(0, 0, {0, 0}, {0, 1})};
  EXPECT_FALSE(ReturnsDiffer(draws));
  EXPECT_TRUE(ReturnsDiffer({draws[0], Episode(1, 0, {-1, 1}, {0, 1})}));
}

}  // namespace
}  // namespace troupe::learner
