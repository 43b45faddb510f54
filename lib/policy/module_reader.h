#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::policy {

/// Reads users' modules out of ModuleFiles: LibTorch's, where a program has it. Thread-safe.
class ModuleReader {
 public:
  virtual ~ModuleReader() = default;

  /// The module that `network` of `spec` names by its hash, after it has been tried on a few rows of the policy's
  /// spaces. NOT_FOUND: this process has no such file; INVALID_ARGUMENT, naming the file and what is wrong in
  /// it: it is no TorchScript, has another signature, outputs or state, or does what only training may do.
  virtual absl::StatusOr<ModuleSpec> Describe(const PolicySpec& spec, const NetworkSpec& network) = 0;
  /// Writes the values that the file has of the network's entries in `layout` into `values` [layout.size()]. Errors as
  /// Describe, and where the file is not what the spec says.
  virtual absl::Status WriteFirstValues(const PolicySpec& spec, const NetworkSpec& network,
                                        const ParameterLayout& layout, absl::Span<float> values) = 0;
  /// Tries the module of that hash as the loss that `spec` is trained with (algorithm.loss), on a few rows. A column
  /// that it names and ignores is a warning in the log. Errors as Describe.
  virtual absl::Status CheckLoss(const PolicySpec& spec, const std::string& sha256) = 0;
};

/// The process's reader; nullptr: the program has no LibTorch. Set once, by main, before there are threads.
ModuleReader* FindModuleReader();
void SetModuleReader(ModuleReader* reader);

}  // namespace troupe::policy
