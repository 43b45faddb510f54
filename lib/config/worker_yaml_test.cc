#include "lib/config/worker_yaml.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lib/config/resolved_run.h"
#include "lib/config/schema.h"
#include "lib/config/yaml_writer.h"
#include "lib/envs/register_all.h"
#include "proto/troupe/v1/config.pb.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

constexpr char kCanary[] = "canary-8f1e";

/// Everything that no worker reads. A new key belongs here, or into WorkerKeys: whoever adds one decides.
const std::set<std::string> kLearnerKeys = {
    // where Python is on the worker's machine, the worker says
    "env.python.interpreter", "env.python.path", "env.python.folder",
    // what is trained, and how
    "preset", "evaluation.env", "multi_agent.policies_to_train", "multi_agent.policy_map_host_budget_bytes",
    "multi_agent.policy_map_cache", "multi_agent.policy_states_are_swappable", "multi_agent.load_parameters",
    "multi_agent.train_time_aggregator", "algorithm.minibatch_size", "algorithm.num_minibatches",
    "algorithm.minibatch_by", "algorithm.num_epochs", "algorithm.lr", "algorithm.critic_lr", "algorithm.adam_epsilon",
    "algorithm.adam_beta1", "algorithm.adam_beta2", "algorithm.gae_lambda", "algorithm.use_gae",
    "algorithm.use_advnorm", "algorithm.use_value_norm", "algorithm.use_popart", "algorithm.use_policy_active_masks",
    "algorithm.use_value_active_masks", "algorithm.death_masking", "algorithm.q_lambda", "algorithm.epsilon",
    "algorithm.mixer", "algorithm.vtrace_lambda", "algorithm.vtrace_clip_rho_threshold",
    "algorithm.vtrace_clip_pg_rho_threshold", "algorithm.circular_buffer_num_batches",
    "algorithm.circular_buffer_iterations_per_batch", "algorithm.target_network_update_freq", "algorithm.tau",
    "algorithm.clip_param", "algorithm.use_value_clip", "algorithm.value_clip_param", "algorithm.value_loss_coeff",
    "algorithm.huber_delta", "algorithm.optimizer", "algorithm.weight_decay", "algorithm.momentum",
    "algorithm.rmsprop_alpha", "algorithm.rmsprop_epsilon", "algorithm.clip_grad_norm_by",
    "algorithm.time_limit_bootstrap", "algorithm.frozen_parameters", "algorithm.lr_kl_target", "algorithm.lr_kl_factor",
    "algorithm.lr_kl_step", "algorithm.min_lr", "algorithm.max_lr", "algorithm.use_kl_loss", "algorithm.kl_coeff",
    "algorithm.kl_target", "algorithm.entropy_coeff", "algorithm.target_kl", "algorithm.max_grad_norm",
    "algorithm.common_reward", "device", "precision", "learner_threads", "learner.join_timeout_s",
    "learner.worker_timeout_s", "learner.grant_timeout_s", "env.max_abs_return",
    // the door is where the worker's own side says
    "env.external.address", "env.external.max_episodes", "env.external.idle_timeout_s",
    // when it ends, what is measured, and where results go
    "stop.env_steps", "stop.agent_steps", "stop.updates", "stop.wall_clock", "stop.episode_return", "callbacks",
    "evaluation.interval", "evaluation.episodes", "evaluation.num_workers", "evaluation.deterministic",
    "evaluation.parallel", "evaluation.seed", "evaluation.at_end", "evaluation.video_interval",
    "evaluation.max_episode_steps", "evaluation.time_limit_s", "experiment.final_checkpoint", "experiment.directory",
    "experiment.experiment_name", "experiment.write_interval", "experiment.checkpoint_interval",
    "experiment.keep_checkpoints", "experiment.store_separately", "experiment.wandb", "experiment.wandb_kwargs",
    "experiment.best_by"};

RunConfig Parse(std::string_view yaml) {
  absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : RunConfig();
}

/// A configuration in which nearly every key differs from its default.
RunConfig Rich() {
  return Parse(R"(
seed: 7
env:
  name: mpe/simple_spread
  args: {N: 2, max_cycles: 5}
  python: {folder: /learners/files}
  max_episode_steps: 4
  reward_scale: 0.5
  reward_clip: [-1, 1]
  frame_stack: 2
  previous_action: true
  previous_reward: true
multi_agent:
  policies:
    a: {model: {actor_hidden_sizes: [8], actor_head_hidden_sizes: []}, algorithm: {lr: 0.1, use_agent_id: false}}
    b: {algorithm: {gae_lambda: 0.5}}
    c: {class: random}
    d: {class: "checkpoint:/learners/other#x"}
  policy_mapping: {agent_0: a, "*": {b: 1, c: 2}}
  policies_to_train: [a]
  policy_map_capacity: 3
  policy_map_cache: /learners/own
  count_steps_by: agent_steps
algorithm: {name: ippo, train_batch_size: 9000, minibatch_size: 50, max_policy_lag: 1, lr: 0.001}
model: {actor_hidden_sizes: [16], activation: relu, actor_core: gru, critic_core: lstm, core_size: 12, core_layers: 2,
        actor_head_hidden_sizes: [5], critic_head_hidden_sizes: [6], critic_hidden_sizes: [], max_seq_len: 11}
num_workers: 3
num_envs: 7
rollout_fragment_length: 40
batch_mode: complete_episodes
explore: false
device: cuda:3
learner: {ingest_budget_bytes: 700000000}
stop: {env_steps: 5}
experiment: {directory: /learners/runs, experiment_name: secret-plan, wandb: true, wandb_kwargs: {api_key: canary-8f1e}}
)");
}

std::vector<std::string> Names(const google::protobuf::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

TEST(WorkerYamlTest, EveryKeyIsAWorkersOrTheLearners) {
  const std::set<std::string> worker(WorkerKeys().begin(), WorkerKeys().end());
  EXPECT_EQ(worker.size(), WorkerKeys().size()) << "a key is listed twice";
  for (const std::string& key : AllKeys()) {
    EXPECT_NE(worker.count(key), kLearnerKeys.count(key))
        << key << " stands in both lists, or in none: does a worker read it? (WorkerKeys; else kLearnerKeys here)";
  }
  EXPECT_EQ(worker.size() + kLearnerKeys.size(), AllKeys().size()) << "a list names a key that there is not";
  // What these keys hold below themselves is sent with them: a field more is a decision, too.
  EXPECT_EQ(
      Names(*v1::PolicyConfig::descriptor()),
      (std::vector<std::string>{"id", "model", "class", "algorithm", "observation_space", "action_space", "load"}));
  EXPECT_EQ(Names(*v1::AgentConfig::descriptor()), (std::vector<std::string>{"agents", "model", "algorithm"}));
  EXPECT_EQ(Names(*v1::PolicyMapping::descriptor()), (std::vector<std::string>{"per_agent", "rules"}));
  EXPECT_EQ(Names(*v1::PolicyMappingRule::descriptor()), (std::vector<std::string>{"agents", "policies", "function"}));
  EXPECT_EQ(Names(*v1::AgentGroup::descriptor()),
            (std::vector<std::string>{"name", "agents", "obs_space", "act_space"}));
}

TEST(WorkerYamlTest, SaysWhatTheConfigurationSaysAndNothingOfTheLearners) {
  const RunConfig config = Rich();
  const RunConfig sent = Parse(WelcomeYaml(config));
  const RunConfig defaults;
  for (const std::string& key : WorkerKeys()) {
    if (key == "multi_agent.policies") continue;  // below
    EXPECT_EQ(ValueText(sent.proto(), key), ValueText(config.proto(), key)) << key;
  }
  for (const std::string& key : kLearnerKeys) {
    EXPECT_EQ(ValueText(sent.proto(), key), ValueText(defaults.proto(), key)) << key;
  }
  EXPECT_FALSE(sent.proto().multi_agent().policies(0).algorithm().ppo().has_lr()) << "an override of the learner's";
  EXPECT_TRUE(sent.proto().multi_agent().policies(0).algorithm().has_use_agent_id());
  EXPECT_FALSE(sent.proto().multi_agent().policies(1).has_algorithm());
  EXPECT_TRUE(sent.proto().multi_agent().policies(0).model().has_actor_head_hidden_sizes()) << "[] is said, too";
  for (const std::string text : {kCanary, "wandb", "experiment", "/learners", "secret-plan", "cuda"}) {
    EXPECT_EQ(WelcomeYaml(config).find(text), std::string::npos) << text;
    if (text == "/learners") continue;  // below
    EXPECT_EQ(WorkerFileYaml(config).find(text), std::string::npos) << text;
  }
  EXPECT_EQ(WorkerFileYaml(config).find("/learners/own"), std::string::npos);
  EXPECT_NE(WorkerFileYaml(config).find("/learners/files"), std::string::npos) << "a worker of this machine finds them";
  EXPECT_EQ(WelcomeYaml(config).find("interpreter"), std::string::npos);
  EXPECT_NE(WorkerFileYaml(config).find("interpreter"), std::string::npos);
}

TEST(WorkerYamlTest, WithoutSecretsIsTheSameRun) {
  const RunConfig config = Rich();
  EXPECT_NE(config.ToYaml().find(kCanary), std::string::npos);
  const RunConfig shared = config.WithoutSecrets();
  EXPECT_EQ(shared.ToYaml().find(kCanary), std::string::npos);
  for (const std::string& key : AllKeys()) {
    if (key == "experiment.wandb_kwargs") continue;
    EXPECT_EQ(ValueText(shared.proto(), key), ValueText(config.proto(), key)) << key;
  }
}

TEST(WorkerYamlTest, AWorkerMakesTheSameRunOfIt) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const RunConfig config = Rich();
  const absl::StatusOr<ResolvedRun> run = ResolveRun(config, registry);
  ASSERT_TRUE(run.ok()) << run.status();
  for (const std::string& text : {WelcomeYaml(config), WorkerFileYaml(config)}) {
    const absl::StatusOr<ResolvedRun> worker = ResolveRun(Parse(text), registry);
    ASSERT_TRUE(worker.ok()) << worker.status();
    EXPECT_EQ(worker->schema.WorkerHash(), run->schema.WorkerHash());
    EXPECT_EQ(worker->rollout.seed, run->rollout.seed);
    EXPECT_EQ(worker->rollout.explore, run->rollout.explore);
    EXPECT_EQ(worker->rollout.max_fragment_env_steps, run->rollout.max_fragment_env_steps);
    EXPECT_EQ(worker->rollout.policy_map_capacity, run->rollout.policy_map_capacity);
    ASSERT_EQ(worker->mapping_rules.size(), run->mapping_rules.size());
    EXPECT_EQ(worker->mapping_rules[1].policies[1].weight, run->mapping_rules[1].policies[1].weight);
    EXPECT_EQ(worker->env.wrappers.max_episode_steps, 4);
  }
}

TEST(WorkerYamlTest, KeepsAnEmptyWordAndAListThatIsNoDefault) {
  // A word for "not set" is the default of every key that has one: left out, the key means the same.
  for (const std::string& key : WorkerKeys()) {
    const RunConfig defaults;
    EXPECT_EQ(ValueText(Parse(WelcomeYaml(defaults)).proto(), key), ValueText(defaults.proto(), key)) << key;
  }
  const RunConfig config = Parse("{env: {state_key: ''}, model: {critic_hidden_sizes: [3]}}");
  const RunConfig sent = Parse(WelcomeYaml(config));
  EXPECT_EQ(sent.proto().env().state_key(), "");
  EXPECT_EQ(sent.proto().model().critic_hidden_sizes().values_size(), 1);
}

}  // namespace
}  // namespace troupe::config
