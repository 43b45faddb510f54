#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_state.h"

namespace troupe::policy {

/// `state` as bytes that any process with its PolicySpec can read: a header of fixed size with a magic number, a
/// format, a CRC-32C over all that follows it, the version and sizes; then the id, and each block with its name, type,
/// shape and values. Little-endian.
std::string EncodePolicyState(const PolicyState& state);

/// The state that was encoded, bit for bit. DATA_LOSS, naming the policy and what is wrong, for bytes that are cut,
/// changed, of another format, or of a state that does not fit `spec` (another policy, other networks, numbers that are
/// not finite).
absl::StatusOr<PolicyState> DecodePolicyState(std::string_view bytes, const PolicySpec& spec);
}  // namespace troupe::policy
