#pragma once

#include <set>
#include <string>

#include "lib/policy/policy_state.h"
#include <gtest/gtest.h>

namespace troupe::policy {

/// All that training goes on from, in whatever order; versions apart.
inline void ExpectSameBits(const PolicyState& a, const PolicyState& b) {
  EXPECT_EQ(a.id, b.id);
  std::set<std::string> names;
  for (const PolicyState* state : {&a, &b}) {
    for (const StateBlock& block : state->blocks) names.insert(block.name);
  }
  for (const std::string& name : names) {
    const StateBlock* const of_a = a.Find(name);
    const StateBlock* const of_b = b.Find(name);
    if (of_a == nullptr || of_b == nullptr) {
      ADD_FAILURE() << a.id << ": only one has a block " << name;
      continue;
    }
    EXPECT_EQ(of_a->Form(), of_b->Form()) << name;
    EXPECT_EQ(of_a->values, of_b->values) << name;
  }
}

}  // namespace troupe::policy
