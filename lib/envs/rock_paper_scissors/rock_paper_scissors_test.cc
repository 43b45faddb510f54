#include "lib/envs/rock_paper_scissors/rock_paper_scissors.h"

#include <array>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One game with its buffers.
class Game {
 public:
  explicit Game(int64_t rounds) : env_(rounds), buffers_(env_.spec(), 1) {
    EXPECT_TRUE(env_.Reset({}, buffers_.BeginStep(0)).ok());
  }
  absl::Status Play(int32_t first, int32_t second) {
    const space::ActionWord words[2] = {{.i32 = first}, {.i32 = second}};
    const std::array<const space::ActionWord*, 2> rows = {&words[0], &words[1]};
    return env_.Step(rows, buffers_.BeginStep(0));
  }
  std::vector<float> Observation(int32_t slot) const {
    const absl::Span<const std::byte> bytes = buffers_.observation_bytes(0, slot);
    const auto* row = reinterpret_cast<const float*>(bytes.data());
    return std::vector<float>(row, row + bytes.size() / sizeof(float));
  }
  RockPaperScissors& env() { return env_; }
  env::SlotBuffers& buffers() { return buffers_; }

 private:
  RockPaperScissors env_;
  env::SlotBuffers buffers_;
};

TEST(RockPaperScissorsTest, PaysTheWinnerOfEveryPairOfHands) {
  // Rock 0, paper 1, scissors 2: paper beats rock, scissors paper, rock scissors.
  const float first_gets[3][3] = {{0, -1, 1}, {1, 0, -1}, {-1, 1, 0}};
  Game game(9);
  for (int32_t first = 0; first < 3; ++first) {
    for (int32_t second = 0; second < 3; ++second) {
      ASSERT_TRUE(game.Play(first, second).ok());
      EXPECT_EQ(game.buffers().reward(0, 0), first_gets[first][second]) << first << " against " << second;
      EXPECT_EQ(game.buffers().reward(0, 1), -first_gets[first][second]) << first << " against " << second;
    }
  }
}

TEST(RockPaperScissorsTest, BothSeeTheLastRoundFromTheirSide) {
  Game game(3);
  for (int32_t slot = 0; slot < 2; ++slot) EXPECT_THAT(game.Observation(slot), ElementsAre(0, 0, 0, 0, 0, 0, 0));
  ASSERT_TRUE(game.Play(1, 2).ok());
  EXPECT_THAT(game.Observation(0), ElementsAre(0, 1, 0, 0, 0, 1, 1));
  EXPECT_THAT(game.Observation(1), ElementsAre(0, 0, 1, 0, 1, 0, 1));
  ASSERT_TRUE(game.Play(0, 0).ok());
  EXPECT_THAT(game.Observation(0), ElementsAre(1, 0, 0, 1, 0, 0, 1));
  ASSERT_TRUE(game.env().Reset({}, game.buffers().BeginStep(0)).ok());
  EXPECT_THAT(game.Observation(0), ElementsAre(0, 0, 0, 0, 0, 0, 0)) << "a new game knows nothing of the old one";
}

TEST(RockPaperScissorsTest, EndsAfterItsRoundsWithALastObservation) {
  Game game(2);
  ASSERT_TRUE(game.Play(0, 1).ok());
  EXPECT_FALSE(game.buffers().all_done(0));
  ASSERT_TRUE(game.Play(2, 1).ok());
  EXPECT_TRUE(game.buffers().all_terminated(0));
  EXPECT_TRUE(game.buffers().observed(0, 0));
  EXPECT_THAT(game.Observation(0), ElementsAre(0, 0, 1, 0, 1, 0, 1));
  EXPECT_EQ(RockPaperScissors(10).spec().max_episode_steps, 10);
}

TEST(RockPaperScissorsTest, RefusesBadArgumentsAndActions) {
  const auto error = [](std::map<std::string, env::ArgValue> args) {
    return std::string(RockPaperScissors::Make(env::EnvArgs(std::move(args))).status().message());
  };
  EXPECT_THAT(error({{"rounds", int64_t{0}}}), HasSubstr("argument rounds is 0, expected an integer in [1, 1000000]"));
  EXPECT_THAT(error({{"rounds", int64_t{1000001}}}), HasSubstr("argument rounds is 1000001"));
  EXPECT_THAT(error({{"round", int64_t{2}}}), HasSubstr("did you mean 'rounds'?"));
  EXPECT_EQ((*RockPaperScissors::Make({}))->spec().max_episode_steps, 10);
  Game game(3);
  EXPECT_THAT(std::string(game.Play(0, 3).message()), HasSubstr("player_1: action is 3, expected 0, 1 or 2"));
  EXPECT_THAT(std::string(game.Play(-1, 0).message()), HasSubstr("player_0: action is -1"));
  const std::array<const space::ActionWord*, 2> nobody = {nullptr, nullptr};
  EXPECT_THAT(std::string(game.env().Step(nobody, game.buffers().BeginStep(0)).message()), HasSubstr("did not act"));
}

}  // namespace
}  // namespace troupe::envs
