// Every registered environment keeps the contract of MultiAgentEnv, with its default arguments and with others.

#include "lib/env/conformance.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/registry.h"
#include "lib/env/wrappers.h"
#include "lib/envs/register_all.h"

namespace troupe {
namespace {

using env::ArgValue;
using ::testing::HasSubstr;
using Args = env::ArgMap;

struct Case {
  std::string env;
  Args args;
};

env::ConformanceReport Check(const Case& c, const env::ConformanceOptions& options = {}) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  return env::CheckConformance([&] { return registry.Make(c.env, env::EnvArgs(c.args)); }, options);
}

TEST(ConformanceTest, EveryRegisteredEnvironmentWithItsDefaults) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  ASSERT_GE(registry.entries().size(), 22u);
  for (const env::EnvRegistry::Entry& entry : registry.entries()) {
    for (const uint64_t seed : {0, 1, 12345}) {
      const env::ConformanceReport report = Check({entry.name, {}}, {.seed = seed, .num_envs = 6, .episodes = 10});
      EXPECT_TRUE(report.ok()) << entry.name << ", seed " << seed << "\n" << report.ToString();
      EXPECT_EQ(report.episodes(), 60);
    }
  }
}

TEST(ConformanceTest, EveryRegisteredEnvironmentBehindWrappers) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  env::WrapperOptions options;
  options.max_episode_steps = 5;
  options.rewards = {.scale = -0.5, .low = -1, .high = 2};
  options.frame_stack = 3;
  options.previous_step = {.action = true, .reward = true};
  for (const env::EnvRegistry::Entry& entry : registry.entries()) {
    const auto make = [&]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
      auto env = registry.Make(entry.name, env::EnvArgs());
      if (!env.ok()) return env;
      return env::WithWrappers(*std::move(env), options);
    };
    const env::ConformanceReport report = env::CheckConformance(make);
    EXPECT_TRUE(report.ok()) << entry.name << "\n" << report.ToString();
    EXPECT_GT(report.env_steps, 0);
    EXPECT_LE(report.env_steps, 5 * report.episodes()) << entry.name;
  }
}

TEST(ConformanceTest, MasksAndStatesInDicts) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  for (const bool hybrid : {false, true}) {
    const auto make = [&]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
      auto env = registry.Make("testing/signals", env::EnvArgs({{"dict", true}, {"hybrid", hybrid}}));
      if (!env.ok()) return env;
      return env::WithWrappers(*std::move(env), {});
    };
    const env::ConformanceReport report = env::CheckConformance(make);
    EXPECT_TRUE(report.ok()) << report.ToString();  // an action that the mask forbids is an error
  }
}

TEST(ConformanceTest, EnvironmentsWithOptions) {
  const std::vector<Case> cases = {
      {"mpe/simple_spread", {{"N", int64_t{1}}}},
      {"mpe/simple_spread", {{"N", int64_t{12}}, {"local_ratio", 0.1}, {"max_cycles", int64_t{3}}}},
      {"mpe/simple_spread", {{"continuous_actions", true}, {"benchmark_data", true}}},
      {"mpe/simple_spread", {{"terminate_on_success", true}, {"N", int64_t{1}}, {"max_cycles", int64_t{400}}}},
      {"mpe/simple_spread", {{"num_agent_neighbors", int64_t{5}}, {"num_landmark_neighbors", int64_t{1}}}},
      {"mpe/simple_spread", {{"curriculum", true}, {"curriculum_stage", int64_t{1}}}},
      {"mpe/simple", {{"continuous_actions", true}, {"benchmark_data", true}}},
      {"mpe/simple_adversary", {{"N", int64_t{5}}, {"num_agent_neighbors", int64_t{7}}, {"benchmark_data", true}}},
      {"mpe/simple_crypto", {{"continuous_actions", true}, {"benchmark_data", true}}},
      {"mpe/simple_push", {{"continuous_actions", true}}},
      {"mpe/simple_reference", {{"continuous_actions", true}, {"local_ratio", int64_t{1}}}},
      {"mpe/simple_speaker_listener", {{"continuous_actions", true}, {"benchmark_data", true}}},
      {"mpe/simple_tag", {{"num_good", int64_t{0}}, {"terminate_on_success", true}}},
      {"mpe/simple_tag",
       {{"num_good", int64_t{3}}, {"num_agent_neighbors", int64_t{2}}, {"num_landmark_neighbors", int64_t{1}}}},
      {"mpe/simple_tag", {{"num_obstacles", int64_t{0}}, {"curriculum", true}, {"curriculum_stage", int64_t{2}}}},
      {"mpe/simple_world_comm",
       {{"num_adversaries", int64_t{0}}, {"num_obstacles", int64_t{0}}, {"num_forests", int64_t{0}}}},
      {"mpe/simple_world_comm",
       {{"num_forests", int64_t{64}}, {"continuous_actions", true}, {"max_cycles", int64_t{200}}}},
      {"mpe/simple_formation", {{"N", int64_t{1}}, {"terminate_on_success", true}, {"max_cycles", int64_t{400}}}},
      {"mpe/simple_formation", {{"N", int64_t{9}}, {"continuous_actions", true}}},
      {"mpe/simple_line", {{"N", int64_t{1}}, {"terminate_on_success", true}, {"max_cycles", int64_t{400}}}},
      {"mpe/simple_line", {{"N", int64_t{12}}}},
      {"mpe/collect_treasure",
       {{"num_collectors", int64_t{30}}, {"num_treasures", int64_t{40}}, {"max_cycles", int64_t{100}}}},
      {"mpe/collect_treasure",
       {{"num_collectors", int64_t{1}}, {"num_deposits", int64_t{6}}, {"num_treasures", int64_t{1}}}},
      {"cartpole", {{"num_agents", int64_t{1}}}},
      {"cartpole", {{"num_agents", int64_t{5}}, {"max_episode_steps", int64_t{12}}, {"sutton_barto_reward", true}}},
      {"cartpole", {{"velocities", false}}},
      {"catch", {{"num_agents", int64_t{1}}, {"size", int64_t{2}}, {"cells", int64_t{2}}}},
      {"catch", {{"num_agents", int64_t{4}}, {"size", int64_t{84}}, {"cells", int64_t{21}}}},
      {"recall", {{"num_agents", int64_t{1}}, {"delay", int64_t{0}}}},
      {"recall", {{"num_agents", int64_t{5}}, {"num_cues", int64_t{2}}, {"delay", int64_t{7}}, {"distractors", true}}},
      {"rock_paper_scissors", {{"rounds", int64_t{1}}}},
      {"rock_paper_scissors", {{"rounds", int64_t{33}}}},
      {"matching_pennies", {{"rounds", int64_t{3}}}},
      {"matrix_game",
       {{"kind", std::string("zero_sum")},
        {"payoffs", env::ArgList{env::ArgList{1.0, -2.0, int64_t{0}}, env::ArgList{0.5, int64_t{3}, -1.0}}}}},
      {"testing/turn_based", {{"state", std::string("none")}}},
      {"testing/turn_based", {{"state", std::string("per_agent")}, {"length", int64_t{1}}}},
      {"testing/signals", {{"hybrid", true}}},
      {"testing/turn_based", {{"length", int64_t{2}}}},
      {"testing/turn_based", {{"length", int64_t{3}}}},
      {"testing/turn_based", {{"length", int64_t{31}}}},
  };
  for (const Case& c : cases) {
    const env::ConformanceReport report = Check(c);
    EXPECT_TRUE(report.ok()) << c.env << "\n" << report.ToString();
  }
}

TEST(ConformanceTest, FindsEveryFault) {
  const std::map<std::string, env::EnvRule> faults = {
      {"throw", env::EnvRule::kNoError},
      {"nan_obs", env::EnvRule::kObservationValue},
      {"wrong_agent", env::EnvRule::kObservedAgents},
      {"out_of_space", env::EnvRule::kObservationValue},
      {"missing_all", env::EnvRule::kEpisodeEnd},
      {"bad_status", env::EnvRule::kNoError},
  };
  for (const auto& [fault, rule] : faults) {
    const env::ConformanceReport report = Check({"testing/faulty", {{"fault", fault}, {"at_step", int64_t{3}}}});
    EXPECT_FALSE(report.ok()) << fault;
    for (const env::ConformanceLine& line : report.lines)
      EXPECT_EQ(line.ok, line.rule != rule) << fault << "\n" << report.ToString();
    EXPECT_THAT(report.ToString(), HasSubstr("FAIL"));
  }
}

TEST(ConformanceTest, BadArgumentsAreTheFirstLine) {
  const env::ConformanceReport report = Check({"mpe/simple_spread", {{"N", int64_t{0}}}});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.lines[0].rule, env::EnvRule::kSpec);
  EXPECT_THAT(report.lines[0].detail, HasSubstr("mpe/simple_spread: argument N is 0, expected an integer in [1, 512]"));
}

}  // namespace
}  // namespace troupe
