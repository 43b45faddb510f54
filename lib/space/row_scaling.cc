#include "lib/space/row_scaling.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "lib/space/observation_leaves.h"

namespace troupe::space {
namespace {

template <typename T>
void ApplyTo(const RowScaling& scaling, const T* from, int64_t size, float* to) {
  const float* const offset = scaling.offset.data();
  const float* const scale = scaling.scale.data();
  if (scaling.is_uniform()) {
    for (int64_t i = 0; i < size; ++i) to[i] = (static_cast<float>(from[i]) - offset[0]) * scale[0];
    return;
  }
  for (int64_t i = 0; i < size; ++i) to[i] = (static_cast<float>(from[i]) - offset[i]) * scale[i];
}

/// One number for all elements where they are alike, none where they change nothing in a row of floats.
RowScaling Shortened(RowScaling scaling, bool of_bytes) {
  const auto all = [](const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [&values](float value) { return value == values[0]; });
  };
  if (scaling.scale.empty() || !all(scaling.offset) || !all(scaling.scale)) return scaling;
  if (!of_bytes && scaling.offset[0] == 0 && scaling.scale[0] == 1) return {};
  scaling.offset.resize(1);
  scaling.scale.resize(1);
  return scaling;
}

}  // namespace

void RowScaling::Apply(const uint8_t* from, int64_t size, float* to) const { ApplyTo(*this, from, size, to); }

void RowScaling::Apply(const float* from, int64_t size, float* to) const { ApplyTo(*this, from, size, to); }

void RowScaling::Undo(const float* from, int64_t size, uint8_t* to) const {
  for (int64_t i = 0; i < size; ++i) {
    const size_t at = is_uniform() ? 0 : static_cast<size_t>(i);
    to[i] = static_cast<uint8_t>(from[i] / scale[at] + offset[at] + 0.5f);
  }
}

bool HasBytes(const Space& observation) {
  if (observation.flat_dtype() == tensor::DType::kUint8) return true;
  const absl::Span<const Space> children = observation.children();
  return std::any_of(children.begin(), children.end(), HasBytes);
}

RowScaling ScalingByBounds(const Space& observation) {
  if (!HasBytes(observation)) return {};
  RowScaling scaling;
  const auto add = [&scaling](double low, double high, int64_t elements) {
    const auto offset = static_cast<float>(low);
    const float range = static_cast<float>(high) - offset;
    scaling.offset.resize(scaling.offset.size() + static_cast<size_t>(elements), offset);
    scaling.scale.resize(scaling.offset.size(), range == 0 ? 1.0f : 1.0f / range);
  };
  const std::vector<ObservationLeaf> leaves = ObservationLeaves(observation);
  for (const ObservationLeaf& leaf : leaves) {
    const Space& space = leaf.space;
    if (space.flat_dtype() != tensor::DType::kUint8) {
      add(0, 1, space.flat_size());
    } else if (const auto shared = space.shared_bounds(); shared.has_value()) {
      add(shared->first, shared->second, leaves.size() == 1 ? 1 : space.flat_size());
    } else {
      for (size_t i = 0; i < space.low().size(); ++i) add(space.low()[i], space.high()[i], 1);
    }
  }
  return Shortened(std::move(scaling), observation.flat_dtype() == tensor::DType::kUint8);
}

RowScaling ScalingBy255(const Space& observation) {
  if (observation.flat_dtype() != tensor::DType::kUint8) return {};
  return {{0.0f}, {1.0f / 255.0f}};
}

}  // namespace troupe::space
