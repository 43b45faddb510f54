#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::inference {

/// Makes what acts for policies whose actor is a user's module: LibTorch's, where a program has it. Thread-safe.
class ModuleActors {
 public:
  virtual ~ModuleActors() = default;
  /// NOT_FOUND: this process has no file with that hash; INVALID_ARGUMENT: the file is not what the spec says.
  virtual absl::StatusOr<std::unique_ptr<PolicyActor>> MakeActor(const policy::PolicySpec& spec, uint64_t seed) = 0;
};

/// The process's; a program without LibTorch has none. Set once, by main, before there are threads.
void SetModuleActors(ModuleActors* actors);

}  // namespace troupe::inference
