#include "lib/envhost/host_pool.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"

namespace troupe::envhost {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

HostOptions Options(int processes) {
  HostOptions options;
  options.interpreter = TROUPE_TEST_PYTHON;
  options.processes = processes;
  options.path = {absl::StrCat(TROUPE_SOURCE_DIR, "/lib/envhost/testing")};
  return options;
}

absl::StatusOr<std::shared_ptr<HostPool>> MakePool(const std::string& what, const HostOptions& options,
                                                   std::map<std::string, env::ArgValue> args = {}) {
  return HostPool::Create(options, absl::StrCat("python:host_test_envs:", what), env::EnvArgs(std::move(args)));
}

std::unique_ptr<env::MultiAgentEnv> MakeOrDie(HostPool& pool) {
  absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> env = pool.MakeEnv();
  EXPECT_TRUE(env.ok()) << env.status();
  return *std::move(env);  // aborts with the error when there is none
}

/// An environment under CheckedEnv with buffers for what it brings, as a worker has it.
class Player {
 public:
  explicit Player(HostPool& pool, uint32_t env_id = 0)
      : env_(MakeOrDie(pool)), buffers_(env_.spec(), 1), env_id_(env_id) {}

  absl::Status Reset() {
    return env_.Reset({1, env_id_, episode_++}, buffers_.BeginStep(0));
  }
  /// Everybody who is ready takes this action.
  absl::Status Step(int32_t action) {
    std::vector<space::ActionWord> words(env_.spec().possible_agents.size());
    std::vector<const space::ActionWord*> rows(words.size(), nullptr);
    for (size_t i = 0; i < words.size(); ++i) {
      words[i].i32 = action;
      if (buffers_.ready(0, static_cast<int32_t>(i))) rows[i] = &words[i];
    }
    return env_.Step(rows, buffers_.BeginStep(0));
  }
  const env::SlotBuffers& buffers() const { return buffers_; }
  const env::EnvSpec& spec() const { return env_.spec(); }

 private:
  env::CheckedEnv env_;
  env::SlotBuffers buffers_;
  const uint32_t env_id_;
  uint32_t episode_ = 0;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = absl::StrCat(std::filesystem::temp_directory_path().string(), "/envhost_XXXXXX");
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string File(const char* name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

int64_t CountLines(const std::string& path, const std::string& beginning) {
  int64_t count = 0;
  for (const std::string& line : Lines(path)) count += absl::StartsWith(line, beginning) ? 1 : 0;
  return count;
}

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
  for (uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(envs[i]->StartReset({1, i, 0}).ok());
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
        ASSERT_TRUE(envs[static_cast<size_t>(i)]->Reset({1, static_cast<uint32_t>(i), 1}, buffers.BeginStep(i)).ok());
      }
    }
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

/// What a fault of one kind costs and says.
struct FaultCase {
  std::string fault;
  bool kills;  ///< the process
  std::string says;
};

class FaultTest : public ::testing::TestWithParam<FaultCase> {};

TEST_P(FaultTest, CostsItsEpisodeAndNothingElse) {
  const FaultCase& fault = GetParam();
  HostOptions options = Options(2);
  options.step_timeout = absl::Milliseconds(200);
  auto pool = MakePool("Faulty", options, {{"faults", fault.fault}, {"at_step", int64_t{3}}});
  ASSERT_TRUE(pool.ok());
  Player hurt(**pool, 0);   // first process
  Player other(**pool, 1);  // second
  ASSERT_TRUE(hurt.Reset().ok());
  ASSERT_TRUE(other.Reset().ok());
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(hurt.Step(1).ok());
    ASSERT_TRUE(hurt.Step(1).ok());
    const absl::Status status = hurt.Step(1);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("environment python:host_test_envs:Faulty (env 0, episode"), HasSubstr("step 3"),
                      HasSubstr(fault.says)));
    const absl::Status again = hurt.Reset();
    ASSERT_TRUE(again.ok()) << again;
  }
  ASSERT_TRUE(other.Step(1).ok());
  EXPECT_EQ(other.buffers().observation(0, 0)[1], 1.0f) << "the other environment lost its episode";
  const HostStats stats = (*pool)->stats();
  EXPECT_EQ(stats.deaths, fault.kills ? 2 : 0);
  EXPECT_EQ(stats.restarts, fault.kills ? 2 : 0);
  EXPECT_EQ(stats.timeouts, fault.fault == "hang" ? 2 : 0);
  // What CheckedEnv finds (NaN) is not the host's to count.
  EXPECT_EQ(stats.errors, fault.fault == "nan" ? 0 : 2);
  EXPECT_EQ(stats.exceptions, fault.fault == "exception" || fault.fault == "system_exit" ? 2 : 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultTest,
    ::testing::Values(FaultCase{"crash", true, "signal 11"}, FaultCase{"exit", true, "exited with 3"},
                      FaultCase{"exception", false, "ValueError: the wheel came off"},
                      FaultCase{"system_exit", false, "SystemExit: 4"}, FaultCase{"hang", true, "within 200ms"},
                      FaultCase{"nan", false, "observation element 1"}, FaultCase{"shape", false, "agent b"},
                      FaultCase{"dtype", false, "agent b"}, FaultCase{"unknown_agent", false, "nobody"},
                      FaultCase{"missing_all", false, "__all__"}, FaultCase{"reward", false, "much"}),
    [](const ::testing::TestParamInfo<FaultCase>& info) { return info.param.fault; });

TEST(HostPoolTest, AKilledChildIsReplaced) {
  auto pool = MakePool("counter", Options(2));
  ASSERT_TRUE(pool.ok());
  Player first(**pool, 0), second(**pool, 1), third(**pool, 2);
  for (Player* player : {&first, &second, &third}) ASSERT_TRUE(player->Reset().ok());
  ASSERT_EQ(kill((*pool)->PidsForTesting()[0], SIGKILL), 0);
  EXPECT_THAT(std::string(first.Step(0).message()), HasSubstr("signal 9"));
  EXPECT_FALSE(third.Step(0).ok()) << "it lived in the same process";
  EXPECT_TRUE(second.Step(0).ok());
  EXPECT_TRUE(first.Reset().ok());
  EXPECT_TRUE(third.Reset().ok());
  EXPECT_TRUE(first.Step(0).ok());
  EXPECT_EQ((*pool)->stats().deaths, 1);
  EXPECT_EQ((*pool)->stats().restarts, 1);
  EXPECT_EQ((*pool)->stats().errors, 2);
}

TEST(HostPoolTest, RestartsHaveABudget) {
  HostOptions options = Options(1);
  options.max_restarts = 2;
  auto pool = MakePool("Faulty", options, {{"faults", "exit"}, {"at_step", int64_t{1}}});
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  for (int life = 0; life < 3; ++life) {
    ASSERT_TRUE(player.Reset().ok());
    EXPECT_FALSE(player.Step(0).ok());
  }
  const absl::Status status = player.Reset();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("restarted 2 times"), HasSubstr("max_restarts"),
                                                   HasSubstr("exited with 3")));
}

TEST(HostPoolTest, AClosedEnvironmentIsMadeAnewAfterAnException) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  {
    auto pool = MakePool("Faulty", Options(1), {{"faults", "exception"}, {"at_step", int64_t{1}}, {"log", log}});
    ASSERT_TRUE(pool.ok());
    Player player(**pool);
    for (int episode = 0; episode < 3; ++episode) {
      ASSERT_TRUE(player.Reset().ok());
      EXPECT_FALSE(player.Step(0).ok());
    }
  }
  EXPECT_EQ(CountLines(log, "made"), 3);
  EXPECT_EQ(CountLines(log, "closed"), 3);
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

TEST(HostPoolTest, OutputDoesNotBlockAndIsBounded) {
  // 400 lines of 2 KB a step are far more than a pipe holds.
  auto pool = MakePool("printing", Options(1), {{"lines", int64_t{400}}, {"width", int64_t{2000}}});
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(player.Step(0).ok());
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

struct BadStart {
  std::string name;
  std::string env;
  std::map<std::string, env::ArgValue> args;
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
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("env.python.interpreter"), HasSubstr(interpreter)));
  }
  options.interpreter = "/bin/true";
  auto pool = MakePool("counter", options);
  ASSERT_TRUE(pool.ok());
  EXPECT_THAT(std::string((*pool)->MakeEnv().status().message()), HasSubstr("exited with 0"));
}

TEST(HostPoolTest, PackageThatIsNotThere) {
  ASSERT_EQ(setenv("TROUPE_PYTHON", "/tmp", 1), 0);
  const absl::Status status = MakePool("counter", Options(1)).status();
  ASSERT_EQ(unsetenv("TROUPE_PYTHON"), 0);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("TROUPE_PYTHON"), HasSubstr("/tmp")));
}

}  // namespace
}  // namespace troupe::envhost
