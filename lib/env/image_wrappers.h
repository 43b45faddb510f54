#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

// Environments whose images are changed before anybody sees them. All agents' observations must be images: uint8 Boxes
// of [height, width, channels] or [height, width]; INVALID_ARGUMENT names one whose observation is none. Bounds are
// those of the whole image, the lowest and the highest of its elements. One buffer of an image an agent; a step
// allocates nothing.

inline constexpr int64_t kMaxImageExtent = 4096;

/// The part of the image that begins at `top`, `left`, `height` x `width` pixels large: {top, left, height, width}.
/// INVALID_ARGUMENT where the image is smaller, and for other than four numbers.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithCrop(std::unique_ptr<MultiAgentEnv> env,
                                                        const std::vector<int64_t>& crop);

/// Images of red, green and blue become images of one channel, the luma of ITU-R BT.601: 0.299 R + 0.587 G + 0.114 B,
/// rounded to the nearest. Those of one channel stay; INVALID_ARGUMENT for another number.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithGrayscale(std::unique_ptr<MultiAgentEnv> env);

/// Images of {height, width} pixels: each is the mean of the area of the old image that it covers, parts of pixels by
/// their share, rounded to the nearest. INVALID_ARGUMENT outside of [1, kMaxImageExtent] and for other than two
/// numbers.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithResize(std::unique_ptr<MultiAgentEnv> env,
                                                          const std::vector<int64_t>& size);

}  // namespace troupe::env
