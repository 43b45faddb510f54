#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/policy_fwd.h"
#include "lib/space/space.h"

namespace troupe::policy {

inline constexpr size_t kMaxLeafEncoders = 64;  ///< of a network

/// A run of an observation's elements, and what stands for it in the inputs of a network with encoders of leaves.
/// Plain value.
struct ObservationPart {
  int64_t first = 0;  ///< of the row
  int64_t size = 0;
  const LeafEncoder* encoder = nullptr;  ///< in the network that was asked; nullptr: leaves that go on as they are
  ImageShape image;                      ///< what its convolutions read; zeros where it has none
  bool divided = false;                  ///< bytes of PolicySpec::bytes_by_255: its encoder divides them by 255
  int64_t made = 0;                      ///< elements that stand for it; `size` without an encoder
  std::string stem;                      ///< what the names of its parameters begin with behind the role: "leaf.2."
};

/// The observation of `network`, whose encoder is kLeaves, in the order of its rows. With PolicySpec::bytes_by_255
/// bytes are divided unless observations are normalized, whose moments scale them already.
std::vector<ObservationPart> ObservationParts(const PolicySpec& spec, const NetworkSpec& network);

/// Elements that stand for the observation in the inputs of `network`: what its encoder makes of it, of an mlp itself.
int64_t EncodedObservationSize(const PolicySpec& spec, const NetworkSpec& network);

/// The part of PolicySpec::Validate that is of leaves: INVALID_ARGUMENT with role, the leaf's number and what does not
/// fit.
absl::Status ValidateLeafEncoders(const PolicyId& id, const NetworkSpec& network, const space::Space& observation);

}  // namespace troupe::policy
