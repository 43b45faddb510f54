#include "lib/envs/testing/register.h"

#include <utility>

#include "lib/envs/testing/faulty.h"
#include "lib/envs/testing/signals.h"
#include "lib/envs/testing/turn_based.h"

namespace troupe::envs {

void RegisterTesting(env::EnvRegistry& registry) {
  registry.Register({.name = "testing/turn_based",
                     .description = "for tests: agents that take turns, come, leave and wait",
                     .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
                       return TurnBased::Make(std::move(args));
                     }});
  registry.Register({.name = "testing/faulty",
                     .description = "for tests: breaks the contract on order",
                     .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
                       return Faulty::Make(std::move(args));
                     }});
  registry.Register({.name = "testing/signals",
                     .description = "for tests: images of bytes, masks and mixed actions",
                     .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
                       return Signals::Make(std::move(args));
                     }});
}

}  // namespace troupe::envs
