#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

inline constexpr int64_t kMaxFrames = 64;

/// `env` whose agents observe their last `frames` observations of the episode, oldest first; before there are as many
/// the first one stands for those that are missing. An image of bytes (space::IsByteImage) gets `frames` times as many
/// channels, those of the oldest first; another Box gets `frames` as its first dimension and keeps its type; another
/// space becomes a Tuple of copies. Each agent has frames of its own: those it observed, whatever env steps lie
/// between. INVALID_ARGUMENT outside [1, kMaxFrames] or for spaces too large.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithFrameStack(std::unique_ptr<MultiAgentEnv> env, int64_t frames);

}  // namespace troupe::env
