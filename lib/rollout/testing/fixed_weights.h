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
    ++subscriptions_.at(policy.value());
    ++num_subscribed_;
    most_subscribed_ = std::max(most_subscribed_, num_subscribed_);
  }
  void Unsubscribe(policy::PolicySlot policy) override {
    --subscriptions_.at(policy.value());
    --num_subscribed_;
  }
  absl::StatusOr<CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion /*min_version*/,
                                              absl::Duration /*timeout*/) override {
    const auto slot = static_cast<size_t>(policy.value());
    if (slot >= weights_.size() || weights_[slot] == nullptr) return CurrentWeights{};
    return CurrentWeights{weights_[slot], weights_[slot]->version};
  }

  bool subscribed(int32_t slot) const { return subscriptions_[slot] == 1; }
  int64_t num_subscribed() const { return num_subscribed_; }
  int64_t most_subscribed() const { return most_subscribed_; }

 private:
  std::vector<policy::WeightSnapshotPtr> weights_;
  std::vector<int> subscriptions_ = std::vector<int>(policy::PolicyTable::kMaxPolicies);
  int64_t num_subscribed_ = 0;
  int64_t most_subscribed_ = 0;
};

}  // namespace troupe::rollout
