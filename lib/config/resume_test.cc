// A run that is resumed: what its configuration may say, and what it keeps.

#include <string>
#include <vector>

#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/config/testing/resolve_fixture.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using ResolveRunTest = ResolveFixture;

TEST_F(ResolveRunTest, ResumeMayChangeWhatTheListSays) {
  const std::string base = "env: {name: team, args: {N: 3}}\nmulti_agent: {policies: [a]}\n";
  const RunConfig old_config = *RunConfig::FromYaml(base, "old.yaml");
  const auto resumed = [&](const std::vector<std::string>& overrides) {
    return ResumeConfig(old_config, *RunConfig::FromYaml(base, "new.yaml", overrides)).status();
  };
  EXPECT_TRUE(resumed({}).ok());
  EXPECT_TRUE(
      resumed({"stop.env_steps=5e6", "num_workers=7", "evaluation.interval=10", "experiment.wandb=true", "device=cuda",
               "callbacks=['python:m:C']", "precision=tf32", "env.max_abs_return=5", "env.max_failed_share=1",
               "env.send_state=always", "env.plugin=/opt/a.so", "learner_threads=1", "learner.join_timeout_s=1",
               "multi_agent.policy_map_capacity=3", "multi_agent.policy_map_cache=x"})
          .ok());
  const absl::Status refused = resumed({"algorithm.gamma=0.5"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(),
            "--set algorithm.gamma=0.5: algorithm.gamma: got 0.5, but the run was started with 0.99; a resumed run may "
            "change stop, num_workers, evaluation, experiment, device, precision, "
            "env.max_abs_return, "
            "env.max_failed_share, env.send_state, env.plugin, env.external.address, env.external.max_episodes, "
            "env.external.idle_timeout_s, "
            "env.python.interpreter, env.python.processes, env.python.start_timeout_s, env.python.step_timeout_s, "
            "env.python.max_restarts, "
            "env.python.restart_window_s, env.python.fork_server, env.python.path, env.python.folder, learner_threads, "
            "learner, callbacks, "
            "multi_agent.policies_to_train, multi_agent.policy_map_capacity, "
            "multi_agent.policy_map_host_budget_bytes, multi_agent.policy_map_cache, "
            "multi_agent.policy_states_are_swappable");
  for (const char* change :
       {"seed=2", "env.args.N=4", "env.name=state", "multi_agent.policies=[b]", "num_envs_per_worker=3",
        "model.activation=relu", "algorithm.lr=1", "batch_mode=complete_episodes"}) {
    EXPECT_EQ(resumed({change}).code(), absl::StatusCode::kFailedPrecondition) << change;
    EXPECT_EQ(resumed({change}).message().find('\n'), absl::string_view::npos) << resumed({change});
  }
}

TEST_F(ResolveRunTest, AResumedRunKeepsItsEnvironments) {
  const RunConfig started =
      *RunConfig::FromYaml("env: {name: team}\nnum_workers: 2\nnum_envs_per_worker: 8\n", "run.yaml");
  const RunConfig fewer = *RunConfig::FromYaml(started.ToYaml(), "config.yaml", {"num_workers=1"});
  EXPECT_EQ(TotalEnvs(fewer), 8);
  const absl::StatusOr<RunConfig> resumed = ResumeConfig(started, fewer);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(TotalEnvs(*resumed), 16);
  const absl::StatusOr<ResolvedRun> before = ResolveRun(started, registry_);
  const absl::StatusOr<ResolvedRun> after = ResolveRun(*resumed, registry_);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(after->learner.num_envs, 16);
  EXPECT_EQ(after->num_workers, 1);
  EXPECT_EQ(after->schema.Hash(), before->schema.Hash()) << "the checkpoint would be another run's";
  // And again, from the configuration that the resumed run left.
  const absl::StatusOr<RunConfig> again =
      ResumeConfig(*resumed, *RunConfig::FromYaml(resumed->ToYaml(), "config.yaml", {"num_workers=5"}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(TotalEnvs(*again), 16);
  EXPECT_EQ(ResumeConfig(started, started)->ToYaml(), started.ToYaml());

  const RunConfig other = *RunConfig::FromYaml(started.ToYaml(), "config.yaml", {"num_envs=17"});
  EXPECT_EQ(ResumeConfig(started, other).status().message().substr(0, 75),
            "--set num_envs=17: num_envs: got 17, but the run was started with 16; a res");
}

TEST_F(ResolveRunTest, AResumeKeepsTheOrderOfArguments) {
  const auto config = [](const std::string& args) {
    return *RunConfig::FromYaml("env: {name: team, args: " + args + "}", "run.yaml");
  };
  const RunConfig written = config("{teams: {red: 2, blue: [{z: 1, a: 2}]}, N: 3}");
  EXPECT_EQ(ResumeConfig(written, written)->ToYaml(), written.ToYaml());
  // A version before sorted them: such a run stays as it was, whatever the order in its file.
  const RunConfig sorted = config("{N: 3, teams: {blue: [{a: 2, z: 1}], red: 2}}");
  const absl::StatusOr<RunConfig> resumed = ResumeConfig(sorted, written);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->ToYaml(), sorted.ToYaml());
  // In another order the environment is another one.
  EXPECT_EQ(ResumeConfig(written, sorted).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ResumeConfig(sorted, config("{teams: {red: 2, blue: [{z: 1, a: 3}]}, N: 3}")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const auto world = [](const std::string& spaces) {
    return *RunConfig::FromYaml("env: {external: {spaces: " + spaces + "}}", "run.yaml");
  };
  EXPECT_EQ(ResumeConfig(world("{a: {x: 1}, b: {x: 2}}"), world("{b: {x: 2}, a: {x: 1}}"))->ToYaml(),
            world("{a: {x: 1}, b: {x: 2}}").ToYaml());
}

}  // namespace
}  // namespace troupe::config
