#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"
#include "lib/envs/mpe/mpe_env.h"

namespace troupe::envs {

using Args = env::ArgMap;

/// For tests: an environment by name with its arrays.
class Play {
 public:
  explicit Play(const std::string& name, Args args = {}) {
    auto made = MakeMpeEnv(name, env::EnvArgs(std::move(args)));
    EXPECT_TRUE(made.ok()) << made.status();
    env = *std::move(made);
    buffers = std::make_unique<env::SlotBuffers>(env->spec(), 1);
  }

  void Reset(const env::EpisodeSeed& seed) { ASSERT_TRUE(env->Reset(seed, buffers->BeginStep(0)).ok()); }
  absl::Status ResetTo(const WorldState& state) { return env->ResetTo(state, buffers->BeginStep(0)); }
  /// One discrete action an agent; those left out do the first one.
  absl::Status Step(const std::vector<int32_t>& actions = {}) {
    std::vector<space::ActionWord> words(env->spec().possible_agents.size(), space::ActionWord{.i32 = 0});
    for (size_t i = 0; i < actions.size(); ++i) words[i].i32 = actions[i];
    std::vector<const space::ActionWord*> rows;
    for (const space::ActionWord& word : words) rows.push_back(&word);
    return env->Step(rows, buffers->BeginStep(0));
  }
  /// One row of real numbers an agent.
  absl::Status StepContinuous(const std::vector<std::vector<float>>& actions) {
    std::vector<std::vector<space::ActionWord>> words(actions.size());
    std::vector<const space::ActionWord*> rows;
    for (size_t i = 0; i < actions.size(); ++i) {
      for (const float value : actions[i]) words[i].push_back({.f32 = value});
      rows.push_back(words[i].data());
    }
    return env->Step(rows, buffers->BeginStep(0));
  }

  absl::Span<const float> obs(int32_t slot) const { return buffers->observation(0, slot); }
  float reward(int32_t slot) const { return buffers->reward(0, slot); }

  std::unique_ptr<MpeEnv> env;
  std::unique_ptr<env::SlotBuffers> buffers;
};

inline std::string MakeError(const std::string& name, Args args) {
  return std::string(MakeMpeEnv(name, env::EnvArgs(std::move(args))).status().message());
}

}  // namespace troupe::envs
