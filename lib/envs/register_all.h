#pragma once

#include "lib/env/registry.h"

namespace troupe::envs {

/// Adds every native environment. `testing/…` are for tests and say so in their descriptions.
void RegisterAllEnvs(env::EnvRegistry& registry);

}  // namespace troupe::envs
