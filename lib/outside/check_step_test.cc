#include "lib/outside/check_step.h"

#include <limits>

#include <gtest/gtest.h>

namespace troupe::outside {
namespace {

env::EnvSpec SteppedSpec() {
  env::EnvSpec spec;
  spec.name = "external";
  spec.possible_agents = {{base::AgentId("a"), *space::Space::Box(-1, 1, {2}), *space::Space::Discrete(3, 5), true},
                          {base::AgentId("b"), *space::Space::Box(0, 255, {2, 2}, tensor::DType::kUint8),
                           *space::Space::Box(-1, 1, {2}), false}};
  return spec;
}

AgentReport Of(const std::string& agent) {
  AgentReport report;
  report.agent = agent;
  if (agent == "a") {
    report.observation = {0.25f, 3};
    report.action_mask = {1, 0, 1};
  } else {
    report.image = "abcd";
  }
  return report;
}

std::string ErrorOf(const AgentReport& report, StepKind kind = StepKind::kGetActions) {
  const absl::StatusOr<CheckedStep> step = CheckStep(SteppedSpec(), kind, {{report}, {}});
  if (step.ok()) return "it fits";
  EXPECT_EQ(step.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(step.status().message());
}

TEST(CheckStepTest, RowsBecomeBytes) {
  const absl::StatusOr<CheckedStep> step = CheckStep(SteppedSpec(), StepKind::kGetActions, {{Of("b"), Of("a")}, {}});
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_EQ(step->agents.size(), 2u);
  EXPECT_EQ(step->agents[0].slot, base::AgentSlot(1)) << "in the report's order";
  EXPECT_EQ(step->agents[0].observation.size(), 4u);
  EXPECT_EQ(step->agents[1].observation.size(), 8u);
  EXPECT_EQ(reinterpret_cast<const float*>(step->agents[1].observation.data())[1], 3.0f)
      << "a value outside of the bounds is counted, not refused";
  EXPECT_EQ(step->agents[1].action_mask, (std::vector<uint8_t>{1, 0, 1}));
}

TEST(CheckStepTest, WhatDoesNotFitIsSaidWithTheAgent) {
  AgentReport report = Of("a");
  report.agent = "c";
  EXPECT_EQ(ErrorOf(report), "agent \"c\": there is no such agent, expected one of env.external.spaces");
  report = Of("a");
  report.observation.push_back(1);
  EXPECT_EQ(ErrorOf(report), "agent \"a\": its observation has 3 elements, expected 2");
  report.observation = {0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(ErrorOf(report), "agent \"a\": element 1 of its observation is nan, expected a finite number");
  report.observation = {};
  report.image = "ab";
  EXPECT_EQ(ErrorOf(report), "agent \"a\": got an image, expected an observation: its space is Box(-1, 1, [2])");
  report = Of("b");
  report.image = "abc";
  EXPECT_EQ(ErrorOf(report), "agent \"b\": its observation has 3 elements, expected 4");
  report = Of("b");
  report.observation = {1};
  EXPECT_EQ(ErrorOf(report),
            "agent \"b\": got an observation of floats, expected an image: its space is Box(0, 255, [2, 2], uint8)");
  report = Of("a");
  report.action_mask = {1, 1};
  EXPECT_EQ(ErrorOf(report), "agent \"a\": its action mask has 2 bytes, expected 3");
  report.action_mask = {0, 0, 0};
  EXPECT_EQ(ErrorOf(report),
            "agent \"a\": its action mask forbids all 3 values of word 0, expected at least one that is allowed");
  report.end = End::kTruncated;
  EXPECT_EQ(ErrorOf(report, StepKind::kEnd), "it fits") << "it does not act any more";
  report.end = End::kNone;
  EXPECT_EQ(ErrorOf(report, StepKind::kEnd), "it fits");
  report.action_mask = {1, 2, 1};
  EXPECT_EQ(ErrorOf(report), "agent \"a\": byte 1 of its action mask is 2, expected 0 or 1");
  report = Of("b");
  report.action_mask = {1};
  EXPECT_EQ(ErrorOf(report),
            "agent \"b\": got an action mask, expected none: env.external.spaces says that it has none");
  report = Of("a");
  report.reward = 1e300;
  EXPECT_EQ(ErrorOf(report), "agent \"a\": its reward is 1e+300, expected at most 1e+06 either way");
  report.reward = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ErrorOf(report), "agent \"a\": its reward is nan, expected at most 1e+06 either way");
  report = {};
  report.agent = "a";
  EXPECT_EQ(ErrorOf(report), "agent \"a\": the report says nothing of it, expected an observation, a reward or an end");
}

TEST(CheckStepTest, AStepNeedsSomebodyWhoActsAndEachAgentOnce) {
  const auto error = [](StepReport report) {
    return std::string(CheckStep(SteppedSpec(), StepKind::kGetActions, report).status().message());
  };
  EXPECT_EQ(error({{Of("a"), Of("a")}, {}}), "agent \"a\": it is there twice, expected once");
  AgentReport ended = Of("a");
  ended.end = End::kTruncated;
  EXPECT_EQ(error({{ended}, {}}),
            "no agent acts, expected an observation of at least one that goes on; EndEpisode ends the episode");
  EXPECT_TRUE(CheckStep(SteppedSpec(), StepKind::kEnd, {{ended}, {}}).ok());
  EXPECT_EQ(error({{Of("a")}, {1}}), "the state has 1 elements, expected 0: env.external.state_space is empty");
}

TEST(CheckStepTest, LoggedActionsAreInTheirSpaceAndHaveALogProb) {
  const auto error = [](const ClientAction& action, const std::string& agent = "a") {
    AgentReport report = Of(agent);
    report.action = action;
    return ErrorOf(report, StepKind::kLogActions);
  };
  EXPECT_EQ(error({{5}, {}, -0.5f}), "it fits");
  EXPECT_EQ(
      error({{5}, {}, {}}),
      "agent \"a\": its action has no log_prob: the run trains on-policy, and needs the log-probability with which "
      "the action was drawn; give it, or ask GetActions");
  EXPECT_EQ(error({{8}, {}, -0.5f}).substr(0, 22), "agent \"a\": its action:");
  EXPECT_EQ(error({{6}, {}, -0.5f}), "agent \"a\": its action takes value 1 of word 0, which its mask forbids");
  EXPECT_EQ(error({{5, 5}, {}, -0.5f}),
            "agent \"a\": its action has 2 discrete and 0 continuous words, expected 1 and 0");
  EXPECT_EQ(error({{5}, {}, 0.5f}),
            "agent \"a\": its log_prob is 0.5, expected the logarithm of a probability, at least -50");
  EXPECT_EQ(error({{5}, {}, -50.0f}), "it fits");
  EXPECT_EQ(error({{5}, {}, -50.5f}).substr(0, 32), "agent \"a\": its log_prob is -50.5");
  EXPECT_NE(error({{5}, {}, std::numeric_limits<float>::quiet_NaN()}), "it fits");
  EXPECT_EQ(error({{}, {0, 0}, -0.5f}, "b").substr(0, 50), "agent \"b\": LogActions takes discrete actions alone");
  EXPECT_EQ(ErrorOf(Of("a"), StepKind::kLogActions), "agent \"a\": it acts, and its action is missing");
  AgentReport report = Of("a");
  report.action = ClientAction{{5}, {}, -0.5f};
  EXPECT_EQ(ErrorOf(report),
            "agent \"a\": got an action, expected none: LogActions takes actions that were decided outside");
}

TEST(CheckStepTest, WordsGoToClientsAndBack) {
  const space::Space mixed =
      *space::Space::Tuple({*space::Space::Discrete(3), *space::Space::Box(-1, 1, {2}), *space::Space::MultiBinary(1)});
  std::vector<space::ActionWord> words(4);
  words[0].i32 = 2;
  words[1].f32 = 0.5f;
  words[2].f32 = -0.25f;
  words[3].i32 = 1;
  const ClientAction action = ToClient(mixed, words.data());
  EXPECT_EQ(action.discrete, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(action.continuous, (std::vector<float>{0.5f, -0.25f}));
  const absl::StatusOr<std::vector<space::ActionWord>> back = FromClient(mixed, action);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ((*back)[0].i32, 2);
  EXPECT_EQ((*back)[2].f32, -0.25f);
  EXPECT_EQ((*back)[3].i32, 1);
}

}  // namespace
}  // namespace troupe::outside
