#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/config/run_config.h"
#include "lib/env/env_spec.h"

namespace troupe::config {

/// The door of a world outside, as the configuration of who samples says: `env.external`. Plain value.
struct ExternalOptions {
  std::string address;  ///< empty: a socket in the run's folder
  size_t max_episodes = 1024;
  absl::Duration idle_timeout;
};

/// Whether the run's environment is a world outside: `env.external.spaces` says something.
bool IsExternal(const RunConfig& config);
ExternalOptions ExternalOptionsOf(const RunConfig& config);

/// The environment "external" of such a run. INVALID_ARGUMENT with the place of the key that is wrong.
absl::StatusOr<std::shared_ptr<const env::EnvSpec>> ExternalSpecOf(const RunConfig& config);

}  // namespace troupe::config
