#include "lib/learner/score.h"

#include <limits>

#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(ScoreTest, WhatItIsCalled) {
  for (const char* text : {"sum", "mean", "policy:hunter", "policy:a:b", "agent:adversary_*"}) {
    ASSERT_TRUE(ParseScore(text).has_value()) << text;
    EXPECT_EQ(ParseScore(text)->Text(), text);
  }
  EXPECT_EQ(ParseScore("policy:a:b")->name, "a:b");
  for (const char* text : {"", "Sum", "policy", "policy:", "agent:", "hunter", "sum "}) {
    EXPECT_EQ(ParseScore(text), std::nullopt) << text;
  }
}

TEST(ScoreTest, IsTheMeanOverTheEpisodes) {
  std::vector<policy::PolicySpec> specs(2, sample::SimpleSchema().policies[policy::PolicySlot(0)]);
  specs[1].id = policy::PolicyId("prey");
  const std::vector<std::string> agents = {"cat_0", "cat_1", "mouse"};
  const policy::PolicyTablePtr table =
      *policy::PolicyTable::Make(specs, {true, true}, {{"*", {{specs[0].id}}}}, agents);
  EpisodeStats stats(3, 2);
  stats.Add(10, {1, 2, -6}, policy::SlotsForTesting({0, 0, 1}));
  stats.Add(10, {3, kNaN, 2}, policy::SlotsForTesting({0, -1, 1}));
  const auto score = [&](const std::string& text) { return ScoreOf(*ParseScore(text), stats, *table); };
  EXPECT_EQ(score("sum"), (-3.0 + 5.0) / 2);
  EXPECT_EQ(score("mean"), (-1.0 + 2.5) / 2);
  EXPECT_EQ(score("policy:" + specs[0].id.value()), (1.0 + 2 + 3) / 3);
  EXPECT_EQ(score("policy:" + specs[1].id.value()), -2.0);
  EXPECT_EQ(score("policy:nobody"), std::nullopt);
  EXPECT_EQ(score("agent:cat_*"), 2.0);
  EXPECT_EQ(score("agent:mouse"), -2.0);
  EXPECT_EQ(score("agent:dog"), std::nullopt);
  EXPECT_EQ(ScoreOf(Score{}, EpisodeStats(3, 2), *table), std::nullopt) << "no episode";
}

}  // namespace
}  // namespace troupe::learner
