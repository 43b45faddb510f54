#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/policy/action_distribution.h"
#include "lib/policy/policy_fwd.h"
#include "lib/space/space.h"

namespace troupe::inference {

/// Brings a policy's actions into its environment's space: clipping, tanh and scaling as PolicySpec says.
/// Log-probabilities are of the action before this. Discrete words pass unchanged. Immutable; thread-safe.
class ActionBounds {
 public:
  explicit ActionBounds(const policy::PolicySpec& spec);

  /// True when Apply only copies.
  bool identity() const { return ranges_.empty(); }
  /// `action_words()` words each; the two may be the same memory.
  void Apply(absl::Span<const space::ActionWord> sampled, absl::Span<space::ActionWord> bounded) const;

 private:
  struct Range {
    int64_t word = 0;
    float low = 0;
    float high = 0;
  };

  policy::ActionBoundMethod method_;
  bool scaling_;
  bool is_bounded_;            // values are in [-1, 1] before scaling
  std::vector<Range> ranges_;  // of continuous words; empty when nothing is to be done
};

}  // namespace troupe::inference
