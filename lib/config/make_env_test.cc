#include "lib/config/make_env.h"

#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"

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
  const absl::StatusOr<ResolvedRun> run =
      Resolve(kYaml, {"env.python.processes=3", "env.python.step_timeout_s=2.5", "env.python.max_restarts=7",
                      "env.python.restart_window_s=8", "env.python.start_timeout_s=50"});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->env_spec.name, "python:host_test_envs:counter");
  EXPECT_EQ(run->agent_ids(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(run->env.python.processes, 3);
  EXPECT_EQ(run->env.python.step_timeout, absl::Seconds(2.5));
  EXPECT_EQ(run->env.python.start_timeout, absl::Seconds(50));
  EXPECT_EQ(run->env.python.max_restarts, 7);
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
              AllOf(HasSubstr("env.python: interpreter: got /no/such"), HasSubstr("expected a Python interpreter")));
  EXPECT_THAT(std::string(Resolve(kYaml, {"env.python.step_timeout_s=0"}).status().message()),
              AllOf(HasSubstr("env.python.step_timeout_s: got 0"), HasSubstr("expected a number in (0, 86400]")));
  EXPECT_THAT(std::string(Resolve(kYaml, {"env.python.processes=2000"}).status().message()),
              HasSubstr("env.python.processes: got 2000"));
}

}  // namespace
}  // namespace troupe::config
