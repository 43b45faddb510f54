#include "lib/envs/games/register.h"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/envs/games/connect_four.h"
#include "lib/envs/games/kuhn_poker.h"
#include "lib/envs/games/repeated_game.h"
#include "lib/envs/games/tic_tac_toe.h"
#include "lib/envs/games/two_step_game.h"

namespace troupe::envs {
namespace {

using Made = absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>>;

/// A game without arguments.
template <typename Game>
void Register(const std::string& name, const char* description, env::EnvRegistry& registry) {
  registry.Register({.name = name,
                     .description = description,
                     .factory = [name](env::EnvArgs args) -> Made {
                       TROUPE_RETURN_IF_ERROR(args.CheckAllKnown(name));
                       return std::make_unique<Game>();
                     },
                     .draws = !std::is_same_v<decltype(&Game::Draw), decltype(&env::MultiAgentEnv::Draw)>});
}

void RegisterRepeated(const char* name, const char* description,
                      absl::StatusOr<std::unique_ptr<RepeatedGame>> (*make)(env::EnvArgs args),
                      env::EnvRegistry& registry) {
  registry.Register({.name = name, .description = description, .factory = [make](env::EnvArgs args) -> Made {
                       return make(std::move(args));
                     }});
}

}  // namespace

void RegisterGames(env::EnvRegistry& registry) {
  RegisterRepeated("rock_paper_scissors",
                   "Two agents play rock, paper, scissors again and again and see the last round",
                   &MakeRockPaperScissors, registry);
  RegisterRepeated("matching_pennies", "Two agents show pennies again and again: one wants them equal, one does not",
                   &MakeMatchingPennies, registry);
  RegisterRepeated("matrix_game", "Any matrix game of 2 to 15 agents, from a table of payoffs, again and again",
                   &MakeMatrixGame, registry);
  Register<TwoStepGame>("two_step_game", "Two agents with one payoff: a safe second step or a better one (QMIX paper)",
                        registry);
  Register<TicTacToe>("tic_tac_toe", "Tic-tac-toe, in turn, with action masks, as PettingZoo's tictactoe_v3", registry);
  Register<ConnectFour>("connect_four", "Connect four, in turn, with action masks, as PettingZoo's connect_four_v3",
                        registry);
  Register<KuhnPoker>("kuhn_poker", "Kuhn poker for two, in turn, observed as OpenSpiel's information states",
                      registry);
}

}  // namespace troupe::envs
