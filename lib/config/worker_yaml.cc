#include "lib/config/worker_yaml.h"

#include <iterator>
#include <set>
#include <string_view>

#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/config/schema.h"
#include "lib/config/yaml_writer.h"
#include "lib/policy/policy_class.h"
#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Keys = std::set<const FieldDescriptor*>;

void AddKey(std::string_view key, Keys* keys) {
  const google::protobuf::Descriptor* section = v1::RunConfig::descriptor();
  for (;;) {
    const size_t dot = key.find('.');
    const std::vector<const FieldDescriptor*> fields = FieldsOf(*section, key.substr(0, dot));
    TROUPE_CHECK(!fields.empty());
    if (dot == std::string_view::npos) return keys->insert(fields.begin(), fields.end());
    section = fields[0]->message_type();
    key.remove_prefix(dot + 1);
  }
}

/// Takes out of a policy's or an agent's overrides what is no worker's business.
void KeepOnly(const Keys& keys, Message* overrides) {
  std::vector<const FieldDescriptor*> present;
  overrides->GetReflection()->ListFields(*overrides, &present);
  for (const FieldDescriptor* const field : present) {
    if (IsOptions(*field)) {
      Message* const options = overrides->GetReflection()->MutableMessage(overrides, field);
      KeepOnly(keys, options);
      if (options->ByteSizeLong() > 0) continue;
    }
    if (keys.count(field) == 0) overrides->GetReflection()->ClearField(overrides, field);
  }
}

template <typename Settings>
void KeepOnlyInOverrides(const Keys& keys, Settings* settings) {
  for (auto& each : *settings) {
    if (each.has_algorithm()) KeepOnly(keys, each.mutable_algorithm());
    if (each.has_model()) KeepOnly(keys, each.mutable_model());
    // An override that says nothing is no override.
    if (each.algorithm().ByteSizeLong() == 0) each.clear_algorithm();
    if (each.model().ByteSizeLong() == 0) each.clear_model();
  }
}

/// WorkerKeys and `more`. `callbacks`: instead of those of the configuration.
std::string Write(const RunConfig& config, const std::vector<std::string>& more,
                  const std::vector<std::string>* callbacks = nullptr) {
  Keys keys;
  for (const std::string& key : WorkerKeys()) AddKey(key, &keys);
  for (const std::string& key : more) AddKey(key, &keys);
  v1::RunConfig proto = config.proto();
  if (callbacks != nullptr) proto.mutable_callbacks()->mutable_values()->Assign(callbacks->begin(), callbacks->end());
  KeepOnlyInOverrides(keys, proto.mutable_multi_agent()->mutable_policies());
  KeepOnlyInOverrides(keys, proto.mutable_multi_agent()->mutable_agents());
  for (v1::PolicyConfig& each : *proto.mutable_multi_agent()->mutable_policies()) {
    const absl::StatusOr<policy::PolicyClass> known = policy::ParsePolicyClass(each.class_());
    if (known.ok()) each.set_class_(known->ForWorkers().ToString());
    each.clear_load();  // the learner's files are no business of theirs
  }
  return WriteYaml(proto, [&keys](const FieldDescriptor& field) { return keys.count(&field) > 0; });
}

// Some are read only because a worker resolves the whole configuration, and what is left out must not make it refuse
// the rest: the batch must hold its environments, the budget its batches.
constexpr const char* kWorkerKeys[] = {
    "seed",
    "env.name",
    "env.args",
    "env.plugin",
    "env.python.processes",
    "env.python.start_timeout_s",
    "env.python.step_timeout_s",
    "env.python.max_restarts",
    "env.python.restart_window_s",
    "env.python.global_state",
    "env.python.fork_server",
    "env.groups",
    "env.max_episode_steps",
    "env.reward_scale",
    "env.reward_clip",
    "env.frame_stack",
    "env.previous_action",
    "env.previous_reward",
    "env.grayscale",
    "env.resize",
    "env.crop",
    "env.state_key",
    "env.action_mask_key",
    "env.max_failed_share",
    "env.send_state",
    "env.external.spaces",
    "env.external.state_space",
    "multi_agent.policies",
    "multi_agent.policy_mapping",
    "multi_agent.policy_map_capacity",
    "multi_agent.count_steps_by",
    "multi_agent.agents",
    "multi_agent.observation_fn",
    "algorithm.name",
    "algorithm.train_batch_size",
    "algorithm.max_policy_lag",
    "algorithm.use_global_state",
    "algorithm.use_agent_specific_state",
    "algorithm.use_parameter_sharing",
    "algorithm.use_agent_id",
    "algorithm.critic_agent_id",
    "algorithm.normalize_observations",
    "algorithm.normalize_state",
    "algorithm.use_actions_mask",
    "algorithm.gamma",
    "algorithm.discount_by",
    "algorithm.loss",
    "model.actor_hidden_sizes",
    "model.critic_hidden_sizes",
    "model.activation",
    "model.actor_core",
    "model.critic_core",
    "model.core_size",
    "model.core_layers",
    "model.actor_head_hidden_sizes",
    "model.critic_head_hidden_sizes",
    "model.max_seq_len",
    "model.actor_activation",
    "model.critic_activation",
    "model.encoder",
    "model.conv_filters",
    "model.leaf_encoders",
    "model.critic_encoder",
    "model.attention_size",
    "model.attention_heads",
    "model.layer_norm",
    "model.torchscript",
    "model.critic_torchscript",
    "model.initializer",
    "model.hidden_gain",
    "model.actor_output_gain",
    "model.critic_output_gain",
    "model.initial_log_std",
    "model.action_distribution",
    "model.free_log_std",
    "model.min_log_std",
    "model.max_log_std",
    "model.scaling",
    "action_bound_method",
    "action_scaling",
    "num_workers",
    "num_envs_per_worker",
    "num_envs",
    "rollout_fragment_length",
    "batch_mode",
    "explore",
    "learner.ingest_budget_bytes",
};

}  // namespace

const std::vector<std::string>& WorkerKeys() {
  static const auto* const kKeys = new std::vector<std::string>(std::begin(kWorkerKeys), std::end(kWorkerKeys));
  return *kKeys;
}

std::string WelcomeYaml(const RunConfig& config, const std::vector<std::string>& episode_callbacks) {
  return episode_callbacks.empty() ? Write(config, {}) : Write(config, {"callbacks"}, &episode_callbacks);
}

absl::StatusOr<RunConfig> FromWelcome(std::string_view yaml) {
  constexpr char kSource[] = "the learner's configuration";
  TROUPE_ASSIGN_OR_RETURN(RunConfig config, RunConfig::FromYaml(yaml, kSource));
  return config.IsWritten("model.scaling") ? config : RunConfig::FromYaml(yaml, kSource, {"model.scaling=by_255"});
}

std::string WorkerFileYaml(const RunConfig& config) {
  return Write(config, {"env.python.interpreter", "env.python.path", "env.python.folder", "env.external.address",
                        "env.external.max_episodes", "env.external.idle_timeout_s", "callbacks"});
}

}  // namespace troupe::config
