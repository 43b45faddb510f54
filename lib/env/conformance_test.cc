#include "lib/env/conformance.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/testing/scripted_env.h"

namespace troupe::env {
namespace {

using ::testing::HasSubstr;
using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

ConformanceReport Check(EnvSpec spec, const std::function<ScriptedEnv::Script()>& make_script,
                        ConformanceOptions options = {}) {
  return CheckConformance(
      [&]() -> absl::StatusOr<std::unique_ptr<MultiAgentEnv>> {
        return std::make_unique<ScriptedEnv>(spec, make_script());
      },
      options);
}

std::string DetailOf(const ConformanceReport& report, EnvRule rule) {
  for (const ConformanceLine& line : report.lines) {
    if (line.rule == rule && !line.ok) return line.detail;
  }
  return "";
}

/// One agent, five steps.
absl::Status Good(int64_t t, ActionRows, StepWriter& out) {
  ObserveAs(out, 0, static_cast<float>(t) / 10);
  if (t == 5) out.TerminateAll();
  return absl::OkStatus();
}

TEST(ConformanceTest, AGoodEnvironmentPassesEveryRule) {
  const ConformanceReport report = Check(SmallSpec(1), [] { return Good; }, {.num_envs = 2, .episodes = 3});
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(report.lines.size(), std::size(kEnvRules));
  EXPECT_EQ(report.episodes(), 6);
  EXPECT_EQ(report.env_steps, 30);
  EXPECT_EQ(report.agent_steps, 30);
  EXPECT_FALSE(report.got_reward);
  EXPECT_FALSE(report.saw_alike);
}

TEST(ConformanceTest, SaysWhetherTwoAgentsObservedTheSame) {
  const auto saw_alike = [](float apart) {
    return Check(SmallSpec(2),
                 [apart] {
                   return [apart](int64_t t, ActionRows, StepWriter& out) {
                     for (int32_t slot = 0; slot < 2; ++slot) {
                       ObserveAs(out, slot, static_cast<float>(slot) * (t == 2 ? apart : 1));
                     }
                     if (t == 3) out.TerminateAll();
                     return absl::OkStatus();
                   };
                 },
                 {.num_envs = 1, .episodes = 1})
        .saw_alike;
  };
  EXPECT_FALSE(saw_alike(0.5));
  EXPECT_TRUE(saw_alike(0)) << "in one step";
}

TEST(ConformanceTest, SaysHowLongItsEpisodesWereAndWhatTheyReturned) {
  const ConformanceReport report = Check(SmallSpec(2),
                                         [] {
                                           return [](int64_t t, ActionRows, StepWriter& out) {
                                             if (t > 0) out.AddReward(AgentSlot(1), -0.5F);
                                             for (int32_t slot = 0; slot < 2; ++slot) ObserveAs(out, slot, 0);
                                             if (t == 3) out.TerminateAll();
                                             return absl::OkStatus();
                                           };
                                         },
                                         {.num_envs = 1, .episodes = 2});
  ASSERT_EQ(report.ended.size(), 2U) << report.ToString();
  EXPECT_EQ(report.ended[1].env_steps, 3);
  EXPECT_THAT(report.ended[1].returns, ::testing::ElementsAre(0, -1.5));
  EXPECT_TRUE(report.got_reward);
}

TEST(ConformanceTest, FindsStateThatOutlivesTheEpisode) {
  const ConformanceReport report = Check(SmallSpec(1), [] {
    auto calls = std::make_shared<int>(0);
    return [calls](int64_t t, ActionRows, StepWriter& out) {
      ObserveAs(out, 0, static_cast<float>(++*calls % 16) / 16);
      if (t == 5) out.TerminateAll();
      return absl::OkStatus();
    };
  });
  EXPECT_THAT(DetailOf(report, EnvRule::kDeterminism),
              HasSubstr("two instances differ in observation of agent agent_0"));
}

TEST(ConformanceTest, FindsWhatWasNotWritten) {
  const auto forgets = [](int64_t t, ActionRows, StepWriter& out) {
    out.ObserveFloat(AgentSlot(0))[0] = 0;
    if (t == 5) out.TerminateAll();
    return absl::OkStatus();
  };
  EXPECT_THAT(DetailOf(Check(SmallSpec(1), [&] { return forgets; }), EnvRule::kObservationValue),
              HasSubstr("element 1 is"));

  EnvSpec images = SmallSpec(1);
  images.possible_agents[0].observation_space = *space::Space::Box(0, 255, {2}, tensor::DType::kUint8);
  const auto forgets_pixel = [](int64_t t, ActionRows, StepWriter& out) {
    static_cast<uint8_t*>(out.Observe(AgentSlot(0)))[0] = 0;
    if (t == 5) out.TerminateAll();
    return absl::OkStatus();
  };
  EXPECT_THAT(DetailOf(Check(images, [&] { return forgets_pixel; }), EnvRule::kDeterminism),
              HasSubstr("observation of agent"));
}

TEST(ConformanceTest, FindsEpisodesThatDoNotEnd) {
  const auto endless = [](int64_t, ActionRows, StepWriter& out) {
    ObserveAs(out, 0, 0);
    return absl::OkStatus();
  };
  EXPECT_THAT(DetailOf(Check(SmallSpec(1), [&] { return endless; }, {.max_env_steps = 50}), EnvRule::kEpisodeEnd),
              HasSubstr("has not ended after 50 env steps"));
  EnvSpec limited = SmallSpec(1);
  limited.max_episode_steps = 4;  // and Good plays five
  EXPECT_THAT(DetailOf(Check(limited, [] { return Good; }), EnvRule::kEpisodeEnd), HasSubstr("after 4 env steps"));
}

/// Good but for a NaN as reward in every fourth episode, and one as observation in the one after it.
std::function<ScriptedEnv::Script()> TwoFaults() {
  return [] {
    auto episode = std::make_shared<int>(-1);
    return [episode](int64_t t, ActionRows actions, StepWriter& out) {
      if (t == 0) ++*episode;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      if (t == 1 && *episode % 4 == 2) out.AddReward(AgentSlot(0), nan);
      if (t == 1 && *episode % 4 == 3) {
        ObserveAs(out, 0, nan);
        return absl::OkStatus();
      }
      return Good(t, actions, out);
    };
  };
}

TEST(ConformanceTest, EndsWhenItsTimeIsOver) {
  base::FakeClock clock;
  const auto slow = [&clock](int64_t /*t*/, ActionRows /*actions*/, StepWriter& out) {
    clock.Advance(absl::Milliseconds(100));
    ObserveAs(out, 0, 0.5f);
    return absl::OkStatus();
  };
  std::vector<int64_t> told;
  ConformanceOptions options{.max_time = absl::Seconds(5), .clock = &clock};
  options.on_episode = [&](const ConformanceReport& played) { told.push_back(played.env_steps); };
  const ConformanceReport report = Check(
      SmallSpec(1), [&slow] { return ScriptedEnv::Script(slow); }, options);
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.episodes(), 0);
  EXPECT_GT(report.env_steps, 10) << "two instances take 0.2 s a step";
  EXPECT_LT(report.env_steps, 26);
  EXPECT_GE(told.size(), 4u);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
}

TEST(ConformanceTest, GoesOnAfterABrokenRuleWhereAsked) {
  std::vector<EnvRule> told;
  int episodes = 0;
  ConformanceOptions options{.num_envs = 2, .episodes = 6};
  options.on_broken = [&](const ConformanceLine& line) { told.push_back(line.rule); };
  options.on_episode = [&](const ConformanceReport&) { ++episodes; };
  const ConformanceReport first = Check(SmallSpec(1), TwoFaults(), options);
  EXPECT_EQ(told.size(), 1u);
  EXPECT_FALSE(first.complete);
  const int before = episodes;
  EXPECT_LT(before, 12);

  told.clear();
  episodes = 0;
  options.keep_going = true;
  const ConformanceReport all = Check(SmallSpec(1), TwoFaults(), options);
  EXPECT_EQ(episodes, 12);
  EXPECT_THAT(told, ::testing::UnorderedElementsAre(EnvRule::kReward, EnvRule::kObservationValue)) << all.ToString();
  EXPECT_NE(DetailOf(all, EnvRule::kReward), "");
  EXPECT_NE(DetailOf(all, EnvRule::kObservationValue), "");
  EXPECT_GT(all.episodes(), 0) << "those without a fault were played to their end";
}

TEST(ConformanceTest, WhatMayDifferIsPlayedToItsEndUnderTheOtherRules) {
  // Says nothing twice; and the fifth reward is none.
  const auto check = [](float last_reward) {
    return Check(SmallSpec(1),
                 [last_reward, calls = std::make_shared<int>(0)] {
                   return [last_reward, calls](int64_t t, ActionRows, StepWriter& out) {
                     if (t == 5) out.AddReward(AgentSlot(0), last_reward);
                     ObserveAs(out, 0, static_cast<float>(++*calls % 16) / 16);
                     if (t == 5) out.TerminateAll();
                     return absl::OkStatus();
                   };
                 },
                 {.num_envs = 2, .episodes = 3, .may_differ = true});
  };
  const ConformanceReport good = check(1);
  EXPECT_EQ(good.first_broken_but(EnvRule::kDeterminism), nullptr) << good.ToString();
  EXPECT_NE(DetailOf(good, EnvRule::kDeterminism), "");
  EXPECT_TRUE(good.complete);
  EXPECT_EQ(good.episodes(), 6);
  EXPECT_NE(DetailOf(check(std::numeric_limits<float>::quiet_NaN()), EnvRule::kReward), "");
}

TEST(ConformanceTest, OneThatTimeCutsBetweenEpisodesIsNotComplete) {
  base::FakeClock clock;
  ConformanceOptions options = {.num_envs = 1, .episodes = 3, .max_time = absl::Seconds(1), .clock = &clock};
  options.on_episode = [&](const ConformanceReport&) { clock.Advance(absl::Seconds(1)); };
  const ConformanceReport report = Check(
      SmallSpec(1), [] { return Good; }, options);
  EXPECT_EQ(report.episodes(), 1);
  EXPECT_FALSE(report.complete);
}

TEST(ConformanceTest, SaysWhichRulesNothingTried) {
  const auto marked = [](const ConformanceReport& report, const char* mark, EnvRule rule) {
    return report.ToString().find(absl::StrFormat("%-7s  %-17s", mark, std::string(EnvRuleName(rule)))) !=
           std::string::npos;
  };
  const ConformanceReport good = Check(SmallSpec(1), [] { return Good; }, {.num_envs = 1, .episodes = 1});
  EXPECT_TRUE(marked(good, "ok", EnvRule::kReward)) << good.ToString();
  EXPECT_TRUE(marked(good, "untried", EnvRule::kActionMask)) << "nobody has one";
  EXPECT_TRUE(marked(good, "untried", EnvRule::kState));

  const ConformanceReport broken = Check(SmallSpec(1), [] {
    return [](int64_t, ActionRows, StepWriter&) { return absl::OkStatus(); };  // observes nobody
  });
  EXPECT_TRUE(marked(broken, "FAIL", EnvRule::kReset)) << broken.ToString();
  EXPECT_TRUE(marked(broken, "partly", EnvRule::kSpec));
  for (const EnvRule rule : {EnvRule::kActions, EnvRule::kReward, EnvRule::kDone, EnvRule::kEpisodeEnd}) {
    EXPECT_TRUE(marked(broken, "untried", rule)) << EnvRuleName(rule);
  }
}

TEST(ConformanceTest, SpecsMustBeValidAndTheSame) {
  EXPECT_THAT(DetailOf(Check(SmallSpec(0), [] { return Good; }), EnvRule::kSpec), HasSubstr("has no agents"));
  int agents = 0;
  const ConformanceReport changing = CheckConformance([&]() -> absl::StatusOr<std::unique_ptr<MultiAgentEnv>> {
    return std::make_unique<ScriptedEnv>(SmallSpec(++agents), Good);
  });
  EXPECT_THAT(DetailOf(changing, EnvRule::kSpec), HasSubstr("different specs"));
  const ConformanceReport none = CheckConformance(
      []() -> absl::StatusOr<std::unique_ptr<MultiAgentEnv>> { return absl::NotFoundError("no such"); });
  EXPECT_EQ(DetailOf(none, EnvRule::kSpec), "no such");
}

}  // namespace
}  // namespace troupe::env
