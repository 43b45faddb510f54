#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/slot_buffers.h"

namespace troupe::envs {

/// A game and the buffers that it writes into, reset once.
class GameTable {
 public:
  explicit GameTable(std::unique_ptr<env::MultiAgentEnv> env) : env_(std::move(env)), buffers_(env_->spec(), 1) {
    Reset();
  }

  void Reset(const env::EpisodeSeed& seed = {}) { ASSERT_TRUE(env_->Reset(seed, buffers_.BeginStep(0)).ok()); }
  /// One Step; nullopt for an agent that does not act.
  absl::Status TryPlay(std::initializer_list<std::optional<int32_t>> actions) {
    std::vector<space::ActionWord> words(actions.size());
    std::vector<const space::ActionWord*> rows(actions.size());
    size_t slot = 0;
    for (const std::optional<int32_t> action : actions) {
      words[slot].i32 = action.value_or(0);
      rows[slot] = action ? &words[slot] : nullptr;
      ++slot;
    }
    return env_->Step(rows, buffers_.BeginStep(0));
  }
  void Play(std::initializer_list<std::optional<int32_t>> actions) {
    const absl::Status status = TryPlay(actions);
    ASSERT_TRUE(status.ok()) << status;
  }
  /// Steps of a game in which slots 0 and 1 move in turn, from slot 0 on.
  void PlayInTurn(std::initializer_list<int32_t> actions) {
    bool first = true;
    for (const int32_t action : actions) {
      first ? Play({action, std::nullopt}) : Play({std::nullopt, action});
      first = !first;
    }
  }

  /// "001", of a row of zeros and ones.
  std::string Row(int32_t slot) const {
    EXPECT_TRUE(buffers_.observed(0, slot));
    std::string text;
    for (const float value : buffers_.observation(0, slot)) text += value == 0 ? '0' : value == 1 ? '1' : '?';
    return text;
  }
  std::string Mask(int32_t slot) const {
    std::string text;
    for (const uint8_t value : buffers_.action_mask(0, slot)) text += value == 0 ? '0' : value == 1 ? '1' : '?';
    return text;
  }
  /// Of every slot, in the last Step.
  std::vector<float> Rewards() const { return {buffers_.rewards().begin(), buffers_.rewards().end()}; }
  bool Ready(int32_t slot) const { return buffers_.ready(0, slot); }
  bool Observed(int32_t slot) const { return buffers_.observed(0, slot); }
  bool Over() const { return buffers_.all_terminated(0); }

  env::MultiAgentEnv& env() { return *env_; }
  const env::SlotBuffers& buffers() const { return buffers_; }

 private:
  const std::unique_ptr<env::MultiAgentEnv> env_;
  env::SlotBuffers buffers_;
};

}  // namespace troupe::envs
