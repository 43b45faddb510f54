#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::v1 {
class ModelConfig;
}  // namespace troupe::v1

namespace troupe::config {

/// A value of model.torchscript or model.critic_torchscript that is not empty.
struct NamedModule {
  std::string key;   ///< "model.torchscript", "multi_agent.policies.P.model.torchscript"
  std::string text;  ///< a path, or "sha256:HEX"
};
std::vector<NamedModule> ModulesOf(const RunConfig& config);

/// The same with pointers to the texts.
struct MutableModule {
  std::string key;
  std::string* text;
};
std::vector<MutableModule> MutableModules(v1::RunConfig* config);
/// Whether the settings make the network of this role a module: then those of its layers have no effect.
bool IsModule(const v1::ModelConfig& model, const policy::NetworkSpec& network);
/// Whether the text is a path.
bool IsModulePath(const std::string& text);

/// The configuration with "sha256:HEX" in the place of every path to a module, whose file is read into
/// policy::ModuleFiles: what a run is made of, wherever the file lies or goes. INVALID_ARGUMENT with the key's place:
/// what ModuleFiles::Add says, or a hash that is none.
absl::StatusOr<RunConfig> PinModules(const RunConfig& config);

/// Reads files that a flag names into policy::ModuleFiles; their hashes. Errors as ModuleFiles::Add, with the flag.
absl::StatusOr<std::vector<std::string>> AddModuleFiles(const std::vector<std::string>& paths);

/// Makes the networks of `spec`, whose spaces and inputs are known, the modules that the configuration, which is
/// pinned, names. Their tensors and the size of their states are there where the program has LibTorch. INVALID_ARGUMENT
/// with the key's place: what policy::ModuleReader::Describe says, and a core beside a module.
absl::Status SetModules(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec);

}  // namespace troupe::config
