#pragma once

#include <utility>
#include <vector>

#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env::testing {

/// An environment under CheckedEnv with full bounds, and what its last call brought: for tests of wrappers.
class Called {
 public:
  explicit Called(std::unique_ptr<MultiAgentEnv> env)
      : env_(std::move(env), CheckedEnv::Options{.check_bounds = true}),
        buffers_(env_.spec(), 1),
        actions_(env_.spec().possible_agents.size()) {
    for (size_t i = 0; i < actions_.size(); ++i)
      actions_[i].resize(static_cast<size_t>(spec().possible_agents[i].action_space.action_words()));
  }

  absl::Status Reset(const EpisodeSeed& seed = {}) { return env_.Reset(seed, buffers_.BeginStep(0)); }
  /// The actions below for who is ready.
  absl::Status Step() {
    std::vector<const space::ActionWord*> rows;
    for (size_t i = 0; i < actions_.size(); ++i)
      rows.push_back(buffers_.ready(0, static_cast<int32_t>(i)) ? actions_[i].data() : nullptr);
    return env_.Step(rows, buffers_.BeginStep(0));
  }

  std::vector<space::ActionWord>& action(size_t slot) { return actions_[slot]; }
  const CheckedEnv& env() const { return env_; }
  const EnvSpec& spec() const { return env_.spec(); }
  const SlotBuffers& got() const { return buffers_; }
  std::vector<float> Row(int32_t slot) const {
    const absl::Span<const float> row = buffers_.observation(0, slot);
    return {row.begin(), row.end()};
  }
  std::vector<uint8_t> Mask(int32_t slot) const {
    const absl::Span<const uint8_t> mask = buffers_.action_mask(0, slot);
    return {mask.begin(), mask.end()};
  }
  std::vector<float> State(int32_t slot) const {
    const absl::Span<const float> state = buffers_.state(0, slot);
    return {state.begin(), state.end()};
  }

 private:
  CheckedEnv env_;
  SlotBuffers buffers_;
  std::vector<std::vector<space::ActionWord>> actions_;
};

}  // namespace troupe::env::testing
