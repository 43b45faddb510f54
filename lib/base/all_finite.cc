#include "lib/base/all_finite.h"

namespace troupe::base::internal {

bool ManyAreFinite(absl::Span<const float> values) {
  // Each lane keeps whether it has met a carry; the compiler makes vector instructions of the inner loop.
  constexpr size_t kLanes = 32;
  uint32_t carries[kLanes] = {};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t first = 0; first < whole; first += kLanes) {
    float block[kLanes];
    std::memcpy(block, values.data() + first, sizeof(block));
    for (size_t i = 0; i < kLanes; ++i) carries[i] |= CarryOf(block[i]);
  }
  uint32_t any = 0;
  for (const uint32_t carry : carries) any |= carry;
  for (const float& value : values.subspan(whole)) any |= CarryOf(value);
  return (any & kCarry) == 0;
}

}  // namespace troupe::base::internal
