#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/base/ids.h"
#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/host_pool.h"

/// What the tests of lib/envhost share: environments of testing/host_test_envs.py and somebody who plays them.
namespace troupe::envhost {

inline HostOptions Options(int processes) {
  HostOptions options;
  options.interpreter = TROUPE_TEST_PYTHON;
  options.processes = processes;
  options.path = {absl::StrCat(TROUPE_SOURCE_DIR, "/lib/envhost/testing")};
  return options;
}

inline absl::StatusOr<std::shared_ptr<HostPool>> MakePool(const std::string& what, const HostOptions& options,
                                                          env::ArgMap args = {}) {
  return HostPool::Create(options, absl::StrCat("python:host_test_envs:", what), env::EnvArgs(std::move(args)));
}

inline std::unique_ptr<env::MultiAgentEnv> MakeOrDie(HostPool& pool) {
  absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> env = pool.MakeEnv();
  EXPECT_TRUE(env.ok()) << env.status();
  return *std::move(env);  // aborts with the error when there is none
}

/// An environment under CheckedEnv with buffers for what it brings, as a worker has it.
class Player {
 public:
  explicit Player(HostPool& pool, uint32_t env_id = 0)
      : env_(MakeOrDie(pool)), buffers_(env_.spec(), 1), env_id_(env_id) {}

  absl::Status Reset() { return env_.Reset({1, env_id_, episode_++}, buffers_.BeginStep(0)); }
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
  const base::EnvId env_id_;
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

inline std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

inline int64_t CountLines(const std::string& path, const std::string& beginning) {
  int64_t count = 0;
  for (const std::string& line : Lines(path)) count += absl::StartsWith(line, beginning) ? 1 : 0;
  return count;
}

}  // namespace troupe::envhost
