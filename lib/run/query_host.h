#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/inference/actor_host.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"

namespace troupe::run {

/// What of a run's code whoever answers its queries may run. Plain value.
struct QueryPermits {
  std::string config_path;           ///< the operator's own: what of the run's Python may be imported; empty: nothing
  std::vector<std::string> modules;  ///< TorchScript files, besides those of config_path, that may be run
};

/// A seed of sampled actions: another one at every start.
uint64_t DrawSeed();

/// The policies that may be asked.
std::vector<policy::PolicySpec> ActiveSpecs(const policy::PolicyTable& table);

/// Where policies in Python are asked; nullptr: the run has none. What it names in Python, or as TorchScript files,
/// must be the operator's own: in their configuration, name by name, which also says with which interpreter, or a file.
/// PERMISSION_DENIED for what is not.
absl::StatusOr<std::shared_ptr<inference::ActorHost>> MakeActorHost(const policy::PolicyTable& table,
                                                                    const QueryPermits& asked);

}  // namespace troupe::run
