// Steps of Gymnasium's CartPole-v1 must come out of the native environment. record_cartpole.py made the numbers.

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"
#include "lib/envs/cartpole/cartpole.h"
#include <nlohmann/json.hpp>

namespace troupe::envs {
namespace {

using nlohmann::json;

json ReadRecord() {
  std::ifstream file(std::string(TROUPE_SOURCE_DIR) + "/tests/conformance/traces/cartpole.json");
  return json::parse(file);
}

Cartpole::CartState ReadState(const json& state) {
  Cartpole::CartState result{};
  for (size_t i = 0; i < result.size(); ++i) result[i] = state.at(i).get<double>();
  return result;
}

absl::Status StepOne(Cartpole& env, env::SlotBuffers& buffers, int action) {
  const space::ActionWord word{.i32 = action};
  const std::array<const space::ActionWord*, 1> rows = {&word};
  return env.Step(rows, buffers.BeginStep(0));
}

TEST(CartpoleParityTest, OneStepFromEveryRecordedState) {
  Cartpole env(Cartpole::Options{.num_agents = 1});
  env::SlotBuffers buffers(env.spec(), 1);
  int steps = 0;
  const json record = ReadRecord();
  for (const json& episode : record.at("episodes")) {
    for (size_t t = 0; t < episode.at("actions").size(); ++t, ++steps) {
      const Cartpole::CartState start = ReadState(episode.at("states").at(t));
      ASSERT_TRUE(env.ResetTo({start}, buffers.BeginStep(0)).ok());
      ASSERT_TRUE(StepOne(env, buffers, episode.at("actions").at(t).get<int>()).ok());
      const Cartpole::CartState expected = ReadState(episode.at("states").at(t + 1));
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(env.states()[0][i], expected[i], 1e-13) << "step " << t << ", element " << i;
        EXPECT_NEAR(buffers.observation(0, 0)[i], episode.at("observations").at(t).at(i).get<double>(), 1e-6);
      }
      EXPECT_EQ(buffers.reward(0, 0), episode.at("rewards").at(t).get<float>());
      EXPECT_EQ(buffers.terminated(0, 0), episode.at("terminated").at(t).get<bool>());
    }
  }
  EXPECT_GT(steps, 90);
}

TEST(CartpoleParityTest, WholeEpisodes) {
  int steps = 0;
  const json record = ReadRecord();
  for (const json& episode : record.at("episodes")) {
    Cartpole env(Cartpole::Options{.num_agents = 1});
    env::SlotBuffers buffers(env.spec(), 1);
    ASSERT_TRUE(env.ResetTo({ReadState(episode.at("states").at(0))}, buffers.BeginStep(0)).ok());
    for (size_t t = 0; t < episode.at("actions").size(); ++t) {
      ASSERT_FALSE(buffers.all_done(0));
      ASSERT_TRUE(StepOne(env, buffers, episode.at("actions").at(t).get<int>()).ok());
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(buffers.observation(0, 0)[i], episode.at("observations").at(t).at(i).get<double>(), 1e-5)
            << "step " << t;
      }
      EXPECT_EQ(buffers.all_terminated(0), episode.at("terminated").at(t).get<bool>());
      ++steps;
    }
  }
  EXPECT_GT(steps, 90);
}

TEST(CartpoleParityTest, AnAlteredRecordIsFound) {
  const json episode = ReadRecord().at("episodes").at(0);
  Cartpole env(Cartpole::Options{.num_agents = 1});
  env::SlotBuffers buffers(env.spec(), 1);
  ASSERT_TRUE(env.ResetTo({ReadState(episode.at("states").at(0))}, buffers.BeginStep(0)).ok());
  ASSERT_TRUE(StepOne(env, buffers, 1 - episode.at("actions").at(0).get<int>()).ok());
  EXPECT_GT(std::abs(env.states()[0][1] - ReadState(episode.at("states").at(1))[1]), 0.1);
}

TEST(CartpoleParityTest, ResetsInTheSameRange) {
  const json range = ReadRecord().at("reset_range");
  Cartpole env(Cartpole::Options{.num_agents = 2});
  env::SlotBuffers buffers(env.spec(), 1);
  double least = 1, most = -1;
  for (uint32_t episode = 0; episode < 300; ++episode) {
    ASSERT_TRUE(env.Reset({.seed = 5, .env_id = base::EnvId(1), .episode = episode}, buffers.BeginStep(0)).ok());
    for (const Cartpole::CartState& state : env.states()) {
      for (const double element : state) {
        least = std::min(least, element);
        most = std::max(most, element);
      }
    }
  }
  EXPECT_NEAR(least, range.at(0).get<double>(), 3e-4);
  EXPECT_NEAR(most, range.at(1).get<double>(), 3e-4);
}

}  // namespace
}  // namespace troupe::envs
