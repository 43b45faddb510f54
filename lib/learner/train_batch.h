#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/policy/ids.h"
#include "lib/space/space.h"

namespace troupe::learner {

/// Consecutive rows of one agent's trajectory.
struct TrainSegment {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t final_row = -1;  ///< row of final_obs to bootstrap from; -1: terminated, value 0
  uint32_t env_id = 0;
  uint32_t episode = 0;
  int32_t slot = 0;
};

/// The rows of one policy, gathered so that every segment is contiguous and in time order; segments ascend by (env id,
/// episode, slot). Spans are borrowed from the assembler's buffers and valid until it assembles again.
struct PolicyTrainBatch {
  policy::PolicySlot policy;
  int64_t rows = 0;
  int64_t final_rows = 0;
  bool train = true;  ///< false: the update leaves the policy as it is; its rows are for counting and joint critics

  absl::Span<const float> obs;                  ///< [rows, observation_size]
  absl::Span<const space::ActionWord> actions;  ///< [rows, action_words]
  absl::Span<const float> action_logp;          ///< [rows]
  absl::Span<const float> rewards;              ///< [rows], after common_reward
  absl::Span<const uint8_t> action_mask;        ///< [rows, mask_size] or empty
  absl::Span<const uint8_t> agent_mask;         ///< [rows] or empty (all active); 0: not for losses
  absl::Span<const int32_t> slot;               ///< [rows], agent slot (for the one-hot)
  absl::Span<const int32_t> critic_row;         ///< [rows], row of critic_state; empty for CriticInput::kObservation
  absl::Span<const float> final_obs;            ///< [final_rows, observation_size]
  absl::Span<const int32_t> final_slot;         ///< [final_rows]
  absl::Span<const int32_t> final_critic_row;   ///< [final_rows]
  /// [critic_rows, critic_state_size]: joint observations (with presence bits) or global states; several rows may point
  /// at one.
  absl::Span<const float> critic_state;
  int64_t critic_rows = 0;
  std::vector<TrainSegment> segments;
};

/// What one update trains on.
struct TrainBatch {
  int64_t env_steps = 0;
  int64_t agent_steps = 0;
  std::vector<PolicyTrainBatch> policies;  ///< ascending policy slot
};

}  // namespace troupe::learner
