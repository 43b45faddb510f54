#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/resolve_distribution.h"
#include "lib/config/resolved_run.h"
#include "lib/config/schema.h"
#include "lib/config/yaml_writer.h"
#include <google/protobuf/reflection.h>
#include <yaml-cpp/yaml.h>

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool IsAmong(const std::string& key, const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(), [&key](const std::string& section) {
    return key == section || absl::StartsWith(key, section + ".");
  });
}

/// A section in braces, as an error has one line.
std::string InOneLine(const std::string& yaml) {
  if (!absl::StrContains(yaml, "\n")) return yaml;
  YAML::Emitter out;
  out.SetMapFormat(YAML::Flow);
  out.SetSeqFormat(YAML::Flow);
  out << YAML::Load(yaml);
  return out.c_str();
}

absl::Status MayNotChange(const RunConfig& config, const std::string& key, const std::string& now,
                          const std::string& before, const std::string& hint) {
  return base::RefusedIfFinal(
      absl::FailedPreconditionError(absl::StrCat(config.Where(key), ": ", key, ": got ", InOneLine(now),
                                                 ", but the run was started with ", InOneLine(before), "; ", hint)));
}

/// `auto` was an MLP once, of a critic that reads all agents' images. A checkpoint of another one does not fit.
bool IsCriticOfBefore(std::string_view key, std::string_view before, std::string_view now) {
  return key == "model.critic_encoder" && before == "auto" && now == "mlp";
}

using Arguments = google::protobuf::RepeatedPtrField<v1::Argument>;

/// Sorts mappings by name, also those in mappings and lists.
void SortByName(Arguments* arguments, bool is_list) {
  for (v1::Argument& argument : *arguments) {
    if (argument.has_list_value()) SortByName(argument.mutable_list_value()->mutable_values(), true);
    if (argument.has_map_value()) SortByName(argument.mutable_map_value()->mutable_entries(), false);
  }
  if (is_list) return;
  std::sort(arguments->begin(), arguments->end(),
            [](const v1::Argument& a, const v1::Argument& b) { return a.name() < b.name(); });
}

/// The new configuration with the run's order of env.args and env.external.spaces where the run was started by a
/// version that sorted them: its environments and agents keep their order.
RunConfig WithSortedArguments(const RunConfig& old_config, const RunConfig& new_config) {
  auto proto = std::make_shared<v1::RunConfig>(new_config.proto());
  for (const auto of : {+[](v1::EnvConfig* env) { return env->mutable_args(); },
                        +[](v1::EnvConfig* env) { return env->mutable_external()->mutable_spaces(); }}) {
    v1::EnvConfig before = old_config.proto().env();
    v1::EnvConfig sorted = proto->env();
    SortByName(of(&sorted), false);
    const bool same = std::equal(
        of(&before)->begin(), of(&before)->end(), of(&sorted)->begin(), of(&sorted)->end(),
        [](const v1::Argument& a, const v1::Argument& b) { return a.SerializeAsString() == b.SerializeAsString(); });
    if (same) *of(proto->mutable_env()) = *of(&sorted);
  }
  return new_config.With(std::move(proto));
}

/// Defaults that have changed since: where the new configuration says nothing, the run goes on as it began.
RunConfig WithDefaultsOf(const RunConfig& old_config, const RunConfig& new_config) {
  const auto proto = std::make_shared<v1::RunConfig>(new_config.proto());
  const auto keep = [&](const char* section, const char* key, const Message& before, Message* now) {
    if (new_config.IsWritten(absl::StrCat(section, ".", key))) return;
    const FieldDescriptor* const field = before.GetDescriptor()->FindFieldByName(key);
    if (field != nullptr) CopyField(before, *field, now);
  };
  keep("model", "scaling", old_config.proto().model(), proto->mutable_model());
  keep("model", "layer_norm", old_config.proto().model(), proto->mutable_model());
  keep("algorithm", "normalize_observations", old_config.proto().algorithm(), proto->mutable_algorithm());
  const FieldDescriptor* const options = OptionsIn(old_config.proto().algorithm());
  if (options != nullptr && options == OptionsIn(proto->algorithm())) {
    const Message& before =
        old_config.proto().algorithm().GetReflection()->GetMessage(old_config.proto().algorithm(), options);
    Message* const now = MutableOptions(*options, proto->mutable_algorithm());
    for (const char* const key : {"use_value_active_masks", "use_value_clip", "entropy_coeff", "minibatch_by"}) {
      keep("algorithm", key, before, now);
    }
  }
  return new_config.With(proto);
}

std::string WhatMayChange() { return absl::StrCat("a resumed run may change ", absl::StrJoin(ResumableKeys(), ", ")); }

}  // namespace

const std::vector<std::string>& ResumableKeys() {
  static const auto* const kKeys = new std::vector<std::string>{"stop",
                                                                "num_workers",
                                                                "evaluation",
                                                                "experiment",
                                                                "device",
                                                                "precision",
                                                                "env.max_abs_return",
                                                                "env.max_failed_share",
                                                                "env.send_state",
                                                                "env.plugin",
                                                                "env.external.address",
                                                                "env.external.max_episodes",
                                                                "env.external.idle_timeout_s",
                                                                "env.python.interpreter",
                                                                "env.python.processes",
                                                                "env.python.start_timeout_s",
                                                                "env.python.step_timeout_s",
                                                                "env.python.max_restarts",
                                                                "env.python.restart_window_s",
                                                                "env.python.fork_server",
                                                                "env.python.path",
                                                                "env.python.folder",
                                                                "learner_threads",
                                                                "learner",
                                                                "callbacks",
                                                                "multi_agent.policies_to_train",
                                                                "multi_agent.policy_map_capacity",
                                                                "multi_agent.policy_map_host_budget_bytes",
                                                                "multi_agent.policy_map_cache",
                                                                "multi_agent.policy_states_are_swappable"};
  return *kKeys;
}

absl::StatusOr<RunConfig> ResumeConfig(const RunConfig& old_config, const RunConfig& wanted) {
  const RunConfig new_config = WithDefaultsOf(old_config, WithSortedArguments(old_config, wanted));
  const v1::ScalingRule scaling = old_config.proto().model().scaling();
  const int32_t num_envs = TotalEnvs(old_config);
  for (const std::string& key : AllKeys()) {
    if (IsAmong(key, ResumableKeys())) continue;
    // Unset, it follows from keys that are compared or may change.
    if (key == "num_envs" && (!new_config.proto().has_num_envs() || new_config.proto().num_envs() == num_envs))
      continue;
    const std::string before = key == "num_envs" ? absl::StrCat(num_envs) : ValueText(old_config.proto(), key);
    const std::string now = ValueText(new_config.proto(), key);
    if (before == now || IsSameBounding(key, before, now, scaling) || IsCriticOfBefore(key, before, now)) {
      continue;
    }
    return MayNotChange(new_config, key, now, before, WhatMayChange());
  }
  if (TotalEnvs(new_config) == num_envs) return new_config;
  return new_config.WithNumEnvs(num_envs);
}

absl::Status CheckAlgorithmStays(const RunConfig& old_config, const std::vector<std::string>& overrides) {
  constexpr char kName[] = "algorithm.name";
  std::vector<std::string> names;
  for (const std::string& text : overrides) {
    if (absl::StartsWith(text, absl::StrCat(kName, "="))) names.push_back(text);
  }
  if (names.empty()) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const RunConfig named, RunConfig::FromYaml("{seed: 1}", "overrides", names));
  const std::string before = ValueText(old_config.proto(), kName);
  const std::string now = ValueText(named.proto(), kName);
  return before == now ? absl::OkStatus() : MayNotChange(named, kName, now, before, WhatMayChange());
}

absl::Status CheckEvaluationConfig(const RunConfig& old_config, const RunConfig& new_config) {
  static const auto* const kKeys = new std::vector<std::string>{"env", "evaluation", "experiment.directory"};
  for (const std::string& key : AllKeys()) {
    if (IsAmong(key, *kKeys)) continue;
    const std::string before = ValueText(old_config.proto(), key);
    const std::string now = ValueText(new_config.proto(), key);
    if (before == now || IsSameBounding(key, before, now, old_config.proto().model().scaling())) continue;
    return MayNotChange(new_config, key, now, before,
                        "an evaluation may change env, evaluation and multi_agent.policy_mapping, and the class of a "
                        "policy by --policy ID=CLASS");
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
