#pragma once

#include "lib/policy/weight_snapshot.h"
#include <gtest/gtest.h>

namespace troupe::policy {

/// All that training goes on from; versions apart.
inline void ExpectSameBits(const PolicyState& a, const PolicyState& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.adam_exp_avg, b.adam_exp_avg);
  EXPECT_EQ(a.adam_exp_avg_sq, b.adam_exp_avg_sq);
  EXPECT_EQ(a.adam_steps, b.adam_steps);
  EXPECT_EQ(a.observation_moments.count, b.observation_moments.count);
  EXPECT_EQ(a.observation_moments.mean, b.observation_moments.mean);
  EXPECT_EQ(a.observation_moments.variance, b.observation_moments.variance);
  EXPECT_EQ(a.value_moments.count, b.value_moments.count);
  EXPECT_EQ(a.value_moments.mean, b.value_moments.mean);
  EXPECT_EQ(a.value_moments.variance, b.value_moments.variance);
  EXPECT_EQ(a.trained_rows, b.trained_rows);
  EXPECT_EQ(a.skipped_updates, b.skipped_updates);
  EXPECT_EQ(a.consecutive_skips, b.consecutive_skips);
}

}  // namespace troupe::policy
