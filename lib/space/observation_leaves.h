#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/space/space.h"

namespace troupe::space {

/// A part of an observation row that is neither Dict nor Tuple. Plain value.
struct ObservationLeaf {
  Space space;
  int64_t first = 0;  ///< its first element in the row; it has space.flat_size()
};

/// The leaves of an observation space in the order of its rows; at most kMaxParts.
std::vector<ObservationLeaf> ObservationLeaves(const Space& space);
/// True if a bound of one of its Boxes is infinite.
bool HasUnboundedNumbers(const Space& space);

/// Of each of them the keys of Dicts and places in Tuples that lead to it, joined by "/": "camera", "arm/0". Two may
/// have one name where a key holds a "/"; that of an observation that is a leaf itself is empty. For spaces of one's
/// own environment alone: each name holds all keys on its way, and those of a space that came from elsewhere have no
/// bound.
std::vector<std::string> ObservationLeafNames(const Space& space);

}  // namespace troupe::space
