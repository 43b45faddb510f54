#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "lib/policy/ids.h"

namespace troupe::policy {

/// Slots of policies by their numbers; -1: kNoPolicy.
inline std::vector<PolicySlot> SlotsForTesting(std::initializer_list<int32_t> numbers) {
  std::vector<PolicySlot> slots;
  for (const int32_t number : numbers) slots.emplace_back(number);
  return slots;
}

}  // namespace troupe::policy
