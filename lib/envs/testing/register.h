#pragma once

#include "lib/env/registry.h"

namespace troupe::envs {

/// Adds `testing/turn_based`, `testing/faulty` and `testing/signals`.
void RegisterTesting(env::EnvRegistry& registry);

}  // namespace troupe::envs
