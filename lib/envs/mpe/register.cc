#include "lib/envs/mpe/register.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/envs/mpe/mpe_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

struct Scenario {
  const char* name;      ///< ours
  const char* original;  ///< mpe2's
  const char* description;
  absl::StatusOr<std::unique_ptr<MpeEnv>> (*make)(env::EnvArgs args);
};

constexpr Scenario kScenarios[] = {
    {"mpe/collect_treasure", "collect_treasure_v1", "collectors carry treasures to deposits of their type",
     MakeCollectTreasure},
    {"mpe/simple", "simple_v3", "one agent goes to a landmark", MakeSimple},
    {"mpe/simple_adversary", "simple_adversary_v3", "good agents hide their goal from an adversary",
     MakeSimpleAdversary},
    {"mpe/simple_crypto", "simple_crypto_v3", "Alice and Bob share a word that Eve shall not understand",
     MakeSimpleCrypto},
    {"mpe/simple_formation", "simple_formation_v1", "N agents form a circle around a landmark", MakeSimpleFormation},
    {"mpe/simple_line", "simple_line_v1", "N agents form a line between two landmarks", MakeSimpleLine},
    {"mpe/simple_push", "simple_push_v3", "an adversary keeps an agent away from its goal", MakeSimplePush},
    {"mpe/simple_reference", "simple_reference_v3", "two agents tell each other where to go", MakeSimpleReference},
    {"mpe/simple_speaker_listener", "simple_speaker_listener_v4", "a speaker tells a listener where to go",
     MakeSimpleSpeakerListener},
    {"mpe/simple_spread", "simple_spread_v3", "N agents cover N landmarks without colliding", MakeSimpleSpread},
    {"mpe/simple_tag", "simple_tag_v3", "adversaries chase faster good agents around obstacles", MakeSimpleTag},
    {"mpe/simple_world_comm", "simple_world_comm_v3", "simple_tag with food, forests and a leader that speaks",
     MakeSimpleWorldComm},
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeMpeEnv(std::string_view name, env::EnvArgs args) {
  std::vector<const char*> originals;
  for (const Scenario& scenario : kScenarios) {
    if (name == scenario.name || name == scenario.original) return scenario.make(std::move(args));
    originals.push_back(scenario.original);
  }
  return absl::NotFoundError(absl::StrCat("there is no native environment for '", base::LogSafe(name),
                                          "', expected one of ", absl::StrJoin(originals, ", ")));
}

void RegisterMpe(env::EnvRegistry& registry) {
  for (const Scenario& scenario : kScenarios) {
    registry.Register(
        {.name = scenario.name,
         .description = absl::StrCat(scenario.description, " (mpe2 1.1.1 ", scenario.original, ")"),
         .factory = [make = scenario.make](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
           return make(std::move(args));
         },
         .draws = true});
  }
}

}  // namespace troupe::envs
