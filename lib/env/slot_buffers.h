#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "lib/env/multi_agent_env.h"
#include "lib/tensor/buffer.h"

namespace troupe::env {

/// Dense arrays for what K environments of one spec bring: a StepWriter a environment for people who want arrays [K,
/// agents, ...] (VectorEnv, evaluation, conformance). Rollouts write into fragments instead.
///
/// Rows of agents that were not observed by the last call hold what was there before. Not thread-safe; environments of
/// different indices may be stepped by different threads.
class SlotBuffers {
 public:
  /// `spec` must outlive it.
  SlotBuffers(const EnvSpec& spec, int num_envs);
  SlotBuffers(const SlotBuffers&) = delete;
  SlotBuffers& operator=(const SlotBuffers&) = delete;
  ~SlotBuffers();

  /// The writer of environment `env`, with the flags, rewards and infos of the call before cleared.
  StepWriter& BeginStep(int env);
  /// The same, but rewards, infos and the flags of an end stay: for the Reset that follows an episode's last Step.
  StepWriter& BeginAutoReset(int env);

  // Of the last call. `env` in [0, K), `slot` in [0, agents).
  bool ready(int env, int32_t slot) const {
    if (!FlagAt(observed_, env, slot)) return false;
    return auto_reset_[static_cast<size_t>(env)] != 0 || (!all_done(env) && !done(env, slot));
  }
  bool observed(int env, int32_t slot) const { return FlagAt(observed_, env, slot); }
  bool terminated(int env, int32_t slot) const {
    return FlagAt(terminated_, env, slot);
  }  ///< the agent alone, not `__all__`
  bool truncated(int env, int32_t slot) const { return FlagAt(truncated_, env, slot); }
  bool done(int env, int32_t slot) const { return terminated(env, slot) || truncated(env, slot); }
  bool all_terminated(int env) const { return all_terminated_[static_cast<size_t>(env)] != 0; }
  bool all_truncated(int env) const { return all_truncated_[static_cast<size_t>(env)] != 0; }
  bool all_done(int env) const { return all_terminated(env) || all_truncated(env); }
  float reward(int env, int32_t slot) const { return rewards_[Index(env, slot)]; }  ///< given in the last call alone
  bool agent_mask(int env, int32_t slot) const { return FlagAt(agent_mask_, env, slot); }

  /// The flattened observation; the uint8 form only where the agent's space has it.
  absl::Span<const float> observation(int env, int32_t slot) const;
  absl::Span<const uint8_t> observation_uint8(int env, int32_t slot) const;
  absl::Span<const std::byte> observation_bytes(int env, int32_t slot) const;
  absl::Span<const uint8_t> action_mask(int env, int32_t slot) const;  ///< empty without mask
  /// The global state: `slot` matters only for kPerAgent.
  absl::Span<const float> state(int env, int32_t slot) const;
  absl::Span<const double> infos(int env, int32_t slot) const;  ///< one per info column, NaN when not given

  // Whole arrays, row-major: [K, agents] and, where all agents have one float observation space, [K, agents,
  // observation].
  absl::Span<const float> rewards() const { return rewards_; }
  absl::Span<const float> observations() const;

  /// Takes over everything of one environment from buffers of the same shape.
  void CopyFrom(const SlotBuffers& other, int env);
  /// Sets every byte of the observation rows, masks and states, so that what an environment does not write shows.
  void Fill(uint8_t byte);

  int num_envs() const { return num_envs_; }
  const EnvSpec& spec() const { return spec_; }

 private:
  class Writer;

  size_t Index(int env, int32_t slot) const { return static_cast<size_t>(env) * agents_ + static_cast<size_t>(slot); }
  bool FlagAt(const std::vector<uint8_t>& flags, int env, int32_t slot) const { return flags[Index(env, slot)] != 0; }

  const EnvSpec& spec_;
  const int num_envs_;
  const size_t agents_;
  std::vector<size_t> row_offset_;   ///< of every slot, in bytes inside an environment's block; one more at the end
  std::vector<size_t> mask_offset_;  ///< likewise
  size_t state_size_ = 0;            ///< floats
  tensor::Buffer rows_;
  std::vector<uint8_t> masks_;
  std::vector<float> states_;  ///< [K, agents or 1, state]
  std::vector<float> rewards_;
  std::vector<double> infos_;
  std::vector<uint8_t> observed_, terminated_, truncated_, agent_mask_;  ///< [K, agents]
  std::vector<uint8_t> all_terminated_, all_truncated_;                  ///< [K]
  std::vector<uint8_t> auto_reset_;  ///< [K]: observations are of the next episode, flags of an end are not
  std::vector<Writer> writers_;
};

}  // namespace troupe::env
