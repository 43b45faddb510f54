// A thousand faults of Python environments, drawn at random in one step of a thousand: crashes, exits, exceptions,
// garbage and hangs. What is here is a worker's loop: environments in halves, an error ends an episode, Reset begins
// the next. Nothing but the episodes of the struck process may be lost, and every fault is counted.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/host_pool.h"

namespace troupe {
namespace {

constexpr int kPerKind = 4;
constexpr int64_t kInjected = 1000;

/// The faults that the environments noted before they happened, by kind.
std::map<std::string, int64_t> Noted(const std::string& log) {
  std::map<std::string, int64_t> faults;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "fault ")) ++faults[line.substr(6)];
  }
  return faults;
}

/// Environments of one pool and what became of them.
class Group {
 public:
  Group(std::shared_ptr<envhost::HostPool> pool, int count) : pool_(std::move(pool)) {
    for (int i = 0; i < count; ++i) {
      auto env = pool_->MakeEnv();
      EXPECT_TRUE(env.ok()) << env.status();
      envs_.push_back(*std::move(env));
    }
    buffers_ = std::make_unique<env::SlotBuffers>(envs_[0]->spec(), count);
    reset_.assign(envs_.size(), 1);
    started_.assign(envs_.size(), 0);
  }

  void StartAll() {
    space::ActionWord word;
    word.i32 = 1;
    const std::vector<const space::ActionWord*> rows(2, &word);
    for (size_t i = 0; i < envs_.size(); ++i) {
      const uint32_t id = static_cast<uint32_t>(i);
      Check(i, reset_[i] ? envs_[i]->StartReset({1, base::EnvId(id), episode_++}) : envs_[i]->StartStep(rows),
            /*start=*/true);
    }
  }
  void FinishAll() {
    for (size_t i = 0; i < envs_.size(); ++i) {
      if (!started_[i]) continue;
      Check(i, envs_[i]->Finish(buffers_->BeginStep(static_cast<int>(i))), /*start=*/false);
      if (!reset_[i] && buffers_->all_done(static_cast<int>(i))) reset_[i] = 1;
      ++calls_;
    }
  }

  const envhost::HostPool& pool() const { return *pool_; }
  int64_t errors() const { return errors_; }
  int64_t calls() const { return calls_; }

 private:
  void Check(size_t i, const absl::Status& status, bool start) {
    started_[i] = start && status.ok();
    if (start && status.ok()) return;
    if (!status.ok()) {
      ++errors_;
      EXPECT_NE(status.code(), absl::StatusCode::kResourceExhausted) << status;
    }
    reset_[i] = status.ok() ? 0 : 1;
  }

  const std::shared_ptr<envhost::HostPool> pool_;
  std::vector<std::unique_ptr<env::MultiAgentEnv>> envs_;
  std::unique_ptr<env::SlotBuffers> buffers_;
  std::vector<uint8_t> reset_, started_;
  uint32_t episode_ = 0;
  int64_t errors_ = 0, calls_ = 0;
};

/// `timeout`: short only where hangs are to be found, because a busy machine may keep a process from the processor.
std::shared_ptr<envhost::HostPool> Pool(const std::string& faults, int one_in, const std::string& log,
                                        absl::Duration timeout = absl::Seconds(30)) {
  envhost::HostOptions options;
  options.interpreter = TROUPE_TEST_PYTHON;
  options.path = {TROUPE_SOURCE_DIR "/lib/envhost/testing"};
  options.processes = 1;
  options.step_timeout = timeout;
  options.max_restarts = 1000;
  env::ArgMap args = {{"log", log}};
  if (one_in > 0) args.emplace_back("faults", faults);
  if (one_in > 0) args.emplace_back("one_in", int64_t{one_in});
  auto pool = envhost::HostPool::Create(
      options, absl::StrCat("python:host_test_envs:", one_in > 0 ? "Faulty" : "counter"), env::EnvArgs(args));
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *pool;
}

TEST(EnvHostFaultsTest, AThousandFaultsAreCountedAndCostNobodyElse) {
  std::string folder = absl::StrCat(std::filesystem::temp_directory_path().string(), "/env_faults_XXXXXX");
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string log = folder + "/log", healthy_log = folder + "/healthy";
  // Deaths, of which hangs take their deadline, apart from the other kinds: each of them is told apart in what is
  // counted.
  const auto deadly = Pool("crash,exit,hang", 1000, log, absl::Milliseconds(200));
  const auto survived = Pool("exception,shape,dtype,unknown_agent,missing_all,reward", 1000, log);
  const auto healthy = Pool("", 0, healthy_log);
  Group deadly_group(deadly, kPerKind), survived_group(survived, kPerKind), healthy_group(healthy, 1);
  int64_t injected = 0;
  int64_t rounds = 0;
  const absl::Time deadline = absl::Now() + absl::Minutes(4);
  constexpr int64_t kDeadly = 300;
  while (injected < kInjected && absl::Now() < deadline) {
    // Once enough processes died, only the others go on.
    const bool kill_more = deadly->stats().deaths < kDeadly;
    if (kill_more) deadly_group.StartAll();
    survived_group.StartAll();
    healthy_group.StartAll();
    if (kill_more) deadly_group.FinishAll();
    survived_group.FinishAll();
    healthy_group.FinishAll();
    ++rounds;
    const envhost::HostStats stats = survived->stats();
    injected = deadly->stats().deaths + stats.exceptions + stats.bad_outputs;
  }
  EXPECT_GE(injected, kInjected) << "after " << rounds << " rounds";
  const std::map<std::string, int64_t> noted = Noted(log);
  int64_t deaths = 0, exceptions = 0, bad_outputs = 0;
  for (const auto& [kind, count] : noted) {
    std::printf("%s: %lld\n", kind.c_str(), static_cast<long long>(count));
    const bool kills = kind == "crash" || kind == "exit" || kind == "hang";
    (kills ? deaths : kind == "exception" ? exceptions : bad_outputs) += count;
    EXPECT_GT(count, 0);
  }
  EXPECT_EQ(noted.size(), 9u) << "a kind of fault never happened";
  // Who is kept waiting for 200 ms is taken for one that hangs, and noted nothing.
  const int64_t kept_waiting = deadly->stats().timeouts - noted.at("hang");
  EXPECT_GE(kept_waiting, 0);
  EXPECT_EQ(deadly->stats().deaths, deaths + kept_waiting);
  EXPECT_EQ(survived->stats().exceptions, exceptions);
  EXPECT_EQ(survived->stats().bad_outputs, bad_outputs);
  EXPECT_EQ(survived->stats().deaths, 0);
  // What was counted is what the loop saw, and a process that dies costs at most its environments' episodes.
  EXPECT_EQ(survived_group.errors(), survived->stats().errors);
  EXPECT_EQ(deadly_group.errors(), deadly->stats().errors);
  EXPECT_LE(deadly_group.errors(), deadly->stats().deaths * kPerKind);
  EXPECT_EQ(healthy_group.errors(), 0);
  EXPECT_EQ(healthy->stats().deaths, 0);
  EXPECT_EQ(healthy_group.calls(), rounds);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace troupe
