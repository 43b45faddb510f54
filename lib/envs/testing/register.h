#pragma once

#include "lib/env/registry.h"

namespace troupe::envs {

/// Adds `testing/turn_based` and `testing/faulty`.
void RegisterTesting(env::EnvRegistry& registry);

}  // namespace troupe::envs
