#pragma once

#include <cstdint>
#include <memory>

#include "lib/policy/policy_state_codec.h"
#include "lib/policy/policy_state_tier.h"

namespace troupe::policy {

/// Residents are PolicyStates themselves.
class StateForm final : public ResidentForm {
 public:
  absl::StatusOr<PolicyTier::Value> FromState(PolicySlot, const PolicyState& state) override {
    return PolicyTier::Value(std::make_shared<PolicyState>(state));
  }
  PolicyState ToState(PolicySlot, const PolicyTier::Value& value) override {
    return *static_cast<const PolicyState*>(value.get());
  }
  int64_t Bytes(const PolicyTier::Value& value) const override {
    return BytesOf(*static_cast<const PolicyState*>(value.get()));
  }
};

}  // namespace troupe::policy
