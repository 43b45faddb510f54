#include "lib/envs/register_all.h"

#include "lib/envs/cartpole/cartpole.h"
#include "lib/envs/catch/catch.h"
#include "lib/envs/games/register.h"
#include "lib/envs/memory/recall.h"
#include "lib/envs/mpe/register.h"
#include "lib/envs/testing/register.h"

namespace troupe::envs {

void RegisterAllEnvs(env::EnvRegistry& registry) {
  RegisterMpe(registry);
  RegisterCartpole(registry);
  RegisterCatch(registry);
  RegisterGames(registry);
  RegisterMemory(registry);
  RegisterTesting(registry);
}

}  // namespace troupe::envs
