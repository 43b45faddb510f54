#pragma once

#include <string>
#include <vector>

#include "lib/config/run_config.h"
#include "lib/policy/policy_table.h"

namespace troupe::config {

/// One thing that is executed where a run is played, and that is not Troupe's own.
struct ForeignCode {
  std::string key;   ///< of the configuration: "env.plugin", "multi_agent.policies.P.class"
  std::string text;  ///< what stands there: a path, "python:MODULE:NAME" or, of a TorchScript file, "sha256:HEX"

  friend bool operator==(const ForeignCode& a, const ForeignCode& b) { return a.key == b.key && a.text == b.text; }
};

/// What the configuration names: environment, plug-in, policies and mapping functions in Python, and, if there is
/// anything in Python, interpreter and module path; TorchScript files. Empty for a run of native code. Executes and
/// opens nothing.
std::vector<ForeignCode> ForeignCodeOf(const RunConfig& config);
/// That, and callbacks and policies_to_train, which run where it is trained alone.
std::vector<ForeignCode> TrainingCodeOf(const RunConfig& config);
/// What the policies and the mapping name, which may have changed while the run trained.
std::vector<ForeignCode> ForeignCodeOf(const policy::PolicyTable& table);

/// Appends what `code` does not hold yet.
void AddForeignCode(const std::vector<ForeignCode>& more, std::vector<ForeignCode>* code);

}  // namespace troupe::config
