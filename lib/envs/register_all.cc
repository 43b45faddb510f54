#include "lib/envs/register_all.h"

#include "lib/envs/cartpole/cartpole.h"
#include "lib/envs/mpe/register.h"
#include "lib/envs/rock_paper_scissors/rock_paper_scissors.h"
#include "lib/envs/testing/register.h"

namespace troupe::envs {

void RegisterAllEnvs(env::EnvRegistry& registry) {
  RegisterMpe(registry);
  RegisterCartpole(registry);
  RegisterRockPaperScissors(registry);
  RegisterTesting(registry);
}

}  // namespace troupe::envs
