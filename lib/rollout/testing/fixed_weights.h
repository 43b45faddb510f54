#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lib/policy/policy_table.h"
#include "lib/rollout/ports.h"

namespace troupe::rollout {

/// Weights that are at hand, by policy slot: what is there is given at once, however old. Counts what is subscribed to.
/// Not thread-safe.
class FixedWeights final : public WeightSource {
 public:
  explicit FixedWeights(std::vector<policy::WeightSnapshotPtr> weights) : weights_(std::move(weights)) {}

  void Subscribe(policy::PolicySlot policy) override {
    ++subscriptions_[policy];
    ++num_subscribed_;
    most_subscribed_ = std::max(most_subscribed_, num_subscribed_);
  }
  void Unsubscribe(policy::PolicySlot policy) override {
    --subscriptions_[policy];
    --num_subscribed_;
  }
  absl::StatusOr<CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion /*min_version*/,
                                              absl::Duration /*timeout*/) override {
    if (!weights_.Contains(policy) || weights_[policy] == nullptr) return CurrentWeights{};
    return CurrentWeights{weights_[policy], weights_[policy]->version};
  }

  bool subscribed(policy::PolicySlot policy) const { return subscriptions_[policy] == 1; }
  int64_t num_subscribed() const { return num_subscribed_; }
  int64_t most_subscribed() const { return most_subscribed_; }

 private:
  policy::BySlot<policy::WeightSnapshotPtr> weights_;
  policy::BySlot<int> subscriptions_ = policy::BySlot<int>(policy::PolicyTable::kMaxPolicies);
  int64_t num_subscribed_ = 0;
  int64_t most_subscribed_ = 0;
};

}  // namespace troupe::rollout
