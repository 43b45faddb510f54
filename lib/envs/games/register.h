#pragma once

#include "lib/env/registry.h"

namespace troupe::envs {

/// Adds `rock_paper_scissors`, `matching_pennies`, `matrix_game`, `two_step_game`, `tic_tac_toe`, `connect_four` and
/// `kuhn_poker`.
void RegisterGames(env::EnvRegistry& registry);

}  // namespace troupe::envs
