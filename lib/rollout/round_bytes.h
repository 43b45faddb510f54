#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/rollout/fragment_storage.h"

namespace troupe::rollout {

/// Bytes of the header for an episode in progress, and for one that has ended. Generous for varints; negative ones take
/// ten bytes.
int64_t EpisodeBytes(const RolloutSchema& schema);
int64_t FinishedBytes(const RolloutSchema& schema);

/// At most so many bytes does a round of one lane add to a fragment.
int64_t RoundBytesBound(const RolloutSchema& schema);

/// INVALID_ARGUMENT: a step of the environment may need more than a fragment may have, with what makes it smaller.
absl::Status CheckRoundFits(const RolloutSchema& schema, int64_t max_fragment_bytes);

}  // namespace troupe::rollout
