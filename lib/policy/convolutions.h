#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::policy {

inline constexpr int64_t kMaxConvLayers = 8;
inline constexpr int64_t kMaxConvChannels = 1024;
inline constexpr int64_t kMaxConvExtent = 64;  ///< of kernels and strides

// The parts of PolicySpec::Validate that are of images.

/// The convolutions of a network of `spec`, whose spaces and inputs are known, or that it has none: INVALID_ARGUMENT
/// with role, layer and what does not fit.
absl::Status ValidateConvolutions(const PolicySpec& spec, const NetworkSpec& network);
/// Convolutions over `image`, zeros where what they read, `reads`, is none: INVALID_ARGUMENT that begins with `whose`,
/// with the layer and what does not fit.
absl::Status ValidateConvLayers(const std::string& whose, const std::vector<ConvLayer>& layers, ImageShape image,
                                const std::string& reads = "the observation");
/// "[[32, 8, 4], [64, 4, 2]]": channels, kernel and stride of each.
std::string ConvLayersText(const std::vector<ConvLayer>& layers);
/// What a policy whose images stay bytes cannot have: INVALID_ARGUMENT. They are not normalized by their moments, which
/// would be an array of numbers as large as an image for what is in [0, 1] anyway, and no network reads its agent's
/// behind another input.
absl::Status CheckImageBytes(const PolicySpec& spec);

}  // namespace troupe::policy
