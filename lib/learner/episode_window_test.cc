#include "lib/learner/episode_window.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

sample::FinishedEpisode Episode(uint32_t env_id, uint32_t episode, std::vector<float> returns,
                                std::vector<int32_t> policies, int32_t length = 10, float info = 0) {
  return sample::FinishedEpisode{env_id, episode, length, std::move(returns), std::move(policies), {info}};
}

TEST(EpisodeWindowTest, NothingBeforeTheFirstEpisode) {
  EpisodeWindow window(2, 1);
  EXPECT_EQ(window.return_sum(), std::nullopt);
  EXPECT_EQ(window.return_mean(), std::nullopt);
  EXPECT_EQ(window.length(), std::nullopt);
  EXPECT_EQ(window.agent_return(0), std::nullopt);
  EXPECT_EQ(window.policy_return(0), std::nullopt);
  EXPECT_EQ(window.info(0), std::nullopt);
  EXPECT_FALSE(window.full());
}

TEST(EpisodeWindowTest, MeansPerAgentAndPolicy) {
  EpisodeWindow window(3, 1);
  window.Add({Episode(0, 0, {1, 2, 3}, {0, 0, 1}, 10, 4), Episode(1, 0, {5, kNaN, 7}, {1, -1, 1}, 20, kNaN)});
  EXPECT_DOUBLE_EQ(*window.return_sum(), (6 + 12) / 2.0);
  EXPECT_DOUBLE_EQ(*window.return_mean(), (2 + 6) / 2.0) << "over the agents that took part";
  EXPECT_DOUBLE_EQ(*window.length(), 15);
  EXPECT_DOUBLE_EQ(*window.agent_return(0), 3);
  EXPECT_DOUBLE_EQ(*window.agent_return(1), 2);
  EXPECT_DOUBLE_EQ(*window.policy_return(0), 1.5);
  EXPECT_DOUBLE_EQ(*window.policy_return(1), 5);
  EXPECT_EQ(window.policy_return(2), std::nullopt);
  EXPECT_DOUBLE_EQ(*window.info(0), 4) << "NaN: never set";
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
  EXPECT_EQ(restored.return_sum(), window.return_sum());
  EXPECT_EQ(restored.return_mean(), window.return_mean());
  EXPECT_EQ(restored.length(), window.length());
  EXPECT_EQ(restored.agent_return(1), window.agent_return(1));
  EXPECT_EQ(restored.policy_return(0), std::nullopt) << "who played then is not kept";
  EXPECT_EQ(restored.size(), 2);
}

TEST(EpisodeWindowTest, ASlotsNextPolicyHasPlayedNothing) {
  EpisodeWindow window(2, 1);
  window.Add({Episode(0, 0, {1, 2}, {0, 1})});
  window.ForgetPolicy(1);
  EXPECT_EQ(window.policy_return(1), std::nullopt);
  EXPECT_DOUBLE_EQ(*window.policy_return(0), 1);
  EXPECT_DOUBLE_EQ(*window.agent_return(1), 2);
}

}  // namespace
}  // namespace troupe::learner
