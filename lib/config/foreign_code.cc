#include "lib/config/foreign_code.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/config/torch_modules.h"
#include "lib/policy/module_files.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/python_callable.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kPolicies[] = "multi_agent.policies";
constexpr char kMapping[] = "multi_agent.policy_mapping";

/// Adds what is in Python.
void AddPython(const std::string& key, const std::string& text, std::vector<ForeignCode>* code) {
  if (policy::IsPythonName(text)) code->push_back({key, text});
}

std::vector<ForeignCode> CodeOf(const RunConfig& config, bool trains) {
  const v1::EnvConfig& env = config.proto().env();
  const v1::MultiAgentConfig& multi_agent = config.proto().multi_agent();
  std::vector<ForeignCode> python;
  AddPython("env.name", env.name(), &python);
  for (const v1::PolicyConfig& policy : multi_agent.policies()) {
    AddPython(absl::StrCat(kPolicies, ".", policy.id(), ".class"), policy.class_(), &python);
  }
  for (const v1::PolicyMappingRule& rule : multi_agent.policy_mapping().rules()) {
    AddPython(kMapping, rule.function(), &python);
  }
  AddPython("multi_agent.observation_fn", multi_agent.observation_fn(), &python);
  for (const v1::TrainRule& rule : multi_agent.policies_to_train().rules()) {
    if (trains) AddPython("multi_agent.policies_to_train", rule.function(), &python);
  }
  for (const std::string& name : config.proto().callbacks().values()) {
    if (trains) AddPython("callbacks", name, &python);
  }
  std::vector<ForeignCode> code;
  if (!env.plugin().empty()) code.push_back({"env.plugin", env.plugin()});
  if (!python.empty()) {
    const std::string& interpreter = env.python().interpreter();
    code.push_back({"env.python.interpreter", interpreter.empty() ? "(the default)" : interpreter});
  }
  if (!python.empty() && !env.python().folder().empty()) code.push_back({"env.python.folder", env.python().folder()});
  if (!python.empty() && !env.python().path().empty()) code.push_back({"env.python.path", env.python().path()});
  code.insert(code.end(), python.begin(), python.end());
  for (const NamedModule& module : ModulesOf(config, trains ? ModuleUse::kTraining : ModuleUse::kActing)) {
    code.push_back({module.key, module.text});
  }
  return code;
}

}  // namespace

std::vector<ForeignCode> ForeignCodeOf(const RunConfig& config) { return CodeOf(config, /*trains=*/false); }

std::vector<ForeignCode> TrainingCodeOf(const RunConfig& config) {
  std::vector<ForeignCode> code = CodeOf(config, /*trains=*/true);
  const std::vector<std::string> changes = config.EvaluationOverrides();
  if (changes.empty()) return code;
  const absl::StatusOr<RunConfig> evaluated = RunConfig::FromYaml(config.ToYaml(), "the run's configuration", changes);
  if (!evaluated.ok()) return code;  // who resolves the run says what is wrong
  for (const ForeignCode& each : CodeOf(*evaluated, /*trains=*/true)) {
    if (std::find(code.begin(), code.end(), each) == code.end()) {
      code.push_back({absl::StrCat("evaluation.", each.key), each.text});
    }
  }
  return code;
}

std::vector<ForeignCode> ForeignCodeOf(const policy::PolicyTable& table) {
  std::vector<ForeignCode> code;
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (!entry.has_value()) continue;
    AddPython(absl::StrCat(kPolicies, ".", entry->spec.id.value(), ".class"), entry->spec.policy_class.ToString(),
              &code);
    for (const std::string& hash : policy::ModuleHashes(entry->spec)) {
      AddForeignCode({{"model.torchscript", absl::StrCat(std::string(policy::kModuleHashPrefix), hash)}}, &code);
    }
  }
  for (const policy::MappingRule& rule : table.rules()) AddPython(kMapping, rule.function, &code);
  return code;
}

void AddForeignCode(const std::vector<ForeignCode>& more, std::vector<ForeignCode>* code) {
  for (const ForeignCode& each : more) {
    if (std::find(code->begin(), code->end(), each) == code->end()) code->push_back(each);
  }
}

}  // namespace troupe::config
