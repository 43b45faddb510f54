#include "lib/config/make_env.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/env/slot_buffers.h"
#include "lib/policy/policy_entry.h"

namespace troupe::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char kYaml[] = R"(env:
  name: python:host_test_envs:counter
  args: {length: 7}
  python:
    interpreter: )" TROUPE_TEST_PYTHON R"(
    path: )" TROUPE_SOURCE_DIR R"(/lib/envhost/testing
)";

absl::StatusOr<ResolvedRun> Resolve(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  if (!config.ok()) return config.status();
  return ResolveRun(*config, env::EnvRegistry());
}

TEST(MakePythonEnvTest, AConfigurationNamesIt) {
  const absl::StatusOr<ResolvedRun> run = Resolve(
      kYaml, {"env.python.processes=3", "env.python.step_timeout_s=2.5", "env.python.max_restarts=7",
              "env.python.restart_window_s=8", "env.python.start_timeout_s=50", "env.python.fork_server=false"});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->env_spec.name, "python:host_test_envs:counter");
  EXPECT_EQ(run->agent_ids(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(run->env.python.processes, 3);
  EXPECT_EQ(run->env.python.step_timeout, absl::Seconds(2.5));
  EXPECT_EQ(run->env.python.start_timeout, absl::Seconds(50));
  EXPECT_EQ(run->env.python.max_restarts, 7);
  EXPECT_EQ(run->learner.grant_timeout.first, absl::Seconds(50)) << "what time-outs allow the first grant";
  EXPECT_EQ(run->learner.grant_timeout.first_per_env_step, absl::Seconds(2.5));
  EXPECT_FALSE(run->env.python.fork_server);
  EXPECT_EQ(run->env.python.restart_window, absl::Seconds(8));
  const absl::StatusOr<std::shared_ptr<envhost::HostPool>> pool = MakeHostPool(run->env);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->num_processes(), 3);
  for (int i = 0; i < 4; ++i) {
    const auto env = MakeEnv(run->env, env::EnvRegistry(), nullptr, *pool);
    ASSERT_TRUE(env.ok()) << env.status();
    EXPECT_EQ((*env)->spec().ToString(), run->env_spec.ToString());
  }
}

TEST(MakePythonEnvTest, TheGlobalStateIsAskedForWhereACriticUsesIt) {
  const std::string everything =
      absl::StrReplaceAll(kYaml, {{":counter", ":Everything"}, {"  args: {length: 7}\n", ""}});
  const auto state_kind = [&](const std::vector<std::string>& overrides) {
    const absl::StatusOr<ResolvedRun> run = Resolve(everything, overrides);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? run->env_spec.state_kind : env::StateKind::kPerEnv;
  };
  EXPECT_EQ(state_kind({}), env::StateKind::kNone);
  EXPECT_EQ(state_kind({"algorithm.name=mappo"}), env::StateKind::kNone) << "its critic sees all observations";
  EXPECT_EQ(state_kind({"algorithm.name=mappo", "algorithm.use_global_state=true"}), env::StateKind::kPerAgent);
  EXPECT_EQ(state_kind({"algorithm.name=mappo", "multi_agent.policies={main: {algorithm: {use_global_state: true}}}"}),
            env::StateKind::kPerAgent);
  EXPECT_EQ(state_kind({"env.python.global_state=true"}), env::StateKind::kPerAgent);
  EXPECT_THAT(std::string(Resolve(everything, {"algorithm.name=mappo", "algorithm.use_global_state=true",
                                               "env.python.global_state=false"})
                              .status()
                              .message()),
              HasSubstr("has no global state"));
}

TEST(MakePythonEnvTest, NativeEnvironmentsHaveNoPool) {
  EnvSettings settings;
  settings.name = "mpe/simple_spread";
  EXPECT_EQ(*MakeHostPool(settings), nullptr);
}

TEST(MakePythonEnvTest, WhatIsWrongIsSaidWithItsPlace) {
  EXPECT_THAT(
      std::string(Resolve(kYaml, {"env.args.size=3"}).status().message()),
      AllOf(StartsWith("run.yaml:2:9: env.name: environment python:host_test_envs:counter: "), HasSubstr("size")));
  EXPECT_THAT(std::string(Resolve(kYaml, {"env.python.interpreter=/no/such"}).status().message()),
              AllOf(StartsWith("--set env.python.interpreter=/no/such: env.python.interpreter: got /no/such"),
                    HasSubstr("expected a Python interpreter")));
  EXPECT_THAT(std::string(Resolve(kYaml, {"env.python.step_timeout_s=0"}).status().message()),
              AllOf(HasSubstr("env.python.step_timeout_s: got 0"), HasSubstr("expected a number in (0, 86400]")));
  EXPECT_THAT(std::string(Resolve(kYaml, {"env.python.processes=2000"}).status().message()),
              HasSubstr("env.python.processes: got 2000"));
}

/// The agents' observation space, mask and state after a reset of an environment of dict_observations.py. `options`:
/// further keys of `env`.
std::string Shown(const std::string& kind, const std::string& keys, const std::string& options = "") {
  const std::string yaml = absl::StrCat("env: {name: \"python:dict_observations:", kind, "\", args: {keys: \"", keys,
                                        "\"}, python: {interpreter: " TROUPE_TEST_PYTHON ", path: " TROUPE_SOURCE_DIR
                                        "/lib/config/testing, global_state: true}",
                                        options, "}");
  const absl::StatusOr<ResolvedRun> run = Resolve(yaml);
  if (!run.ok()) return run.status().ToString();
  const auto env = MakeEnv(run->env, env::EnvRegistry());
  if (!env.ok()) return env.status().ToString();
  const env::EnvSpec& spec = (*env)->spec();
  env::SlotBuffers got(spec, 1);
  const absl::Status reset = (*env)->Reset({}, got.BeginStep(0));
  if (!reset.ok()) return reset.ToString();
  std::string text;
  for (int32_t slot = 0; slot < spec.num_agents(); ++slot) {
    const env::AgentSpec& agent = spec.possible_agents[static_cast<size_t>(slot)];
    absl::StrAppend(&text, slot > 0 ? "; " : "", agent.observation_space.ToString());
    if (agent.has_action_mask) absl::StrAppend(&text, " mask ", absl::StrJoin(got.action_mask(0, slot), " "));
    if (spec.state_kind != env::StateKind::kNone) {
      absl::StrAppend(&text, " state ", absl::StrJoin(got.state(0, slot), " "));
    }
  }
  return text;
}

TEST(MakePythonEnvTest, KeysOfDictObservations) {
  const std::string box = "Box(0, 1, [2])";
  const std::string masked = box + " mask 0 1 1";
  EXPECT_EQ(Shown("Gymnasium", "action_mask"), masked);
  EXPECT_EQ(Shown("Gymnasium", "legal", ", action_mask_key: legal"), masked);
  EXPECT_EQ(Shown("Gymnasium", "legal"), "Dict{legal: Box(0, 1, [3]), observation: Box(0, 1, [2])}");
  // One agent's state is what it observes.
  EXPECT_EQ(Shown("Gymnasium", "state"), "Dict{observation: Box(0, 1, [2]), state: Box(0, 1, [3])}");
  for (const std::string kind : {"Parallel", "Dicts"}) {
    EXPECT_EQ(Shown(kind, "action_mask"), masked + "; " + masked) << kind;
    EXPECT_EQ(Shown(kind, "legal", ", action_mask_key: legal"), masked + "; " + masked) << kind;
    const std::string all = masked + " state 0 1 1";
    EXPECT_EQ(Shown(kind, "action_mask,state"), all + "; " + all) << kind;
    EXPECT_EQ(Shown(kind, "legal,world", ", action_mask_key: legal, state_key: world"), all + "; " + all) << kind;
    // `action_mask` and `state` are taken before: other keys come on top of them.
    EXPECT_EQ(Shown(kind, "action_mask,legal,state", ", action_mask_key: legal, state_key: \"\""), all + "; " + all);
  }
}

}  // namespace
}  // namespace troupe::config
