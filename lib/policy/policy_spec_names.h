#pragma once

// The words for parts of a policy spec that its checks and its texts share; included by policy_spec*.cc alone.

#include <string>

#include "lib/policy/policy_spec.h"

namespace troupe::policy {

/// The name in one of the tables of policy_spec.h; "unknown".
template <typename Table, typename Value>
std::string NameOf(const Table& table, Value value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "unknown";
}

/// "joint_observation+agent_id".
std::string InputsText(const NetworkSpec& network);

}  // namespace troupe::policy
