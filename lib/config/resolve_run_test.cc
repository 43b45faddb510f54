#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/resolved_run.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using space::Space;

using ResolveRunTest = ResolveFixture;

TEST_F(ResolveRunTest, SharedPolicyWithCentralCriticByDefault) {
  const ResolvedRun run = Resolve("env: {name: team}");
  ASSERT_EQ(run.policies.size(), 1u);
  const policy::PolicySpec& spec = run.policies[0];
  EXPECT_EQ(spec.id.value(), "default_policy");
  EXPECT_EQ(spec.observation_size(), 3);
  EXPECT_EQ(spec.agent_id_size, 3);
  EXPECT_EQ(spec.critic_input(), policy::NetworkInput::kJointObservation);
  EXPECT_EQ(spec.critic_state_size(), 3 * 3 + 3);
  EXPECT_FALSE(spec.critic_agent_id());
  EXPECT_EQ(run.learner.num_envs, 32);
  EXPECT_EQ(run.schema.num_envs, 32u);
  EXPECT_EQ(run.agent_ids(), (std::vector<std::string>{"agent_0", "agent_1", "agent_2"}));
  EXPECT_EQ(run.schema.agent_observation_sizes, (std::vector<int64_t>{3, 3, 3}));
  EXPECT_EQ(MinibatchSize(run, 0), 375);
  EXPECT_EQ(run.stop.env_steps, 1000000);
  EXPECT_EQ(run.experiment.write_interval_env_steps, 10000);
  EXPECT_EQ(run.experiment.checkpoint_interval_env_steps, 100000);
  EXPECT_EQ(run.experiment.first_checkpoint_after, absl::Seconds(10));
  EXPECT_EQ(run.experiment.longest_checkpoint_pause, absl::Minutes(1));
  EXPECT_TRUE(run.experiment.final_checkpoint);
  EXPECT_EQ(run.evaluation.max_episode_steps, 100000);
  EXPECT_EQ(run.evaluation.time_limit, absl::InfiniteDuration());
  EXPECT_EQ(run.evaluation.longest_pause, absl::Hours(1));
  EXPECT_EQ(run.algorithm, "mappo");
  EXPECT_EQ(run.rollout.seed, 1u);
}

TEST_F(ResolveRunTest, IppoHasLocalCritics) {
  const ResolvedRun run = Resolve("env: {name: team}\nalgorithm: {name: ippo, critic_agent_id: true}");
  EXPECT_EQ(run.policies[0].critic_input(), policy::NetworkInput::kObservation);
  EXPECT_EQ(run.policies[0].critic_state_size(), 0);
  EXPECT_TRUE(run.policies[0].critic_agent_id());
  EXPECT_EQ(run.policies[0].critic_input_size(), 6);
}

TEST_F(ResolveRunTest, OnePolicyPerAgentWithoutSharing) {
  const ResolvedRun run = Resolve("env: {name: mixed}\nalgorithm: {use_parameter_sharing: false}");
  ASSERT_EQ(run.policies.size(), 3u);
  EXPECT_EQ(run.policies[2].id.value(), "sheep");
  EXPECT_EQ(run.policies[2].observation_size(), 2);
  EXPECT_EQ(run.policies[0].agent_id_size, 0);
  EXPECT_EQ(run.policies[2].critic_state_size(), 3 + 3 + 2 + 3);
  EXPECT_EQ(run.policies_of_agent[2][0].policy.value(), 2);
  EXPECT_EQ(Resolve("env: {name: mixed}\nmulti_agent: {policy_mapping: per_agent}").policies.size(), 3u);
}

TEST_F(ResolveRunTest, GlobRulesAndModelOverrides) {
  const ResolvedRun run = Resolve(R"(
env: {name: mixed}
model: {actor_hidden_sizes: [16, 16, 16], activation: relu}
multi_agent:
  policies: {wolves: {model: {actor_hidden_sizes: [8]}}, sheep: {}}
  policy_mapping: {"wolf_*": wolves, "*": sheep}
)");
  ASSERT_EQ(run.policies.size(), 2u);
  EXPECT_EQ(run.policies[0].actor.hidden_sizes, (std::vector<int64_t>{8}));
  EXPECT_EQ(run.policies[0].actor.activation, policy::Activation::kRelu);
  EXPECT_EQ(run.policies[1].actor.hidden_sizes, (std::vector<int64_t>{16, 16, 16}));
  EXPECT_EQ(run.policies[0].agent_id_size, 3);
  EXPECT_EQ(run.policies[1].agent_id_size, 0);
  ASSERT_EQ(run.mapping_rules.size(), 2u);
  EXPECT_EQ(run.mapping_rules[0].agent_glob, "wolf_*");
}

TEST_F(ResolveRunTest, PolicyClassesSideBySide) {
  const std::string yaml = R"(
env: {name: masked}
algorithm: {normalize_observations: true}
multi_agent:
  policies: {main: {}, old: {class: "checkpoint:runs/x"}, dice: {class: random}, same: {class: "scripted:always_same"}}
  policy_mapping: {a: main, b: {old: 1, dice: 1, same: 2}}
)";
  const ResolvedRun run = Resolve(yaml);
  ASSERT_EQ(run.policies.size(), 4u);
  EXPECT_EQ(run.learner.trains, (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(run.policies[1].policy_class.path, "runs/x");
  EXPECT_TRUE(run.policies[1].normalize_observations);
  EXPECT_EQ(run.policies[1].critic_input(), policy::NetworkInput::kJointObservation);
  for (const size_t slot : {2, 3}) {
    EXPECT_FALSE(run.policies[slot].normalize_observations);
    EXPECT_EQ(run.policies[slot].critic_input(), policy::NetworkInput::kObservation);
    EXPECT_EQ(run.policies[slot].action_bound_method, policy::ActionBoundMethod::kNone);
    EXPECT_TRUE(run.policies[slot].has_action_mask) << "masks are honoured";
  }
  const std::vector<std::string> only_main = {"multi_agent.policies_to_train=[main]"};
  EXPECT_EQ(Resolve(yaml, only_main).learner.trains, run.learner.trains);
  EXPECT_EQ(
      ErrorOf(yaml, {"multi_agent.policies_to_train=[main, dice]"}),
      "--set multi_agent.policies_to_train=[main, dice]: multi_agent.policies_to_train: got policy \"dice\", which "
      "is of class random and never trained, expected policies of class trained");
}

TEST_F(ResolveRunTest, PolicyClassesThatCannotPlayAreErrorsAtTheirKey) {
  const auto with_class = [](const std::string& env, const std::string& policy_class) {
    return "env: {name: " + env + "}\nmulti_agent: {policies: {p: {class: \"" + policy_class + "\"}}}";
  };
  EXPECT_EQ(ErrorOf(with_class("team", "scripted:beat_lst")),
            "run.yaml:2:37: multi_agent.policies.p.class: there is no scripted policy \"beat_lst\"; the nearest is "
            "\"beat_last\"");
  EXPECT_EQ(ErrorOf(with_class("team", "scripted:beat_last")),
            "run.yaml:2:37: multi_agent.policies.p.class: policy \"p\": class scripted:beat_last plays "
            "rock_paper_scissors only, with observations Box(0, 1, [7]) and actions Discrete(3); these are Box(-1, 1, "
            "[3]) and Discrete(5)");
  EXPECT_NE(ErrorOf(with_class("unbounded", "random"))
                .find("multi_agent.policies.p.class: policy \"p\": class random "
                      "needs a bounded Box"),
            std::string::npos);
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent: {policies: {p: {class: random, model: {activation: relu}}}}"),
            "run.yaml:2:26: multi_agent.policies.p.model: got overrides, but class random has no networks");
  // In the environment's own Box, whatever is said of networks.
  const ResolvedRun scaled = Resolve(with_class("continuous", "random") + "\naction_scaling: true\n");
  EXPECT_FALSE(scaled.policies[0].action_scaling);
}

TEST_F(ResolveRunTest, StatesAreNormalizedAndHaveTheAgentsObservationBehindThem) {
  const ResolvedRun run = Resolve(
      "env: {name: state}\nalgorithm: {use_global_state: true, use_agent_specific_state: true, normalize_state: true}");
  EXPECT_TRUE(run.policies[0].critic_reads_agent_state());
  EXPECT_TRUE(run.policies[0].normalize_state);
  EXPECT_EQ(run.policies[0].critic_input_size(), 7 + 3);
  EXPECT_TRUE(Resolve("env: {name: team}\nalgorithm: {normalize_state: true}").policies[0].normalize_state);
  EXPECT_FALSE(Resolve("env: {name: team}").policies[0].normalize_state);
  EXPECT_EQ(ErrorOf("env: {name: state}\nalgorithm: {use_agent_specific_state: true}"),
            "run.yaml:2:39: algorithm.use_agent_specific_state: got true, but use_global_state is false: there is no "
            "state that the agent's observation could stand behind; expected use_global_state: true");
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {name: ippo, normalize_state: true}"),
            "run.yaml:2:42: algorithm.normalize_state: got true, but the critic of ippo sees its agent's own "
            "observation; expected algorithm.name: mappo");
}

TEST_F(ResolveRunTest, OneOfTheTwoNormalizersOfValues) {
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {use_popart: true}"),
            "run.yaml:2:25: algorithm.use_popart: got true, and so is use_value_norm; expected one of them: PopArt "
            "normalizes values, too. Set use_value_norm: false");
  const ResolvedRun run = Resolve("env: {name: team}\nalgorithm: {use_popart: true, use_value_norm: false}");
  EXPECT_TRUE(Option<bool>(run, 0, "use_popart"));
  EXPECT_FALSE(Option<bool>(run, 0, "use_value_active_masks"));
}

TEST_F(ResolveRunTest, GlobalStateAndWhatTheEnvironmentGives) {
  const ResolvedRun run = Resolve("env: {name: state}\nalgorithm: {use_global_state: true}");
  EXPECT_EQ(run.policies[0].critic_input(), policy::NetworkInput::kState);
  EXPECT_EQ(run.policies[0].critic_state_size(), 7);
  EXPECT_EQ(run.schema.env_state_size, 7);
  EXPECT_EQ(run.schema.agent_state_size, 0);
  EXPECT_TRUE(run.schema.has_agent_mask);
  EXPECT_EQ(run.schema.num_info_columns, 1);
  EXPECT_TRUE(run.schema.SendsEnvState(0).value());
}

TEST_F(ResolveRunTest, TheStateIsSentWhereItIsReadUnlessItIsAskedFor) {
  const ResolvedRun quiet = Resolve("env: {name: state}");
  EXPECT_EQ(quiet.schema.env_state_size, 7);
  EXPECT_FALSE(quiet.schema.SendsEnvState(0).value());
  EXPECT_FALSE(quiet.rollout.always_sends_state);
  const ResolvedRun always = Resolve("env: {name: state, send_state: always}");
  EXPECT_TRUE(always.schema.SendsEnvState(0).value());
  EXPECT_TRUE(always.rollout.always_sends_state) << "workers send what the learner expects";
  EXPECT_EQ(always.schema.Hash(), quiet.schema.Hash()) << "a checkpoint of one goes on with the other";
  EXPECT_NE(always.schema.WorkerHash(), quiet.schema.WorkerHash());
}

TEST_F(ResolveRunTest, AGrantsTimeOutFollowsFromTheEnvironment) {
  const ResolvedRun native = Resolve("env: {name: team, max_abs_return: 500}");
  EXPECT_EQ(native.learner.grant_timeout.fixed, absl::ZeroDuration());
  EXPECT_EQ(native.learner.grant_timeout.first, absl::Seconds(60));
  EXPECT_EQ(native.learner.grant_timeout.first_per_env_step, absl::Milliseconds(10));
  EXPECT_EQ(native.limits.max_abs_return, 500);
  const ResolvedRun strict = Resolve("env: {name: team, max_failed_share: 0.25}");
  EXPECT_EQ(strict.learner.max_failed_share, 0.25);
  EXPECT_EQ(strict.rollout.max_failed_share, 0.25) << "the worker decides by the same share";
}

TEST_F(ResolveRunTest, MasksByDefaultWhereThereAreSome) {
  EXPECT_TRUE(Resolve("env: {name: masked}").policies[0].has_action_mask);
  EXPECT_FALSE(Resolve("env: {name: masked}\nalgorithm: {use_actions_mask: false}").policies[0].has_action_mask);
  EXPECT_FALSE(Resolve("env: {name: team}").policies[0].has_action_mask);
}

TEST_F(ResolveRunTest, NumbersReachTheirOptions) {
  const ResolvedRun run = Resolve(R"(
seed: 9
env: {name: team, args: {N: 4}}
algorithm:
  train_batch_size: 4000
  num_minibatches: 12
  max_policy_lag: 1
  lr: {initial: 1.0e-3, final: 0, env_steps: 100}
  critic_lr: 2.0e-3
  gamma: 0.95
  huber_delta: 10
  max_grad_norm: 10
  common_reward: mean
num_workers: 0
num_envs_per_worker: 160
batch_mode: complete_episodes
rollout_fragment_length: 5
device: cpu
learner_threads: 2
stop: {updates: 10, wall_clock: 1.5, episode_return: 3}
evaluation: {interval: 100, episodes: 7, num_workers: 2, deterministic: true, seed: 4, at_end: false, video_interval: 3, max_episode_steps: 9, time_limit_s: 1.5}
experiment: {directory: out, experiment_name: x, checkpoint_interval: 0, final_checkpoint: false, keep_checkpoints: 2, wandb_kwargs: {project: p, config: {sizes: [1, 2.5, null]}}}
learner: {join_timeout_s: 1, worker_timeout_s: 2.5, grant_timeout_s: 90}
)");
  EXPECT_EQ(run.seed, 9u);
  EXPECT_EQ(run.learner.seed, 9u);
  EXPECT_EQ(std::get<int64_t>(*env::FindArg(run.env.args.values(), "N")), 4);
  EXPECT_EQ(MinibatchSize(run, 0), 1000);
  EXPECT_EQ(Option<policy::ScheduleValue>(run, 0, "lr"), (policy::ScheduleValue{1e-3, 0, 100}));
  EXPECT_EQ(Option<double>(run, 0, "critic_lr"), 2e-3);
  EXPECT_EQ(Option<double>(run, 0, "gamma"), 0.95);
  EXPECT_EQ(Option<double>(run, 0, "huber_delta"), 10);
  EXPECT_EQ(run.learner.max_policy_lag, 1);
  EXPECT_EQ(run.learner.common_reward, learner::CommonReward::kMean);
  EXPECT_EQ(run.learner.num_workers, 0);
  EXPECT_EQ(run.learner.num_envs, 160);
  EXPECT_TRUE(run.learner.complete_episodes);
  EXPECT_EQ(run.batch_mode, rollout::BatchMode::kCompleteEpisodes);
  EXPECT_EQ(run.rollout.max_fragment_env_steps, 5);
  EXPECT_EQ(run.device.device, "cpu");
  EXPECT_EQ(run.device.num_threads, 2);
  EXPECT_EQ(run.stop.env_steps, 0);
  EXPECT_EQ(run.stop.updates, 10);
  EXPECT_EQ(run.stop.wall_clock, absl::Milliseconds(1500));
  ASSERT_EQ(run.stop.episode_return.size(), 1u);
  EXPECT_EQ(run.stop.episode_return[0].score.Text(), "sum");
  EXPECT_EQ(run.stop.episode_return[0].at_least, 3);
  EXPECT_EQ(run.experiment.write_interval_env_steps, 400);
  EXPECT_EQ(run.experiment.checkpoint_interval_env_steps, 0);
  EXPECT_EQ(run.experiment.first_checkpoint_after, absl::InfiniteDuration());
  EXPECT_EQ(run.experiment.longest_checkpoint_pause, absl::InfiniteDuration());
  EXPECT_FALSE(run.experiment.final_checkpoint);
  EXPECT_EQ(run.experiment.keep_checkpoints, 2);
  EXPECT_EQ(run.experiment.directory, "out");
  EXPECT_EQ(std::get<std::string>(*env::FindArg(run.experiment.wandb_kwargs, "project")), "p");
  EXPECT_EQ(env::ArgText(*env::FindArg(run.experiment.wandb_kwargs, "config")), R"({"sizes":[1,2.5,null]})");
  EXPECT_EQ(run.evaluation.interval_env_steps, 100);
  EXPECT_EQ(run.evaluation.episodes, 7);
  EXPECT_EQ(run.evaluation.num_workers, 2);
  EXPECT_TRUE(run.evaluation.deterministic);
  EXPECT_EQ(run.evaluation.seed, 4u);
  EXPECT_FALSE(run.evaluation.at_end);
  EXPECT_EQ(run.evaluation.video_interval, 3);
  EXPECT_EQ(run.evaluation.max_episode_steps, 9);
  EXPECT_EQ(run.evaluation.time_limit, absl::Milliseconds(1500));
  EXPECT_EQ(run.evaluation.longest_pause, absl::InfiniteDuration());
  EXPECT_EQ(run.learner.worker_timeout, absl::Milliseconds(2500));
  EXPECT_EQ(run.learner.grant_timeout.fixed, absl::Seconds(90));
  EXPECT_EQ(run.limits.max_abs_return, 1e12);
  EXPECT_EQ(run.learner.max_failed_share, 0.5);
}

TEST_F(ResolveRunTest, TheCanonicalTextResolvesToTheSameSpecHash) {
  const ResolvedRun run = Resolve("env: {name: mixed}\nmulti_agent: {policy_mapping: {\"wolf_?\": a, sheep: b}}");
  const ResolvedRun again = Resolve(run.config.ToYaml());
  ASSERT_EQ(again.policies.size(), 2u);
  for (size_t i = 0; i < run.policies.size(); ++i) EXPECT_EQ(again.policies[i].ToString(), run.policies[i].ToString());
}

TEST_F(ResolveRunTest, EnvironmentErrorsHaveAPlace) {
  EXPECT_EQ(ErrorOf("seed: 1"),
            "default: env.name: is missing, got none, expected an environment; `troupe envs ls` shows them");
  EXPECT_EQ(TryResolve("env: {name: taem}").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf("env: {name: taem}"),
            "run.yaml:1:13: env.name: there is no environment 'taem', expected one that `troupe envs ls` shows, or "
            "python:MODULE:NAME; did you mean 'team'?");
  EXPECT_EQ(ErrorOf("env:\n  name: team\n  args: {N: 99}\n"),
            "run.yaml:3:13: env.args.N: environment team: argument N is 99, expected an integer in [1, 10]; the "
            "default is 3");
  EXPECT_EQ(ErrorOf("env: {name: team}", {"env.args.n=3"}),
            "--set env.args.n=3: env.args.n: environment team: team has no argument 'n', expected one of N; did you "
            "mean 'N'?");
}

TEST_F(ResolveRunTest, Devices) {
  EXPECT_EQ(
      ErrorOf("env: {name: team}\ndevice: gpu"),
      "run.yaml:2:9: device: got \"gpu\", expected auto, cpu, cuda or cuda:N (N from 0 to 127); auto takes a GPU where "
      "there is one");
  EXPECT_EQ(Resolve("env: {name: team}\ndevice: cuda:1").device.device, "cuda:1");
  EXPECT_EQ(Resolve("env: {name: team}").device.precision, training::Precision::kFloat32);
  EXPECT_EQ(Resolve("env: {name: team}\nprecision: tf32").device.precision, training::Precision::kTf32);
  EXPECT_EQ(Resolve("env: {name: team}\ndevice: cuda\nprecision: bfloat16").device.precision,
            training::Precision::kBfloat16);
  EXPECT_EQ(
      ErrorOf("env: {name: team}\ndevice: cpu\nprecision: bfloat16"),
      "run.yaml:3:12: precision: got bfloat16, but device is cpu, expected float32: the CPU trains in nothing else");
  EXPECT_THAT(ErrorOf("env: {name: team}\nprecision: float16"),
              testing::HasSubstr("precision: got \"float16\", expected one of float32, tf32, bfloat16"));
}

TEST_F(ResolveRunTest, MinibatchLargerThanTheBatch) {
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm:\n  minibatch_size: 12001\n"),
            "run.yaml:3:19: algorithm.minibatch_size: got 12001, expected at most the 12000 rows that a policy has in "
            "a batch of 4000 env steps; lower it, or raise algorithm.train_batch_size");
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {minibatch_size: 12000}"), "OK");
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {use_parameter_sharing: false, minibatch_size: 4001}"),
            "run.yaml:2:59: algorithm.minibatch_size: got 4001, expected at most the 4000 rows that a policy has in a "
            "batch of 4000 env steps; lower it, or raise algorithm.train_batch_size");
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {num_minibatches: 12001}").substr(0, 55),
            "run.yaml:2:30: algorithm.num_minibatches: got 12001, ex");
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {num_minibatches: 2, minibatch_size: 2}"),
            "run.yaml:2:30: algorithm.num_minibatches: got a value besides algorithm.minibatch_size, expected one of "
            "the two");
  EXPECT_EQ(MinibatchSize(Resolve("env: {name: continuous}\nalgorithm: {train_batch_size: 50}"), 0), 50);
}

TEST_F(ResolveRunTest, BatchSmallerThanOneStepOfEveryEnvironment) {
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {train_batch_size: 31}"),
            "run.yaml:2:31: algorithm.train_batch_size: got 31, expected at least one env step for each of the 32 "
            "environments; raise it, or lower num_workers or num_envs_per_worker");
}

TEST_F(ResolveRunTest, BudgetThatCannotHoldTheBatches) {
  const std::string error = ErrorOf("env: {name: team}\nlearner: {ingest_budget_bytes: 1048576}");
  // Two workers' fragments of 4 MiB, and 4000 env steps of at most 401 bytes: the learner's own bounds.
  EXPECT_EQ(error.substr(0, 84),
            "run.yaml:2:32: learner.ingest_budget_bytes: got 1048576, expected at least 9992608 f");
}

TEST_F(ResolveRunTest, MaskWithAContinuousAction) {
  EXPECT_EQ(
      ErrorOf("env: {name: continuous}\nalgorithm: {use_actions_mask: true}"),
      "run.yaml:2:31: algorithm.use_actions_mask: got true, but agent \"a\" has only continuous actions, Box(-2, 2, "
      "[2]), expected a discrete one, too");
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {use_actions_mask: true}"),
            "run.yaml:2:31: algorithm.use_actions_mask: got true, but team gives agent \"agent_0\" no mask");
}

TEST_F(ResolveRunTest, SpaceThatTheAlgorithmCannotServe) {
  EXPECT_EQ(ErrorOf("env: {name: integer}\nalgorithm: {name: ippo}"),
            "run.yaml:2:19: algorithm.name: ippo cannot serve the action space Tuple(Discrete(5), Box(0, 3, [2], "
            "int32)) of agent \"a\", expected Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or "
            "Tuple of them");
}

TEST_F(ResolveRunTest, ActionBounding) {
  EXPECT_EQ(Resolve("env: {name: continuous}\naction_bound_method: tanh\naction_scaling: true")
                .policies[0]
                .action_bound_method,
            policy::ActionBoundMethod::kTanh);
  EXPECT_TRUE(Resolve("env: {name: continuous}\naction_bound_method: tanh").policies[0].action_scaling) << "auto";
  EXPECT_EQ(ErrorOf("env: {name: continuous}\naction_bound_method: tanh\naction_scaling: false")
                .find("run.yaml:2:22: action_bound_method: "),
            0u);
  EXPECT_EQ(ErrorOf("env: {name: unbounded}\naction_bound_method: tanh").find("run.yaml:2:22: action_bound_method: "),
            0u);
  EXPECT_NE(ErrorOf("env: {name: unbounded}\naction_scaling: true").find("run.yaml:2:17: action_scaling: "),
            std::string::npos);
}

TEST_F(ResolveRunTest, GlobalStateThatIsNotThere) {
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {use_global_state: true}"),
            "run.yaml:2:31: algorithm.use_global_state: got true, but team has no global state; expected false (the "
            "critic sees all observations)");
  EXPECT_EQ(ErrorOf("env: {name: state}\nalgorithm: {use_global_state: true, name: ippo}"),
            "run.yaml:2:31: algorithm.use_global_state: got true, but the critic of ippo sees its agent's own "
            "observation; expected algorithm.name: mappo");
}

TEST_F(ResolveRunTest, PolicyMistakes) {
  EXPECT_EQ(ErrorOf("env: {name: mixed}"),
            "default: multi_agent.policy_mapping: agents \"wolf_0\" and \"sheep\" of policy \"default_policy\" have "
            "different observation spaces: Box(-1, 1, [3]) and Box(-1, 1, [2]), expected equal ones; give them "
            "policies of their own: policy_mapping: per_agent, or rules "
            "as {\"wolf_0\": ..., \"*\": ...}");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent: {policies: [blue, red], policy_mapping: {\"*\": rde}}"),
            "run.yaml:2:60: multi_agent.policy_mapping.*: got policy \"rde\", expected one that multi_agent.policies "
            "lists; the nearest is \"red\"");
  EXPECT_NE(ErrorOf("env: {name: team}\nmulti_agent: {policy_mapping: {agent_0: a}}")
                .find("run.yaml:2:31: multi_agent.policy_mapping: "),
            std::string::npos);
  EXPECT_EQ(
      ErrorOf("env: {name: team}\nmulti_agent: {policies: [a]}\nalgorithm: {use_parameter_sharing: false}"),
      "run.yaml:3:36: algorithm.use_parameter_sharing: got false, but multi_agent gives policy \"a\" to 3 agents");
  EXPECT_NE(ErrorOf("env: {name: odd name}\nmulti_agent: {policy_mapping: per_agent}")
                .find("run.yaml:2:31: multi_agent.policy_mapping: an agent's id cannot be the name of its policy: "),
            std::string::npos);
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent: {policies: [agent_0], policy_mapping: per_agent}"),
            "run.yaml:2:25: multi_agent.policies: per_agent needs a policy named as each agent, got none for "
            "\"agent_1\"");
}

TEST_F(ResolveRunTest, WeightedMapping) {
  const ResolvedRun run = Resolve(R"(
env: {name: mixed}
multi_agent:
  policy_mapping: {"wolf_*": {hunter: 3, idler: 1}, sheep: sheep}
)");
  ASSERT_EQ(run.policies.size(), 3u);
  EXPECT_EQ(run.policies[1].id.value(), "idler");
  EXPECT_EQ(run.policies[1].observation_size(), 3);
  EXPECT_EQ(run.policies[1].agent_id_size, 3) << "it may play either wolf";
  ASSERT_EQ(run.policies_of_agent[0].size(), 2u);
  EXPECT_EQ(run.policies_of_agent[0][0].probability, 0.75);
  EXPECT_EQ(run.policies_of_agent[2].size(), 1u);
  EXPECT_EQ(run.mapping_rules[0].policies[1].weight, 1.0);
  // The default counts on the one with the most: the hunter is expected to have 6000 rows.
  EXPECT_EQ(MinibatchSize(run, 0), 187);
  // What is written reads back as the same.
  const auto again = RunConfig::FromYaml(run.config.ToYaml(), "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToYaml(), run.config.ToYaml());
  EXPECT_NE(ErrorOf("env: {name: mixed}\nmulti_agent: {policy_mapping: {\"*\": {a: 1, b: 1}}}")
                .find("have different observation spaces"),
            std::string::npos);
}

TEST_F(ResolveRunTest, MinibatchesOfDrawnPolicies) {
  const std::string drawn = "env: {name: team}\nmulti_agent: {policy_mapping: {\"*\": {a: 1, b: 1, c: 4}}}\n";
  // c is expected to have two thirds of the rows of three agents; how many it gets is left to chance.
  EXPECT_EQ(MinibatchSize(Resolve(drawn + "algorithm: {train_batch_size: 3200}"), 0), 200);
  EXPECT_EQ(MinibatchSize(Resolve(drawn + "num_envs: 5\nalgorithm: {train_batch_size: 25}"), 0), 50);
  EXPECT_EQ(MinibatchSize(Resolve(drawn + "algorithm: {train_batch_size: 100, minibatch_size: 300}"), 0), 300);
  EXPECT_NE(ErrorOf(drawn + "algorithm: {train_batch_size: 100, minibatch_size: 301}")
                .find("algorithm.minibatch_size: got 301, expected at most the 300 rows"),
            std::string::npos);
}

TEST_F(ResolveRunTest, PoliciesToTrain) {
  const std::string two = "env: {name: mixed}\nmulti_agent: {policy_mapping: {\"wolf_*\": wolves, sheep: sheep}";
  EXPECT_EQ(Resolve(two + "}").learner.trains, (std::vector<bool>{true, true}));
  EXPECT_EQ(Resolve(two + ", policies_to_train: [sheep]}").learner.trains, (std::vector<bool>{false, true}));
  EXPECT_EQ(Resolve(two + ", policies_to_train: []}").learner.trains, (std::vector<bool>{false, false}));
  EXPECT_NE(
      ErrorOf(two + ", policies_to_train: [shep]}")
          .find("multi_agent.policies_to_train: got policy \"shep\", expected one that multi_agent.policies lists; "
                "the nearest is \"sheep\""),
      std::string::npos);
}

TEST_F(ResolveRunTest, ThePolicyMapIsConfigured) {
  const ResolvedRun plain = Resolve("env: {name: team}");
  EXPECT_EQ(plain.policy_map.capacity, 100);
  EXPECT_EQ(plain.policy_map.host_budget_bytes, int64_t{1} << 30);
  EXPECT_FALSE(plain.policy_map.states_are_swappable);
  EXPECT_EQ(plain.policy_map_cache, "");
  const ResolvedRun set = Resolve(
      "env: {name: team}\nmulti_agent: {policy_mapping: per_agent, policy_map_capacity: 2, policy_map_cache: /fast, "
      "policy_map_host_budget_bytes: 0, policy_states_are_swappable: true}");
  EXPECT_EQ(set.policy_map.capacity, 2);
  EXPECT_EQ(set.rollout.policy_map_capacity, 2) << "workers have a map of their own";
  EXPECT_EQ(set.policy_map.host_budget_bytes, 0);
  EXPECT_TRUE(set.policy_map.states_are_swappable);
  EXPECT_EQ(set.policy_map_cache, "/fast");
  for (const char* capacity : {"0", "-1"}) {
    EXPECT_EQ(ErrorOf(absl::StrCat("env: {name: team}\nmulti_agent: {policy_map_capacity: ", capacity, "}")),
              absl::StrCat("run.yaml:2:36: multi_agent.policy_map_capacity: got ", capacity,
                           ", expected an integer in [1, 1000000]; the default is 100"));
  }
  EXPECT_EQ(ErrorOf("env: {name: mixed}\nmulti_agent: {policy_mapping: per_agent, policy_states_are_swappable: true}")
                .find("run.yaml:2:71: multi_agent.policy_states_are_swappable: got true, but policies \"wolf_0\" and "
                      "\"sheep\" cannot swap their states: got "),
            0u);
}

TEST_F(ResolveRunTest, ExperimentNameStaysOneFolder) {
  for (const char* name : {"a/b", "..", "\"a\\x01\""}) {
    EXPECT_NE(ErrorOf("env: {name: team}\nexperiment: {experiment_name: " + std::string(name) + "}")
                  .find("run.yaml:2:31: experiment.experiment_name: expected a folder's name"),
              std::string::npos);
  }
}

TEST_F(ResolveRunTest, CallbacksAreNamesOfPython) {
  const absl::StatusOr<ResolvedRun> run =
      TryResolve("env: {name: team}\ncallbacks: ['python:m:C', 'python:my/file.py:D']\n");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->callbacks, std::vector<std::string>({"python:m:C", "python:my/file.py:D"}));
  EXPECT_EQ(ErrorOf("env: {name: team}\ncallbacks: [m:C]\n"),
            "run.yaml:2:12: callbacks: got \"m:C\", expected python:MODULE:NAME");
  std::string many = "env: {name: team}\ncallbacks: [";
  for (int i = 0; i < 17; ++i) absl::StrAppend(&many, "'python:m:C", i, "', ");
  const std::string error = ErrorOf(many + "]\n");
  EXPECT_NE(error.find("expected a list of 0 to 16 strings"), std::string::npos) << error;
}

TEST(ExperimentNameTest, HasSkrlsForm) {
  const std::string name = MakeExperimentName("mappo", absl::FromUnixMicros(1700000000000042));
  EXPECT_EQ(name.size(), std::string("YY-MM-DD_HH-MM-SS-SSSSSS_MAPPO").size());
  EXPECT_EQ(name.substr(17), "-000042_MAPPO");
}

TEST_F(ResolveRunTest, BatchesMayBeCountedInAgentSteps) {
  const std::string yaml = "env: {name: team}\nmulti_agent: {count_steps_by: agent_steps}\n";
  const ResolvedRun run = Resolve(yaml + "algorithm: {train_batch_size: 3000}\nrollout_fragment_length: 10\n");
  EXPECT_EQ(run.learner.count_steps_by, learner::CountStepsBy::kAgentSteps);
  EXPECT_EQ(run.learner.train_batch_size, 3000);
  EXPECT_EQ(run.rollout.max_fragment_env_steps, 3) << "ten agent steps hold three env steps of three agents";
  EXPECT_EQ(Resolve("env: {name: team}").learner.count_steps_by, learner::CountStepsBy::kEnvSteps);
  // 1000 env steps of three agents who share a policy.
  EXPECT_EQ(MinibatchSize(Resolve(yaml + "algorithm: {train_batch_size: 3000, num_minibatches: 4}"), 0), 750);
  EXPECT_EQ(ErrorOf(yaml + "algorithm: {train_batch_size: 3000, num_minibatches: 3001}"),
            "run.yaml:3:54: algorithm.num_minibatches: got 3001, expected at most the 3000 rows that a policy has in a "
            "batch of 3000 agent steps; lower it, or raise algorithm.train_batch_size");
  EXPECT_EQ(ErrorOf(yaml + "algorithm: {train_batch_size: 95}"),
            "run.yaml:3:31: algorithm.train_batch_size: got 95, expected at least one env step of 3 agents for each of "
            "the 32 environments; raise it, or lower num_workers or num_envs_per_worker");
  EXPECT_EQ(ErrorOf(yaml + "rollout_fragment_length: 2"),
            "run.yaml:3:26: rollout_fragment_length: got 2, expected at least the 3 agent steps that an env step may "
            "have (multi_agent.count_steps_by: agent_steps)");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent: {count_steps_by: steps}"),
            "run.yaml:2:31: multi_agent.count_steps_by: got \"steps\", expected one of env_steps, agent_steps; the "
            "default is env_steps");
}

TEST_F(ResolveRunTest, TrainTimesAreJoinedAsAsked) {
  const auto joined = [this](const std::string& yaml) { return Resolve(yaml).learner.train_time_aggregator; };
  EXPECT_EQ(joined("env: {name: team}"), learner::TrainTimeAggregator::kMax);
  EXPECT_EQ(joined("env: {name: team}\nmulti_agent: {train_time_aggregator: min}"), learner::TrainTimeAggregator::kMin);
  EXPECT_EQ(joined("env: {name: team}\nmulti_agent: {train_time_aggregator: mean}"),
            learner::TrainTimeAggregator::kMean);
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent: {train_time_aggregator: sum}"),
            "run.yaml:2:38: multi_agent.train_time_aggregator: got \"sum\", expected one of min, max, mean; the "
            "default is max");
}

}  // namespace
}  // namespace troupe::config
