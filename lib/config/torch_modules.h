#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::v1 {
class ModelConfig;
}  // namespace troupe::v1

namespace troupe::config {

/// A value that is not empty of model.torchscript, model.critic_torchscript, or a key of an algorithm that names such a
/// file, too: a loss (KeyRule.torchscript).
struct NamedModule {
  std::string key;   ///< "model.torchscript", "multi_agent.policies.P.model.torchscript"
  std::string text;  ///< a path, or "sha256:HEX"
  bool acts = true;  ///< a network, which workers run, too; a loss is the learner's alone
};
/// The purpose that files are wanted for.
enum class ModuleUse : uint8_t {
  kActing = 1,    ///< acting with policies: networks alone
  kTraining = 2,  ///< training them: all
};
std::vector<NamedModule> ModulesOf(const RunConfig& config, ModuleUse use);
/// Writes back each text, which `change` may have changed. Its first error ends it.
absl::Status ChangeModules(v1::RunConfig* config, ModuleUse use,
                           absl::FunctionRef<absl::Status(NamedModule& module)> change);
/// Whether the settings make the network of this role a module: then those of its layers have no effect.
bool IsModule(const v1::ModelConfig& model, const policy::NetworkSpec& network);
/// Whether the text is a path.
bool IsModulePath(const std::string& text);

/// The configuration with "sha256:HEX" in the place of every path to a module, whose file is read into
/// policy::ModuleFiles: what a run is made of, wherever the file lies or goes. What is not of `use` stays as it is.
/// INVALID_ARGUMENT with the key's place: what ModuleFiles::Add says, or a hash that is none.
absl::StatusOr<RunConfig> PinModules(const RunConfig& config, ModuleUse use = ModuleUse::kTraining);

/// Reads files that a flag names into policy::ModuleFiles; their hashes. Errors as ModuleFiles::Add, with the flag.
absl::StatusOr<std::vector<std::string>> AddModuleFiles(const std::vector<std::string>& paths);

/// Makes the networks of `spec`, whose spaces and inputs are known, the modules that the configuration, which is
/// pinned, names. Their tensors and the size of their states are there where the program has LibTorch. INVALID_ARGUMENT
/// with the key's place: what policy::ModuleReader::Describe says, and a core beside a module.
absl::Status SetModules(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec);

}  // namespace troupe::config
