#include "lib/inference/action_bounds.h"

#include <algorithm>
#include <cmath>

#include "lib/base/check.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {

ActionBounds::ActionBounds(const policy::PolicySpec& spec)
    : method_(spec.action_bound_method),
      scaling_(spec.action_scaling),
      is_bounded_(method_ != policy::ActionBoundMethod::kNone ||
                  spec.continuous == policy::ContinuousDistribution::kBeta) {
  if (method_ == policy::ActionBoundMethod::kNone && !scaling_) return;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
    if (leaf.kind != space::ActionLeaf::Kind::kContinuous) continue;
    for (int64_t i = 0; i < leaf.words; ++i) {
      ranges_.push_back({leaf.word + i, leaf.low[static_cast<size_t>(i)], leaf.high[static_cast<size_t>(i)]});
    }
  }
}

void ActionBounds::Apply(absl::Span<const space::ActionWord> sampled, absl::Span<space::ActionWord> bounded) const {
  TROUPE_CHECK(sampled.size() == bounded.size());
  if (sampled.data() != bounded.data()) std::copy(sampled.begin(), sampled.end(), bounded.begin());
  for (const Range& range : ranges_) {
    const float low = scaling_ ? -1.0f : range.low;
    const float high = scaling_ ? 1.0f : range.high;
    float value = bounded[static_cast<size_t>(range.word)].f32;
    switch (method_) {
      case policy::ActionBoundMethod::kNone:
        break;
      case policy::ActionBoundMethod::kClip:
        value = std::clamp(value, low, high);
        break;
      case policy::ActionBoundMethod::kTanh:
        value = std::tanh(value);
        break;
    }
    if (scaling_) {
      value = range.low + 0.5f * (value + 1.0f) * (range.high - range.low);
      // Rounding must not leave the Box.
      if (is_bounded_) value = std::clamp(value, range.low, range.high);
    }
    bounded[static_cast<size_t>(range.word)].f32 = value;
  }
}

}  // namespace troupe::inference
