#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/status/status.h"
#include "lib/base/indexed_vector.h"
#include "lib/base/strong_id.h"

namespace troupe::policy {

/// Name of a policy: `[A-Za-z0-9][A-Za-z0-9_.-]{0,63}` without "..". Never becomes a file name.
using PolicyId = base::StrongId<struct PolicyIdTag, std::string>;
/// Dense index of a policy in the run's list of policies.
using PolicySlot = base::StrongId<struct PolicySlotTag, int32_t>;
/// Of no policy. No container has it.
inline constexpr PolicySlot kNoPolicy(-1);
/// One T for each policy of the run, by its slot.
template <typename T>
using BySlot = base::IndexedVector<PolicySlot, T>;

/// INVALID_ARGUMENT unless `id` has the form above.
absl::Status ValidatePolicyId(std::string_view id);

/// Which weights: `n` updates of the policy, counted through all epochs of its learner; `learner_epoch` is the
/// learner's durable boot counter. Ordered; strictly increasing at every worker.
struct WeightVersion {
  uint64_t learner_epoch = 0;
  int64_t n = 0;

  friend bool operator==(const WeightVersion& a, const WeightVersion& b) {
    return a.learner_epoch == b.learner_epoch && a.n == b.n;
  }
  friend bool operator!=(const WeightVersion& a, const WeightVersion& b) { return !(a == b); }
  friend bool operator<(const WeightVersion& a, const WeightVersion& b) {
    return std::tie(a.learner_epoch, a.n) < std::tie(b.learner_epoch, b.n);
  }
};

}  // namespace troupe::policy
