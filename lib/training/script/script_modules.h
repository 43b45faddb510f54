#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/device_options.h"

namespace troupe::training {

class ScriptNetwork;

/// The module of `network` of `spec`, out of policy::ModuleFiles, for `device`. NOT_FOUND: the file is not there;
/// INVALID_ARGUMENT: as ScriptNetwork::Load, or its tensors or its state are not what the spec says.
absl::StatusOr<std::unique_ptr<ScriptNetwork>> LoadScript(const policy::PolicySpec& spec,
                                                          const policy::NetworkSpec& network, const Device& device);

/// Gives this process LibTorch's policy::ModuleReader and inference::ModuleActors, which act for policies whose actor
/// is a user's module. By main, before there are threads.
void InstallScriptModules();
/// LibTorch computes with the threads that call it, and starts none: for processes that act.
void ActWithOneThread();

}  // namespace troupe::training
