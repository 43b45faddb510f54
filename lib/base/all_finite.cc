#include "lib/base/all_finite.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace troupe::base {
namespace {

// Of a float that is not finite all bits of the exponent are set: adding the lowest of them carries into the sign's
// place.
constexpr uint32_t kExponent = 0x7f800000u;
constexpr uint32_t kLowest = 0x00800000u;
constexpr uint32_t kCarry = 0x80000000u;

}  // namespace

bool AllFinite(absl::Span<const float> values) {
  // Each lane keeps whether it has met a carry; the compiler makes vector instructions of the inner loop.
  constexpr size_t kLanes = 32;
  uint32_t carries[kLanes] = {};
  const size_t blocks = values.size() / kLanes;
  const float* p = values.data();
  uint32_t any = 0;
  for (size_t block = 0; block < blocks; ++block, p += kLanes) {
    uint32_t bits[kLanes];
    std::memcpy(bits, p, sizeof(bits));
    for (size_t i = 0; i < kLanes; ++i) carries[i] |= (bits[i] & kExponent) + kLowest;
  }
  if (blocks > 0) {
    for (const uint32_t carry : carries) any |= carry;
  }
  for (const float* const end = values.data() + values.size(); p != end; ++p) {
    uint32_t bits = 0;
    std::memcpy(&bits, p, sizeof(bits));
    any |= (bits & kExponent) + kLowest;
  }
  return (any & kCarry) == 0;
}

}  // namespace troupe::base
