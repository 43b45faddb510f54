#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/module_files.h"
#include <torch/script.h>

namespace troupe::training {

/// At most so many characters of what LibTorch, or a module, says are in an error.
inline constexpr size_t kMaxScriptWords = 300;

/// The module of a TorchScript file, whose tensors are on `device`. Raises what LibTorch raises.
torch::jit::Module ReadScript(const policy::ModuleFile& file, const torch::Device& device);
/// Calls the method and returns what it returns. Raises with the last line of the interpreter's error: others are
/// its traceback.
torch::IValue CallScript(torch::jit::Method method, std::vector<torch::IValue> inputs);

/// INVALID_ARGUMENT that says `what` of the file.
absl::Status ScriptError(const policy::ModuleFile& file, const std::string& what);
/// The same of a file that is no TorchScript, as `read` says.
absl::Status UnreadableScript(const policy::ModuleFile& file, const absl::Status& read);

}  // namespace troupe::training
