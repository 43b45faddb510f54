#pragma once

#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/space/row_scaling.h"
#include "lib/tensor/buffer.h"

namespace troupe::inference {

/// Observations as networks read them: floats, numbers of uint8 Boxes scaled by their bounds (space::RowScaling), and
/// where the policy normalizes them less their mean, by their deviation, within 10 either way. Made and used by its
/// actor; not thread-safe.
class ObservationInput {
 public:
  explicit ObservationInput(const policy::PolicySpec& spec);

  /// Whether observations are floats that are read where they are.
  bool in_place() const { return !normalizes_ && scaling_.identity(); }
  /// Batches of so many rows allocate nothing from now on.
  void EnsureCapacity(int64_t rows);
  /// [rows, observation_size] of input.obs: in place, or in its own memory until the next call.
  const float* Prepare(const ActInput& input, const policy::WeightSnapshot& weights);

 private:
  template <typename T>
  void Scale(const T* from, int64_t count, float* to) const;

  const int64_t size_;
  const bool bytes_;
  const bool normalizes_;
  const space::RowScaling scaling_;
  tensor::Buffer floats_;
};

}  // namespace troupe::inference
