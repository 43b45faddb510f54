#include "lib/envs/mpe/register.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/mpe_env.h"
#include "lib/envs/mpe/simple_spread.h"

namespace troupe::envs {

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeMpeEnv(std::string_view name, env::EnvArgs args) {
  if (name == "simple_spread_v3" || name == "mpe/simple_spread") return SimpleSpread::Make(std::move(args));
  return absl::NotFoundError(
      absl::StrCat("there is no native environment for '", base::LogSafe(name), "', expected simple_spread_v3"));
}

void RegisterMpe(env::EnvRegistry& registry) {
  registry.Register({.name = "mpe/simple_spread",
                     .description = "N agents cover N landmarks without colliding (mpe2 1.1.1 simple_spread_v3)",
                     .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
                       return SimpleSpread::Make(std::move(args));
                     }});
}

}  // namespace troupe::envs
