#include "lib/config/external.h"

#include "lib/config/permits.h"
#include "lib/config/resolved_run.h"
#include "lib/config/worker_yaml.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

constexpr char kWorld[] = R"yaml(
env:
  external:
    state_space: "Box(-1, 1, [3])"
    spaces:
      hunter: {obs_space: "Box(-1, 1, [4])", act_space: "Discrete(3)", action_mask: true}
      prey: {obs_space: "Box(-1, 1, [2])", act_space: "Box(-1, 1, [1])"}
multi_agent: {policy_mapping: per_agent}
)yaml";

RunConfig ParseWorld(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : RunConfig();
}

absl::StatusOr<ResolvedRun> Resolve(const RunConfig& config) {
  env::EnvRegistry registry;
  return ResolveRun(config, registry);
}

std::string WorldErrorOf(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  if (!config.ok()) return std::string(config.status().message());
  const absl::StatusOr<ResolvedRun> run = Resolve(*config);
  return run.ok() ? "it resolves" : std::string(run.status().message());
}

TEST(ExternalTest, SpacesMakeTheEnvironment) {
  const absl::StatusOr<ResolvedRun> run = Resolve(ParseWorld(kWorld));
  ASSERT_TRUE(run.ok()) << run.status();
  const env::EnvSpec& spec = run->env_spec;
  EXPECT_EQ(spec.name, "external");
  ASSERT_EQ(spec.num_agents(), 2);
  EXPECT_EQ(spec.possible_agents[0].id.value(), "hunter");
  EXPECT_TRUE(spec.possible_agents[0].has_action_mask);
  EXPECT_EQ(spec.possible_agents[1].action_space.ToString(), "Box(-1, 1, [1])");
  EXPECT_EQ(spec.state_kind, env::StateKind::kPerEnv);
  EXPECT_FALSE(run->evaluation.at_end) << "nobody but its clients plays it";
  EXPECT_GE(run->learner.grant_timeout.fixed, absl::Hours(24)) << "nobody knows when a client comes";
}

// They were sorted by name.
TEST(ExternalTest, AgentsHaveTheOrderOfTheFile) {
  const std::string agent = ": {obs_space: \"Box(-1, 1, [4])\", act_space: \"Discrete(3)\"}";
  const RunConfig config = ParseWorld("env: {external: {spaces: {zed" + agent + ", abe" + agent +
                                      "}}}\nmulti_agent: {policies: [first, second]}");
  for (const RunConfig& each : {config, ParseWorld(config.ToYaml()), ParseWorld(WelcomeYaml(config, {}))}) {
    const absl::StatusOr<ResolvedRun> run = Resolve(each);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->agent_ids(), (std::vector<std::string>{"zed", "abe"}));
    EXPECT_EQ(run->mapping_rules[0].agent_glob, "zed");
    EXPECT_EQ(run->mapping_rules[0].policies[0].policy.value(), "first");
  }
}

TEST(ExternalTest, NoWorldIsOutsideUnlessTheConfigurationSaysSo) {
  EXPECT_FALSE(IsExternal(ParseWorld("env: {name: cartpole}")));
  EXPECT_FALSE(IsExternal(ParseWorld("env: {name: cartpole, external: {address: \"127.0.0.1:1\"}}")))
      << "an address without spaces opens no door";
}

TEST(ExternalTest, WhatIsWrongIsSaidWithItsPlace) {
  EXPECT_EQ(WorldErrorOf("env:\n  external: {spaces: {a: {obs_space: \"Box(-1, 1, [4])\"}}}"),
            "run.yaml:2:26: env.external.spaces.a.act_space: is missing, expected a space as text");
  EXPECT_EQ(WorldErrorOf(kWorld, {"env.name=cartpole"}),
            "--set env.name=cartpole: env.name: got \"cartpole\" beside env.external.spaces, expected one of the two");
  EXPECT_EQ(WorldErrorOf(kWorld, {"evaluation.interval=100"}),
            "--set evaluation.interval=100: evaluation.interval: got 100, expected 0: nobody but its clients plays a "
            "world outside");
  EXPECT_EQ(WorldErrorOf("env: {external: {spaces: {a: {obs: 1}}}}"),
            "run.yaml:1:30: env.external.spaces.a.obs: unknown key; an agent has obs_space, act_space and action_mask");
  EXPECT_EQ(WorldErrorOf("env: {external: {spaces: {a: 3}}}"),
            "run.yaml:1:30: env.external.spaces.a: expected {obs_space, act_space, action_mask}");
  EXPECT_EQ(WorldErrorOf(kWorld, {"env.groups={both: [hunter, prey]}"}),
            "run.yaml:3:3: env.groups: got 1 groups beside env.external.spaces, expected "
            "none: clients speak for each agent");
}

// A learner cannot open a port on a worker whose user did not say where.
TEST(ExternalTest, AWorkerOpensNoDoorThatItsOwnSideDoesNotName) {
  const RunConfig asked = ParseWorld(WelcomeYaml(ParseWorld(kWorld, {"env.external.address=0.0.0.0:1"})));
  const absl::StatusOr<Permits> nothing = Permits::Make(RunConfig(), {});
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->Admit(asked).status().code(), absl::StatusCode::kPermissionDenied);
  const absl::StatusOr<Permits> own = Permits::Make(ParseWorld(kWorld, {"env.external.address=unix:/own.sock"}), {});
  ASSERT_TRUE(own.ok());
  const absl::StatusOr<RunConfig> admitted = own->Admit(asked);
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  EXPECT_EQ(ExternalOptionsOf(*admitted).address, "unix:/own.sock") << "where it is its own side says alone";
  EXPECT_EQ(ExternalOptionsOf(*admitted).max_episodes, 1024u);
}

}  // namespace
}  // namespace troupe::config
