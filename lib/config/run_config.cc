#include "lib/config/run_config.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithm_names.h"
#include "lib/config/algorithms.h"
#include "lib/config/parse_yaml.h"
#include "lib/config/presets.h"
#include "lib/config/schema.h"
#include "lib/config/torch_modules.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_writer.h"
#include "lib/policy/python_callable.h"
#include "proto/troupe/v1/config.pb.h"
#include <nlohmann/json.hpp>

namespace troupe::config {
namespace {

constexpr char kModelScaling[] = "model.scaling";

std::shared_ptr<v1::RunConfig> MakeDefaults() {
  auto config = std::make_shared<v1::RunConfig>();
  ApplyDefaults(config.get());
  return config;
}

/// A text that says something of the configuration. Not assignable: a YAML::Node that is assigned changes every copy of
/// the one that stood there before.
struct Source {
  const YAML::Node document;
  std::string name;   ///< the file's
  std::string place;  ///< of an override, for errors; empty: line and column
};

absl::StatusOr<Source> ReadText(std::string_view text, const std::string& source) {
  if (text.size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": is longer than ", kMaxConfigBytes, " bytes"));
  }
  TROUPE_ASSIGN_OR_RETURN(const YAML::Node document, ParseYaml(std::string(text), source, true));
  if (document.IsNull()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source,
                     ": is empty, expected a configuration with at least env: {name: ...}; `troupe config "
                     "defaults` prints one with every key"));
  }
  return Source{document, source, ""};
}

/// The override without a value that may be a secret.
std::string WithoutSecret(const std::string& text) {
  return absl::StrContains(text, "wandb_kwargs") ? text.substr(0, text.find_first_of("=:")) : text;
}

/// Where an override's values come from, for errors.
std::string PlaceOf(const std::string& text) { return absl::StrCat("--set ", base::LogSafe(WithoutSecret(text), 160)); }

/// What is wrong with an override without a key or without "=", and how it is written.
std::string OverrideHint(const std::string& text) {
  const size_t colon = text.find(':');
  const bool by_colon = colon != std::string::npos && colon > 0 && text.find('=') == std::string::npos;
  return absl::StrCat("got ", text.empty() || text[0] == '=' ? "no key" : "no \"=\"",
                      ", expected KEY=VALUE in one word; write --set ",
                      by_colon && WithoutSecret(text) == text
                          ? base::LogSafe(absl::StrCat(text.substr(0, colon), "=", text.substr(colon + 1)), 160)
                          : "algorithm.lr=1e-3");
}

/// "a.b=c" as {a: {b: c}}, so that an override goes the same way as a file.
absl::StatusOr<Source> ReadOverride(const std::string& text) {
  const std::string place = PlaceOf(text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": is no override: ", OverrideHint(text)));
  }
  if (text.size() > kMaxConfigBytes) return absl::InvalidArgumentError(absl::StrCat(place, ": is too long"));
  TROUPE_ASSIGN_OR_RETURN(YAML::Node node, ParseYaml(text.substr(equals + 1), place, false));
  const std::vector<std::string> parts = absl::StrSplit(text.substr(0, equals), '.');
  if (parts.size() > 16)
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": the key has ", parts.size(), " parts, expected at most 16"));
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    YAML::Node outer(YAML::NodeType::Map);
    outer[*part] = node;
    node.reset(outer);
  }
  return Source{node, "", place};
}

/// What the preset says that the last of `sources` names; none: no document. Whether it is one says who loads them.
absl::StatusOr<Source> ReadPreset(const std::vector<Source>& sources) {
  std::string word;
  for (const Source& each : sources) {
    if (!each.document.IsMap()) continue;
    const YAML::Node preset = each.document["preset"];
    if (preset.IsDefined() && preset.IsScalar()) word = preset.Scalar();
  }
  const google::protobuf::EnumValueDescriptor* const value = FindEnumWord(*v1::PresetName_descriptor(), word);
  if (value == nullptr) return Source{};
  const std::string place = absl::StrCat("preset ", word);
  const std::string yaml = PresetYaml(static_cast<v1::PresetName>(value->number()));
  TROUPE_ASSIGN_OR_RETURN(const YAML::Node document, ParseYaml(yaml, place, true));
  return Source{document, "", place};
}

/// The preset, the file and the overrides, in the order in which they are loaded: a later one wins.
absl::Status LoadAll(std::string_view text, const std::string& source, const std::vector<std::string>& overrides,
                     PlaceMap* places, v1::RunConfig* config) {
  std::vector<Source> written;
  TROUPE_ASSIGN_OR_RETURN(const Source file, ReadText(text, source));
  written.push_back(file);
  absl::Status unreadable;  // said when what stands before it is right
  for (const std::string& text_override : overrides) {
    const absl::StatusOr<Source> read = ReadOverride(text_override);
    unreadable = read.status();
    if (!unreadable.ok()) break;
    written.push_back(*read);
  }
  TROUPE_ASSIGN_OR_RETURN(const Source preset, ReadPreset(written));
  std::vector<Source> sources;
  if (!preset.place.empty()) sources.push_back(preset);
  for (const Source& each : written) sources.push_back(each);
  // All names are read before the first source is loaded: the last name decides which keys the algorithm has.
  AlgorithmNames names;
  for (const Source& each : sources) names.Read(each.document);
  SelectOptions(names.Of("algorithm").name, config->mutable_algorithm());
  for (const Source& each : sources) {
    TROUPE_RETURN_IF_ERROR(YamlLoader(each.name, each.place, &names, places).Load(each.document, config));
  }
  return unreadable;
}

constexpr int kMaxNeighbours = 1000;  // files of a folder that a name is compared with

/// NOT_FOUND, with the file of that folder that may have been meant.
absl::Status NotReadable(const std::string& path, const std::string& why) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end && names.size() < kMaxNeighbours; entry.increment(error)) {
    const std::string extension = entry->path().extension().string();
    if (extension == ".yaml" || extension == ".yml") names.push_back(entry->path().filename().string());
  }
  const std::string nearest = base::NearestName(std::filesystem::path(path).filename().string(), names);
  return absl::NotFoundError(
      absl::StrCat(base::LogSafe(path), ": cannot be read: ", why, ", expected a configuration (YAML); ",
                   nearest.empty() ? "`troupe config defaults` prints one, and examples/ has some"
                                   : absl::StrCat("the nearest is \"", base::LogSafe(nearest), "\"")));
}

/// NOT_FOUND for a folder; one of a run is told apart.
absl::Status NotAFile(const std::string& path) {
  std::error_code error;
  const bool is_run = std::filesystem::exists(path + "/config.yaml", error);
  return absl::NotFoundError(
      absl::StrCat(base::LogSafe(path), is_run ? ": is a run folder" : ": is a directory", ", expected a YAML file; ",
                   is_run ? absl::StrCat("--resume ", base::LogSafe(path), " goes on with it, ", base::LogSafe(path),
                                         "/config.yaml is what it was started with")
                          : "name one of the files in it"));
}

/// A name of Python that names a file by a relative path, and its key.
struct NamedFile {
  std::string key;
  std::string* name;
};

/// As "python:file.py:Name".
bool IsFileOfPython(const std::string& name) {
  const std::string_view rest = policy::WithoutPythonPrefix(name);
  return policy::IsPythonName(name) && rest.substr(0, rest.find(':')).ends_with(".py");
}

std::vector<NamedFile> FilesOfPython(v1::RunConfig* config) {
  std::vector<NamedFile> files;
  const auto add = [&files](std::string key, std::string* name) {
    if (IsFileOfPython(*name) && policy::WithoutPythonPrefix(*name)[0] != '/') files.push_back({std::move(key), name});
  };
  add("env.name", config->mutable_env()->mutable_name());
  for (std::string& name : *config->mutable_callbacks()->mutable_values()) add("callbacks", &name);
  v1::MultiAgentConfig& multi_agent = *config->mutable_multi_agent();
  for (v1::PolicyConfig& policy : *multi_agent.mutable_policies()) {
    add(JoinKey(JoinKey("multi_agent.policies", policy.id()), "class"), policy.mutable_class_());
  }
  if (multi_agent.has_observation_fn()) add("multi_agent.observation_fn", multi_agent.mutable_observation_fn());
  if (multi_agent.has_policies_to_train()) {
    for (v1::TrainRule& rule : *multi_agent.mutable_policies_to_train()->mutable_rules()) {
      add("multi_agent.policies_to_train", rule.mutable_function());
    }
  }
  if (!multi_agent.has_policy_mapping()) return files;
  for (v1::PolicyMappingRule& rule : *multi_agent.mutable_policy_mapping()->mutable_rules()) {
    add("multi_agent.policy_mapping", rule.mutable_function());
  }
  return files;
}

}  // namespace

std::string TextOverride(std::string_view key, std::string_view text) {
  return absl::StrCat(std::string(key), "=",
                      nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

struct RunConfig::Places {
  PlaceMap map;
};

RunConfig::RunConfig() : proto_(MakeDefaults()), places_(std::make_shared<Places>()) {}

absl::StatusOr<RunConfig> RunConfig::FromFile(const std::string& path, const std::vector<std::string>& overrides) {
  return base::RefusedIfFinal(ReadFile(path, overrides));
}

absl::StatusOr<RunConfig> RunConfig::ReadFile(const std::string& path, const std::vector<std::string>& overrides) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotReadable(path, std::strerror(errno));
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return NotAFile(path);  // which opens, and reads as nothing
  if (std::filesystem::path(path).extension() == ".py") {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": is a program in Python, expected a configuration (YAML); name the environment in it there: "
                     "env: {name: \"python:",
                     path, ":CLASS\"}"));
  }
  // One byte more than is allowed says that there is more.
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  TROUPE_ASSIGN_OR_RETURN(RunConfig config, FromYaml(text, path, overrides));
  config.AnchorPaths(path);
  return config;
}

absl::StatusOr<RunConfig> RunConfig::FromRun(const std::string& path, const std::vector<std::string>& overrides) {
  TROUPE_ASSIGN_OR_RETURN(const RunConfig written, FromFile(path));
  std::vector<std::string> all = overrides;
  if (!written.IsWritten(kModelScaling)) all.insert(all.begin(), absl::StrCat(kModelScaling, "=by_255"));
  return FromFile(path, all);
}

absl::StatusOr<RunConfig> RunConfig::FromYaml(std::string_view text, std::string_view source,
                                              const std::vector<std::string>& overrides) {
  const std::shared_ptr<v1::RunConfig> proto = MakeDefaults();
  const auto places = std::make_shared<Places>();
  try {
    TROUPE_RETURN_IF_ERROR(LoadAll(text, std::string(source), overrides, &places->map, proto.get()));
  } catch (const YAML::Exception& error) {
    // Access to a node of the wrong kind; the loader looks first, so this only guards against a yaml-cpp that throws
    // elsewhere.
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(source), ": not valid YAML: ", base::LogSafe(error.what())));
  }
  RunConfig config;
  config.proto_ = proto;
  config.places_ = places;
  return config;
}

void RunConfig::AnchorPaths(const std::string& file) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error) return;  // no working directory: paths stay as they were written
  const std::filesystem::path folder = (here / file).parent_path().lexically_normal();
  auto proto = std::make_shared<v1::RunConfig>(*proto_);
  const auto in_file = [&](std::string_view key) { return absl::StartsWith(Where(key), absl::StrCat(file, ":")); };
  if (const std::filesystem::path plugin = proto->env().plugin(); !plugin.empty()) {
    const std::filesystem::path base = in_file("env.plugin") ? folder : here;
    proto->mutable_env()->set_plugin((base / plugin).lexically_normal().string());
  }
  (void)ChangeModules(proto.get(), ModuleUse::kTraining, [&](NamedModule& module) {
    if (IsModulePath(module.text)) {
      module.text = ((in_file(module.key) ? folder : here) / module.text).lexically_normal().string();
    }
    return absl::OkStatus();
  });
  for (v1::Argument& key : *proto->mutable_evaluation()->mutable_env()) {
    if (!key.has_string_value() || key.string_value().empty()) continue;
    const std::filesystem::path base = in_file("evaluation.env") ? folder : here;
    const std::string name(policy::WithoutPythonPrefix(key.string_value()));
    if (key.name() == "plugin") {
      key.set_string_value((base / key.string_value()).lexically_normal().string());
    } else if (key.name() == "name" && IsFileOfPython(key.string_value())) {
      key.set_string_value(absl::StrCat(std::string(policy::kPythonPrefix), (base / name).lexically_normal().string()));
    }
  }
  // A name stays as it is written, since workers on other machines permit it so: where its file lies is each side's
  // own.
  std::vector<NamedFile> files = FilesOfPython(proto.get());
  const bool any_in_file =
      std::any_of(files.begin(), files.end(), [&](const NamedFile& named) { return in_file(named.key); });
  if (!files.empty() && proto->env().python().folder().empty()) {
    proto->mutable_env()->mutable_python()->set_folder((any_in_file ? folder : here).string());
    for (const NamedFile& named : files) {
      // There is one folder, the file's: what an override names besides is told by its whole path.
      if (any_in_file && !in_file(named.key)) {
        *named.name =
            absl::StrCat(std::string(policy::kPythonPrefix),
                         (here / std::string(policy::WithoutPythonPrefix(*named.name))).lexically_normal().string());
      }
    }
  }
  proto_ = std::move(proto);
}

std::string RunConfig::experiment_directory() const { return proto_->experiment().directory(); }

int32_t RunConfig::num_workers() const { return proto_->num_workers(); }

std::vector<std::string> RunConfig::EvaluationOverrides() const {
  std::vector<std::string> overrides;
  for (const v1::Argument& key : proto_->evaluation().env()) {
    overrides.push_back(absl::StrCat("env.", key.name(), "=", ArgumentText(key)));
  }
  return overrides;
}

std::string RunConfig::ToYaml() const { return WriteYaml(*proto_); }

RunConfig RunConfig::With(std::shared_ptr<const v1::RunConfig> proto) const {
  RunConfig config;
  config.proto_ = std::move(proto);
  config.places_ = places_;
  return config;
}

RunConfig RunConfig::WithNumEnvs(int32_t num_envs) const {
  auto proto = std::make_shared<v1::RunConfig>(*proto_);
  proto->set_num_envs(num_envs);
  return With(std::move(proto));
}

RunConfig RunConfig::WithPlacesOf(const RunConfig& own) const {
  auto proto = std::make_shared<v1::RunConfig>(*proto_);
  const v1::EnvConfig& from = own.proto().env();
  v1::EnvConfig& env = *proto->mutable_env();
  env.mutable_python()->set_interpreter(from.python().interpreter());
  env.mutable_python()->set_path(from.python().path());
  env.mutable_python()->set_folder(from.python().folder());
  if (!env.plugin().empty()) env.set_plugin(from.plugin());
  if (env.external().spaces().empty()) return With(std::move(proto));
  env.mutable_external()->set_address(from.external().address());
  env.mutable_external()->set_max_episodes(from.external().max_episodes());
  env.mutable_external()->set_idle_timeout_s(from.external().idle_timeout_s());
  return With(std::move(proto));
}

RunConfig RunConfig::WithExternalAddress(const std::string& address) const {
  auto proto = std::make_shared<v1::RunConfig>(*proto_);
  proto->mutable_env()->mutable_external()->set_address(address);
  return With(std::move(proto));
}

RunConfig RunConfig::WithoutSecrets() const {
  auto proto = std::make_shared<v1::RunConfig>(*proto_);
  proto->mutable_experiment()->clear_wandb_kwargs();
  return With(std::move(proto));
}

bool RunConfig::IsWritten(std::string_view key) const { return places_->map.count(std::string(key)) > 0; }

std::string RunConfig::Where(std::string_view key) const {
  std::string at(key);
  for (;;) {
    const auto found = places_->map.find(at);
    if (found != places_->map.end()) return found->second;
    const size_t dot = at.rfind('.');
    if (dot == std::string::npos) return "default";
    at.resize(dot);
  }
}

absl::Status RunConfig::KeyError(std::string_view key, std::string_view text) const {
  return base::RefusedIfFinal(
      absl::InvalidArgumentError(absl::StrCat(Where(key), ": ", std::string(key), ": ", std::string(text))));
}

std::string DefaultsYaml() { return WriteCommentedYaml(*MakeDefaults()); }

std::string DefaultsMarkdown() { return WriteMarkdown(*MakeDefaults()); }

}  // namespace troupe::config
