#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace troupe::base {

namespace internal {

/// Of a float that is not finite all bits of the exponent are set: adding the lowest of them carries into the sign's
/// place.
inline uint32_t CarryOf(const float& value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7f800000u) + 0x00800000u;
}
inline constexpr uint32_t kCarry = 0x80000000u;

bool ManyAreFinite(absl::Span<const float> values);

}  // namespace internal

/// Whether no number is NaN or infinite. Without a branch in the loops, so that they vectorize; a row of an environment
/// is looked at here, since a call would take longer than that.
inline bool AllFinite(absl::Span<const float> values) {
  constexpr size_t kMany = 256;
  if (values.size() >= kMany) return internal::ManyAreFinite(values);
  uint32_t any = 0;
  for (const float& value : values) any |= internal::CarryOf(value);
  return (any & internal::kCarry) == 0;
}

}  // namespace troupe::base
