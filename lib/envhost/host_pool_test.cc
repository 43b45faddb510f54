#include "lib/envhost/host_pool.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/log.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/python_child.h"
#include "lib/envhost/testing/player.h"
#include <spdlog/spdlog.h>

namespace troupe::envhost {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostPoolTest, EpisodesOfSeveralEnvironmentsInSeveralProcesses) {
  auto pool = MakePool("counter", Options(2), {{"length", int64_t{3}}});
  ASSERT_TRUE(pool.ok()) << pool.status();
  std::vector<std::unique_ptr<Player>> players;
  for (uint32_t i = 0; i < 5; ++i) players.push_back(std::make_unique<Player>(**pool, i));
  EXPECT_EQ((*pool)->PidsForTesting().size(), 2u);
  EXPECT_EQ(players[0]->spec().name, "python:host_test_envs:counter");
  std::set<float> seeds;
  for (int episode = 0; episode < 2; ++episode) {
    for (auto& player : players) {
      ASSERT_TRUE(player->Reset().ok());
      seeds.insert(player->buffers().observation(0, 0)[0]);
    }
    for (int step = 1; step <= 3; ++step) {
      for (size_t i = 0; i < players.size(); ++i) {
        const auto action = static_cast<int32_t>((i + static_cast<size_t>(step)) % 5);
        const absl::Status status = players[i]->Step(action);
        ASSERT_TRUE(status.ok()) << status;
        const env::SlotBuffers& buffers = players[i]->buffers();
        EXPECT_EQ(buffers.observation(0, 1)[1], static_cast<float>(step));
        EXPECT_EQ(buffers.observation(0, 1)[2], static_cast<float>(action));
        EXPECT_EQ(buffers.reward(0, 0), static_cast<float>(action));
        EXPECT_EQ(buffers.all_truncated(0), step == 3);
        EXPECT_FALSE(buffers.all_terminated(0));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 10u) << "two environments or episodes had the same seed";
  EXPECT_EQ((*pool)->stats().errors, 0);
}

TEST(HostPoolTest, TheSameSeedGivesTheSameEpisode) {
  std::vector<float> first;
  for (int i = 0; i < 2; ++i) {
    auto pool = MakePool("globals_only", Options(1));
    ASSERT_TRUE(pool.ok());
    Player player(**pool);
    ASSERT_TRUE(player.Reset().ok());
    const absl::Span<const float> row = player.buffers().observation(0, 0);
    if (i == 0) first.assign(row.begin(), row.end());
    EXPECT_EQ(std::vector<float>(row.begin(), row.end()), first) << "the global generators are not seeded";
  }
}

TEST(HostPoolTest, CallsInHalvesRunSideBySide) {
  auto pool = MakePool("counter", Options(1));
  ASSERT_TRUE(pool.ok());
  std::vector<std::unique_ptr<env::MultiAgentEnv>> envs;
  for (int i = 0; i < 8; ++i) envs.push_back(*(*pool)->MakeEnv());
  env::SlotBuffers buffers(envs[0]->spec(), 8);
  ASSERT_TRUE(envs[0]->runs_elsewhere());
  for (uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(envs[i]->StartReset({1, base::EnvId(i), 0}).ok());
  for (int i = 7; i >= 0; --i) ASSERT_TRUE(envs[static_cast<size_t>(i)]->Finish(buffers.BeginStep(i)).ok());
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < 8; ++i) {
      space::ActionWord word;  // need not outlive StartStep
      word.i32 = static_cast<int32_t>(i) % 5;
      const std::vector<const space::ActionWord*> rows = {&word, round % 2 == 0 ? &word : nullptr};
      ASSERT_TRUE(envs[i]->StartStep(rows).ok());
    }
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(envs[static_cast<size_t>(i)]->Finish(buffers.BeginStep(i)).ok());
      EXPECT_EQ(buffers.reward(i, 0), static_cast<float>(i % 5));
      // The agent that was not asked gave no reward.
      EXPECT_EQ(buffers.reward(i, 1), round % 2 == 0 ? static_cast<float>(i % 5) : 0.0f);
      if (buffers.all_done(i)) {
        ASSERT_TRUE(envs[static_cast<size_t>(i)]
                        ->Reset({1, base::EnvId(static_cast<uint32_t>(i)), 1}, buffers.BeginStep(i))
                        .ok());
      }
    }
  }
}

TEST(HostPoolTest, UsualStepsGoTheShortWayWhereItIsBuilt) {
  if (std::system(TROUPE_TEST_PYTHON " -c 'import sys; sys.exit(sys.version_info < (3, 11))'") != 0) {
    GTEST_SKIP() << TROUPE_TEST_PYTHON " is older than the short way";
  }
  auto pool = MakePool("tells_caller", Options(1));
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(player.Reset().ok());
    for (int step = 1; step <= 5; ++step) {
      ASSERT_TRUE(player.Step(1).ok());
      // The first step finds out that everybody has acted.
      EXPECT_EQ(player.buffers().observation(0, 0)[2], TROUPE_HAS_USUAL_STEP && step > 1 ? 0.0f : 1.0f) << step;
    }
  }
}

// Both ways that a step's rewards can take: the first step goes the long one.
TEST(HostPoolTest, RewardsCrossAsTheFloatsNearestToThem) {
  auto pool = MakePool("fractions", Options(1));
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  const std::vector<std::pair<float, float>> expected = {
      {0.1f, -1e-7f}, {1.0f / 3, 123456.789f}, {-2.5e-3f, 0.7f}, {-2.5e-3f, 0.7f}};
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(player.Reset().ok());
    for (const auto& [a, b] : expected) {
      ASSERT_TRUE(player.Step(1).ok());
      EXPECT_EQ(player.buffers().reward(0, 0), a);
      EXPECT_EQ(player.buffers().reward(0, 1), b);
    }
    EXPECT_TRUE(player.buffers().all_done(0));
  }
}

TEST(HostPoolTest, MasksStatesInfosAndAgentsThatComeAndGo) {
  auto pool = MakePool("Everything", Options(1));
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  const env::EnvSpec& spec = player.spec();
  EXPECT_EQ(spec.state_kind, env::StateKind::kPerAgent);
  EXPECT_TRUE(spec.has_agent_mask);
  EXPECT_THAT(spec.info_columns, ElementsAre("score"));
  EXPECT_EQ(spec.possible_agents[0].observation_space.ToString(), "Box(0, 10, [2, 2])");
  EXPECT_EQ(spec.possible_agents[0].action_space.ToString(), "Discrete(3, 1)");
  const env::SlotBuffers& buffers = player.buffers();
  ASSERT_TRUE(player.Reset().ok());
  EXPECT_TRUE(buffers.ready(0, 0));
  EXPECT_FALSE(buffers.ready(0, 1));
  EXPECT_THAT(buffers.action_mask(0, 0), ElementsAre(1, 0, 1));
  EXPECT_THAT(buffers.state(0, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(buffers.infos(0, 0), ElementsAre(0.5));
  ASSERT_TRUE(player.Step(3).ok());
  EXPECT_EQ(buffers.reward(0, 0), 2.0f);
  EXPECT_FALSE(buffers.agent_mask(0, 0));
  EXPECT_TRUE(buffers.agent_mask(0, 1));
  EXPECT_THAT(buffers.observation(0, 1), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(buffers.infos(0, 0), ElementsAre(1.5));
  const absl::Status second = player.Step(3);
  ASSERT_TRUE(second.ok()) << second;
  EXPECT_TRUE(buffers.terminated(0, 0));
  EXPECT_FALSE(buffers.all_done(0));
  EXPECT_THAT(buffers.action_mask(0, 1), ElementsAre(0, 1, 0));
  ASSERT_TRUE(player.Step(2).ok());
  EXPECT_EQ(buffers.reward(0, 1), 3.0f);
  EXPECT_TRUE(buffers.all_terminated(0));
}

TEST(HostPoolTest, Uint8ImagesCross) {
  auto pool = MakePool("Images", Options(1));
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  for (int step = 1; step <= 3; ++step) ASSERT_TRUE(player.Step(0).ok());
  const absl::Span<const uint8_t> image = player.buffers().observation_uint8(0, 3);
  ASSERT_EQ(image.size(), 84u * 84u * 4u);
  EXPECT_EQ(image.front(), 3);
  EXPECT_EQ(image.back(), 3);
}

TEST(HostPoolTest, IdsThatAreNumbersOrTuplesBecomeText) {
  for (const auto& [type, first] : std::map<std::string, std::string>{{"int", "7"}, {"tuple", "('x', 0)"}}) {
    auto pool = MakePool("counter", Options(1), {{"agent_type", type}});
    ASSERT_TRUE(pool.ok());
    Player player(**pool);
    EXPECT_EQ(player.spec().possible_agents[0].id.value(), first);
    ASSERT_TRUE(player.Reset().ok());
    EXPECT_TRUE(player.Step(1).ok());
  }
}

TEST(HostPoolTest, EveryEnvironmentIsClosedOnce) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  {
    auto pool = MakePool("counter", Options(2), {{"log", log}});
    ASSERT_TRUE(pool.ok());
    std::vector<std::unique_ptr<Player>> players;
    for (uint32_t i = 0; i < 5; ++i) players.push_back(std::make_unique<Player>(**pool, i));
    for (auto& player : players) ASSERT_TRUE(player->Reset().ok());
    // One leaves before the others, another one takes its place.
    players.erase(players.begin());
    players.push_back(std::make_unique<Player>(**pool, 9));
    ASSERT_TRUE(players.back()->Reset().ok());
    ASSERT_TRUE(players.back()->Step(1).ok());
  }
  EXPECT_EQ(CountLines(log, "made"), 6);
  EXPECT_EQ(CountLines(log, "closed"), 6);
}

TEST(HostPoolTest, AProcessHoldsAsManyEnvironmentsAsItMay) {
  auto pool = MakePool("counter", Options(1));
  ASSERT_TRUE(pool.ok());
  std::vector<std::unique_ptr<env::MultiAgentEnv>> envs;
  for (int i = 0; i <= kMaxEnvsPerProcess; ++i) envs.push_back(*(*pool)->MakeEnv());
  env::SlotBuffers buffers(envs[0]->spec(), 1);
  for (int i = 0; i < kMaxEnvsPerProcess; ++i) {
    ASSERT_TRUE(envs[static_cast<size_t>(i)]->StartReset({1, base::EnvId(static_cast<uint32_t>(i)), 0}).ok());
  }
  const absl::Status full = envs.back()->StartReset({1, base::EnvId(0), 0});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), AllOf(HasSubstr("1024 environments"), HasSubstr("env.python.processes")));
  for (int i = 0; i < kMaxEnvsPerProcess; ++i) {
    const absl::Status status = envs[static_cast<size_t>(i)]->Finish(buffers.BeginStep(0));
    ASSERT_TRUE(status.ok()) << status;
  }
  envs[7] = nullptr;  // its place is free
  EXPECT_TRUE(envs.back()->Reset({1, base::EnvId(0), 0}, buffers.BeginStep(0)).ok());
}

TEST(HostPoolTest, SpacesThatDifferBetweenProcessesAreAnError) {
  TemporaryFolder folder;
  auto pool = MakePool("changing", Options(2), {{"folder", folder.path()}});
  ASSERT_TRUE(pool.ok());
  Player first(**pool, 0), second(**pool, 1);
  EXPECT_TRUE(first.Reset().ok());
  EXPECT_THAT(std::string(second.Reset().message()), HasSubstr("spaces changed"));
  EXPECT_TRUE(first.Step(0).ok());
}

TEST(HostPoolTest, OutputDoesNotBlockAndIsOneLine) {
  // 400 lines of 2 KB a step are far more than a pipe holds.
  auto pool = MakePool("printing", Options(1), {{"lines", int64_t{400}}, {"width", int64_t{2000}}});
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  testing::internal::CaptureStdout();
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(player.Step(0).ok());
  spdlog::default_logger()->flush();
  const std::string log = testing::internal::GetCapturedStdout();
  int lines = 0;
  for (size_t at = log.find("process 0 pid="); at != std::string::npos; at = log.find("process 0 pid=", at + 1))
    ++lines;
  // A period may have ended meanwhile.
  EXPECT_LE(lines, 1);
}

TEST(HostPoolTest, WhatAnEnvironmentPrintsIsSaidWithItsFirstLine) {
  testing::internal::CaptureStdout();
  {
    auto pool = MakePool("printing", Options(1), {{"lines", int64_t{3}}, {"width", int64_t{5}}});
    ASSERT_TRUE(pool.ok());
    Player player(**pool);
    ASSERT_TRUE(player.Reset().ok());
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(player.Step(0).ok());
  }
  spdlog::default_logger()->flush();
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("printed 15 lines; the first: "));
}

TEST(HostPoolTest, ManyThreadsShareAPool) {
  auto pool = MakePool("counter", Options(2));
  ASSERT_TRUE(pool.ok());
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Player player(**pool, t);
      for (int episode = 0; episode < 20; ++episode) {
        if (!player.Reset().ok()) ++failures;
        for (int step = 1; step <= 5; ++step) {
          if (!player.Step(static_cast<int32_t>(t)).ok()) ++failures;
          if (player.buffers().observation(0, 0)[1] != static_cast<float>(step)) ++failures;
          if (player.buffers().observation(0, 0)[2] != static_cast<float>(t)) ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

// A mapping among them was sorted by name: agents that are made from it came in another order.
TEST(HostPoolTest, ArgumentsKeepTheirOrder) {
  auto pool = MakePool("teams", Options(1),
                       {{"teams", env::ArgMap{{"red", int64_t{2}}, {"blue", int64_t{1}}, {"azure", int64_t{1}}}},
                        {"more", env::ArgList{env::ArgMap{{"zed", int64_t{1}}, {"abe", int64_t{1}}}}}});
  ASSERT_TRUE(pool.ok()) << pool.status();
  const absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> env = (*pool)->MakeEnv();
  ASSERT_TRUE(env.ok()) << env.status();
  std::vector<std::string> agents;
  for (const env::AgentSpec& agent : (*env)->spec().possible_agents) agents.push_back(agent.id.value());
  EXPECT_THAT(agents, ElementsAre("red_0", "red_1", "blue_0", "azure_0", "zed_0", "abe_0"));
}

struct BadStart {
  std::string name;
  std::string env;
  env::ArgMap args;
  std::string says;
};

class BadStartTest : public ::testing::TestWithParam<BadStart> {};

TEST_P(BadStartTest, IsOneClearError) {
  HostOptions options = Options(1);
  options.start_timeout = absl::Seconds(GetParam().name == "slow" ? 1 : 60);
  auto pool = HostPool::Create(options, GetParam().env, env::EnvArgs(GetParam().args));
  ASSERT_TRUE(pool.ok());
  const absl::Status status = (*pool)->MakeEnv().status();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(GetParam().env), HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadStartTest,
    ::testing::Values(BadStart{"module", "python:no_such_module:x", {}, "no_such_module"},
                      BadStart{"attribute", "python:host_test_envs:no_such", {}, "no_such"},
                      BadStart{"argument", "python:host_test_envs:counter", {{"size", int64_t{3}}}, "size"},
                      BadStart{"kind", "python:host_test_envs:note", {{"path", ""}, {"text", ""}}, "NoneType"},
                      BadStart{"slow", "python:host_test_envs:slow_start", {{"seconds", int64_t{100}}}, "within 1s"}),
    [](const ::testing::TestParamInfo<BadStart>& info) { return info.param.name; });

TEST(HostPoolTest, InterpretersThatAreNotThere) {
  HostOptions options = Options(1);
  for (const char* interpreter : {"/no/such/python", "no-such-python", "/tmp"}) {
    options.interpreter = interpreter;
    const absl::Status status = MakePool("counter", options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("interpreter: got"), HasSubstr(interpreter)));
  }
  options.interpreter = "/bin/true";
  for (int i = 0; i < 20; ++i) {  // it may have ended before it is spoken to, or after
    auto pool = MakePool("counter", options);
    ASSERT_TRUE(pool.ok());
    EXPECT_THAT(std::string((*pool)->MakeEnv().status().message()), HasSubstr("exited with 0"));
  }
}

TEST(HostPoolTest, PackageThatIsNotThere) {
  ASSERT_EQ(setenv("TROUPE_PYTHON", "/tmp", 1), 0);
  const absl::Status status = MakePool("counter", Options(1)).status();
  ASSERT_EQ(unsetenv("TROUPE_PYTHON"), 0);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("TROUPE_PYTHON"), HasSubstr("/tmp")));
}

}  // namespace
}  // namespace troupe::envhost
