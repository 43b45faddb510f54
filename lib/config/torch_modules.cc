#include "lib/config/torch_modules.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/overrides.h"
#include "lib/config/schema.h"
#include "lib/policy/module_files.h"
#include "lib/policy/module_reader.h"
#include "lib/policy/policy_spec.h"
#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

constexpr char kActorKey[] = "torchscript";
constexpr char kCriticKey[] = "critic_torchscript";

/// `change` of a text that is not empty.
absl::Status ChangeText(const std::string& section, const std::string& key, bool acts, std::string text,
                        google::protobuf::Message* message, absl::FunctionRef<absl::Status(NamedModule&)> change) {
  if (text.empty()) return absl::OkStatus();
  NamedModule module = {JoinKey(section, key), std::move(text), acts};
  TROUPE_RETURN_IF_ERROR(change(module));
  message->GetReflection()->SetString(message, message->GetDescriptor()->FindFieldByName(key), std::move(module.text));
  return absl::OkStatus();
}

absl::Status ChangeNetworks(const std::string& section, v1::ModelConfig* model,
                            absl::FunctionRef<absl::Status(NamedModule&)> change) {
  TROUPE_RETURN_IF_ERROR(ChangeText(section, kActorKey, true, model->torchscript(), model, change));
  return ChangeText(section, kCriticKey, true, model->critic_torchscript(), model, change);
}

absl::Status ChangeLosses(const std::string& section, v1::AlgorithmConfig* algorithm,
                          absl::FunctionRef<absl::Status(NamedModule&)> change) {
  const google::protobuf::FieldDescriptor* const entry = OptionsIn(*algorithm);
  if (entry == nullptr) return absl::OkStatus();
  google::protobuf::Message* const options = MutableOptions(*entry, algorithm);
  for (int i = 0; i < entry->message_type()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *entry->message_type()->field(i);
    if (!RuleOf(field).torchscript()) continue;
    TROUPE_RETURN_IF_ERROR(ChangeText(section, field.name(), false,
                                      options->GetReflection()->GetString(*options, &field), options, change));
  }
  return absl::OkStatus();
}

/// Changes those of the run, or of a policy's or an agent's overrides.
template <typename Settings>
absl::Status ChangeIn(const std::string& section, ModuleUse use, Settings* settings,
                      absl::FunctionRef<absl::Status(NamedModule&)> change) {
  if (settings->has_model()) {
    TROUPE_RETURN_IF_ERROR(ChangeNetworks(JoinKey(section, "model"), settings->mutable_model(), change));
  }
  if (!settings->has_algorithm() || use == ModuleUse::kActing) return absl::OkStatus();
  return ChangeLosses(JoinKey(section, "algorithm"), settings->mutable_algorithm(), change);
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

absl::Status ChangeModules(v1::RunConfig* config, ModuleUse use, absl::FunctionRef<absl::Status(NamedModule&)> change) {
  TROUPE_RETURN_IF_ERROR(ChangeIn("", use, config, change));
  v1::MultiAgentConfig& multi_agent = *config->mutable_multi_agent();
  for (v1::PolicyConfig& each : *multi_agent.mutable_policies()) {
    TROUPE_RETURN_IF_ERROR(ChangeIn(JoinKey("multi_agent.policies", each.id()), use, &each, change));
  }
  for (v1::AgentConfig& each : *multi_agent.mutable_agents()) {
    TROUPE_RETURN_IF_ERROR(ChangeIn(JoinKey("multi_agent.agents", each.agents()), use, &each, change));
  }
  return absl::OkStatus();
}

std::vector<NamedModule> ModulesOf(const RunConfig& config, ModuleUse use) {
  v1::RunConfig proto = config.proto();
  std::vector<NamedModule> modules;
  const auto add = [&modules](const NamedModule& module) {
    modules.push_back(module);
    return absl::OkStatus();
  };
  (void)ChangeModules(&proto, use, add);
  return modules;
}

bool IsModule(const v1::ModelConfig& model, const policy::NetworkSpec& network) {
  return !(network.role == policy::kActorRole ? model.torchscript() : model.critic_torchscript()).empty();
}

bool IsModulePath(const std::string& text) { return !text.starts_with(policy::kModuleHashPrefix); }

absl::StatusOr<RunConfig> PinModules(const RunConfig& config, ModuleUse use) {
  auto proto = std::make_shared<v1::RunConfig>(config.proto());
  bool changed = false;
  const auto pin = [&](NamedModule& module) {
    if (!IsModulePath(module.text)) {
      if (!HashOf(module.text).empty()) return absl::OkStatus();
      return config.KeyError(module.key, absl::StrCat("got \"", base::LogSafe(module.text, 100),
                                                      "\", expected sha256: and 64 hexadecimal digits, or a path"));
    }
    const absl::StatusOr<std::string> sha256 = policy::ModuleFiles::OfProcess().Add(module.text);
    if (!sha256.ok()) return config.KeyError(module.key, std::string(sha256.status().message()));
    module.text = absl::StrCat(std::string(policy::kModuleHashPrefix), *sha256);
    changed = true;
    return absl::OkStatus();
  };
  TROUPE_RETURN_IF_ERROR(ChangeModules(proto.get(), use, pin));
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
