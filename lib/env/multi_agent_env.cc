#include "lib/env/multi_agent_env.h"

#include "absl/strings/str_cat.h"

namespace troupe::env {

absl::Status MultiAgentEnv::Draw(Canvas& /*canvas*/) const {
  return absl::UnimplementedError(absl::StrCat("environment ", spec().name, " has no picture of itself"));
}

absl::Status MultiAgentEnv::NotInHalves() const {
  return absl::UnimplementedError(
      absl::StrCat("environment ", spec().name, " cannot be called in two halves: it computes in the caller's thread"));
}

}  // namespace troupe::env
