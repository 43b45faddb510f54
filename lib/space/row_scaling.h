#pragma once

#include <cstdint>
#include <vector>

#include "lib/space/space.h"

namespace troupe::space {

/// How the elements of a flattened observation row reach networks: (x - offset) * scale, in floats. Plain value.
///
/// The rule: an element of a uint8 Box is scaled to [0, 1] by its own bounds, (x - low) / (high - low), wherever the
/// Box stands in the observation. A Box of 0 to 255 is so divided by 255, one of 0 to 1 stays as it is. Where both
/// bounds are the same the element becomes 0. Everything else stays as it is. Python has the same rule in
/// troupe.networks.row_scaling.
struct RowScaling {
  /// By element of a row, one where all are alike; empty: rows, which are floats then, stay as they are.
  std::vector<float> offset = {};
  std::vector<float> scale = {};  ///< as many as offset

  bool identity() const { return scale.empty(); }
  bool is_uniform() const { return scale.size() == 1; }
  /// A row of `size` elements as networks read it. Not of identity().
  void Apply(const uint8_t* from, int64_t size, float* to) const;
  void Apply(const float* from, int64_t size, float* to) const;  ///< `from` may be `to`
  /// The bytes that a row was made of.
  void Undo(const float* from, int64_t size, uint8_t* to) const;

  bool operator==(const RowScaling& other) const = default;
};

/// True if a uint8 Box is in the space, as itself or as a leaf of a Dict or Tuple.
bool HasBytes(const Space& observation);
/// The rule above.
RowScaling ScalingByBounds(const Space& observation);
/// The rule of before: elements of a uint8 Box are divided by 255; those of a Box in a Dict or Tuple stay as they are.
RowScaling ScalingBy255(const Space& observation);

}  // namespace troupe::space
