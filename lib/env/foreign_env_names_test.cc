#include "lib/env/foreign_env_names.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::env {
namespace {

TEST(ForeignEnvNamesTest, SayWhatTheyAreCalledHere) {
  const std::vector<std::string> known = {"cartpole", "connect_four", "mpe/simple_spread", "rock_paper_scissors",
                                          "tic_tac_toe"};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"CartPole-v1", "write python:gymnasium:CartPole-v1 (Gymnasium's) or cartpole (native, with several agents)"},
      {"Pendulum-v1", "write python:gymnasium:Pendulum-v1 (Gymnasium's)"},
      {"ALE/Pong-v5", "write python:ale_py:ALE/Pong-v5 (registered by that module)"},
      {"Foraging-8x8-2p-2f-coop-v3", "write python:lbforaging:Foraging-8x8-2p-2f-coop-v3 (registered by that module)"},
      {"rware:rware-tiny-2ag-v2", "write python:rware:rware-tiny-2ag-v2 (registered by that module)"},
      {"simple_spread_v3", "write mpe/simple_spread (native) or python:mpe2.simple_spread_v3 (mpe2's)"},
      {"tictactoe_v3", "write tic_tac_toe (native) or python:pettingzoo.classic.tictactoe_v3 (PettingZoo's)"},
      {"rps_v2", "write rock_paper_scissors (native) or python:pettingzoo.classic.rps_v2 (PettingZoo's)"},
      {"connect_four_v3", "write connect_four (native) or python:pettingzoo.classic.connect_four_v3 (PettingZoo's)"},
      {"pursuit_v4", "write python:pettingzoo.sisl.pursuit_v4 (PettingZoo's)"},
      {"pistonball_v6", "write python:pettingzoo.butterfly.pistonball_v6 (PettingZoo's)"},
      {"unheard_of_v1", "write python:pettingzoo.FAMILY.unheard_of_v1 (PettingZoo's)"},
      {"pettingzoo.sisl.pursuit_v4", "write python:pettingzoo.sisl.pursuit_v4 (PettingZoo's)"},
      {"my_env.py", "write python:my_env.py (a file)"},
      {"envs/my_env.py:Env", "write python:envs/my_env.py:Env (a file)"},
      {"my_module:make_env", "write python:my_module:make_env (a module)"},
      {"cartpol", ""},
      {"mpe/simple_spraed", ""},
      {"mpe/simple.x", ""},
      {"python:x_v3", ""},
      {"_v3", ""},
      {"-v3", ""},
      {"", ""},
      {"bad\nname_v3", ""},
      {std::string(300, 'a') + "_v3", ""},
  };
  for (const auto& [name, ours] : cases) EXPECT_EQ(ForeignEnvName(name, known), ours) << name;
}

}  // namespace
}  // namespace troupe::env
