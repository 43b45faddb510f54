#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/env/slot_buffers.h"
#include <gtest/gtest.h>

namespace troupe::env::testing {

/// A native environment of discrete actions, made of its Options, and what it writes.
template <typename Env>
class Played {
 public:
  explicit Played(const typename Env::Options& options) : env(options), buffers(env.spec(), 1) {}

  void Reset(uint32_t episode = 0, uint64_t seed = 3) {
    ASSERT_TRUE(env.Reset({seed, base::EnvId(1), episode}, buffers.BeginStep(0)).ok());
  }
  /// An action of each agent.
  absl::Status Step(const std::vector<int32_t>& actions) {
    std::vector<space::ActionWord> words;
    for (const int32_t action : actions) words.push_back({.i32 = action});
    std::vector<const space::ActionWord*> rows;
    for (const space::ActionWord& word : words) rows.push_back(&word);
    return env.Step(rows, buffers.BeginStep(0));
  }
  /// The agent's observation, of floats.
  std::vector<float> Row(int32_t slot) const {
    const absl::Span<const float> row = buffers.observation(0, slot);
    return {row.begin(), row.end()};
  }
  /// The same, of bytes.
  std::vector<int> Image(int32_t slot) const {
    const absl::Span<const uint8_t> row = buffers.observation_uint8(0, slot);
    return {row.begin(), row.end()};
  }

  Env env;
  SlotBuffers buffers;
};

}  // namespace troupe::env::testing
