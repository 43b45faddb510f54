#include "lib/config/torch_modules.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/overrides.h"
#include "lib/config/schema.h"
#include "lib/policy/module_files.h"
#include "lib/policy/module_reader.h"
#include "lib/policy/policy_spec.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kActorKey[] = "torchscript";
constexpr char kCriticKey[] = "critic_torchscript";

void AddModules(const std::string& section, v1::ModelConfig* model, std::vector<MutableModule>* modules) {
  if (!model->torchscript().empty()) modules->push_back({JoinKey(section, kActorKey), model->mutable_torchscript()});
  if (!model->critic_torchscript().empty()) {
    modules->push_back({JoinKey(section, kCriticKey), model->mutable_critic_torchscript()});
  }
}

/// The hash of a pinned text; empty for what is none.
std::string HashOf(const std::string& text) {
  const std::string hash(absl::StripPrefix(text, std::string(policy::kModuleHashPrefix)));
  return policy::IsSha256(hash) ? hash : "";
}

absl::Status SetModule(const RunConfig& config, const SettingsOf& of, const std::string& key, const std::string& text,
                       policy::PolicySpec* spec, policy::NetworkSpec* network) {
  const std::string place = ModelKey(config, of, key);
  if (network->core.remembers()) {
    return config.KeyError(place, absl::StrCat("got a TorchScript module, but model.", network->role,
                                               "_core is not none; expected one of the two: a module is the whole "
                                               "network, with a state of its own (state_size)"));
  }
  for (const auto& [kind, word] :
       {std::pair(policy::EncoderKind::kAttention, "attention"), std::pair(policy::EncoderKind::kShared, "shared")}) {
    if (network->encoder != kind) continue;
    return config.KeyError(place, absl::StrCat("got a TorchScript module, but model.critic_encoder is ", word,
                                               "; expected one of the two"));
  }
  policy::NetworkSpec made = network->role == policy::kActorRole ? policy::DefaultActor() : policy::DefaultCritic();
  made.inputs = network->inputs;
  made.encoder = policy::EncoderKind::kTorchScript;
  made.hidden_sizes = {};
  made.module.sha256 = HashOf(text);
  *network = std::move(made);
  policy::ModuleReader* const reader = policy::FindModuleReader();
  if (reader == nullptr) return absl::OkStatus();  // a program that neither trains nor acts with it
  absl::StatusOr<policy::ModuleSpec> module = reader->Describe(*spec, *network);
  if (!module.ok()) return config.KeyError(place, std::string(module.status().message()));
  network->module = *std::move(module);
  if (const absl::Status valid = policy::ValidateModule(spec->id, *network); !valid.ok()) {
    return config.KeyError(place, std::string(valid.message()));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<MutableModule> MutableModules(v1::RunConfig* config) {
  std::vector<MutableModule> modules;
  AddModules("model", config->mutable_model(), &modules);
  v1::MultiAgentConfig& multi_agent = *config->mutable_multi_agent();
  for (v1::PolicyConfig& each : *multi_agent.mutable_policies()) {
    if (!each.has_model()) continue;
    AddModules(JoinKey(JoinKey("multi_agent.policies", each.id()), "model"), each.mutable_model(), &modules);
  }
  for (v1::AgentConfig& each : *multi_agent.mutable_agents()) {
    if (!each.has_model()) continue;
    AddModules(JoinKey(JoinKey("multi_agent.agents", each.agents()), "model"), each.mutable_model(), &modules);
  }
  return modules;
}

std::vector<NamedModule> ModulesOf(const RunConfig& config) {
  v1::RunConfig proto = config.proto();
  std::vector<NamedModule> modules;
  for (const MutableModule& module : MutableModules(&proto)) modules.push_back({module.key, *module.text});
  return modules;
}

bool IsModule(const v1::ModelConfig& model, const policy::NetworkSpec& network) {
  return !(network.role == policy::kActorRole ? model.torchscript() : model.critic_torchscript()).empty();
}

bool IsModulePath(const std::string& text) { return !text.starts_with(policy::kModuleHashPrefix); }

absl::StatusOr<RunConfig> PinModules(const RunConfig& config) {
  auto proto = std::make_shared<v1::RunConfig>(config.proto());
  bool changed = false;
  for (const MutableModule& module : MutableModules(proto.get())) {
    if (!IsModulePath(*module.text)) {
      if (!HashOf(*module.text).empty()) continue;
      return config.KeyError(module.key, absl::StrCat("got \"", base::LogSafe(*module.text, 100),
                                                      "\", expected sha256: and 64 hexadecimal digits, or a path"));
    }
    const absl::StatusOr<std::string> sha256 = policy::ModuleFiles::OfProcess().Add(*module.text);
    if (!sha256.ok()) return config.KeyError(module.key, std::string(sha256.status().message()));
    *module.text = absl::StrCat(std::string(policy::kModuleHashPrefix), *sha256);
    changed = true;
  }
  return changed ? config.With(std::move(proto)) : config;
}

absl::StatusOr<std::vector<std::string>> AddModuleFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> hashes;
  for (const std::string& path : paths) {
    absl::StatusOr<std::string> sha256 = policy::ModuleFiles::OfProcess().Add(path);
    if (!sha256.ok()) {
      return absl::Status(sha256.status().code(),
                          absl::StrCat("--allow-torchscript: ", std::string(sha256.status().message())));
    }
    hashes.push_back(*std::move(sha256));
  }
  return hashes;
}

absl::Status SetModules(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec) {
  const v1::ModelConfig model = ModelOf(config, of);
  if (IsModule(model, spec->actor)) {
    TROUPE_RETURN_IF_ERROR(SetModule(config, of, kActorKey, model.torchscript(), spec, &spec->actor));
  }
  if (IsModule(model, spec->critic())) {
    TROUPE_RETURN_IF_ERROR(SetModule(config, of, kCriticKey, model.critic_torchscript(), spec, spec->mutable_critic()));
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
