#pragma once

#include <cstdint>

namespace troupe::space {

/// Parts of a space that take memory each: components of MultiDiscrete, and Dicts and Tuples with what is in them. The
/// text of a space may be anybody's, and two characters of it make a part.
inline constexpr int64_t kMaxParts = int64_t{1} << 16;

}  // namespace troupe::space
