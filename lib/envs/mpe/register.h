#pragma once

#include "lib/env/registry.h"

namespace troupe::envs {

/// Adds `mpe/…`.
void RegisterMpe(env::EnvRegistry& registry);

}  // namespace troupe::envs
