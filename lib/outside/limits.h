#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace troupe::outside {

/// What clients may have of a worker; see docs/deployment.md.
struct EpisodeLimits {
  size_t episodes = 1024;                   ///< at once, waiting for a lane or played; half of them a network address
  absl::Duration idle = absl::Seconds(60);  ///< without a call: then the episode is lost
  int64_t steps = 1000000;                  ///< of an episode
  double max_abs_return = 1e12;             ///< of an agent in an episode, as clients report it
  size_t ids_kept = 4096;                   ///< of episodes that are over, to tell what became of them
};

/// Of an agent in a step, all reports of it together.
inline constexpr double kMaxAbsReward = 1e6;
inline constexpr size_t kMaxEpisodeIdBytes = 64;
/// Changes of weights after which it is not known any more which they were; see ActingPolicies.
inline constexpr size_t kWeightsKept = 64;
/// Of a decision that was made outside, nats.
inline constexpr float kMinLogProb = -50;

}  // namespace troupe::outside
