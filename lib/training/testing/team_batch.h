#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/check.h"
#include "lib/training/testing/random_batch.h"

namespace troupe::training {

/// A RandomBatch of teams: in each environment `agents` of the policy begin an episode together, whose rows of one env
/// step read one state. Agent i leaves `i * leaves_earlier` env steps before the first, so that late steps have fewer.
class TeamBatch : public RandomBatch {
 public:
  TeamBatch(const policy::PolicySpec& spec, int64_t envs, int64_t agents, int64_t env_steps, uint64_t seed,
            int64_t leaves_earlier = 0, bool inactive_rows = false)
      : RandomBatch(spec, Segments(envs, agents, env_steps, leaves_earlier), seed, inactive_rows) {
    TROUPE_CHECK(envs * env_steps <= rows().critic_rows);  // of which a RandomBatch has one for two rows
    for (size_t i = 0; i < rows().segments.size(); ++i) {
      const learner::TrainSegment& segment = rows().segments[i];
      const int64_t begin = static_cast<int64_t>(i) / agents * env_steps;
      for (int64_t row = 0; row < segment.rows; ++row) {
        critic_row[static_cast<size_t>(segment.first_row + row)] = static_cast<int32_t>(begin + row);
      }
    }
  }

 private:
  static std::vector<int64_t> Segments(int64_t envs, int64_t agents, int64_t env_steps, int64_t leaves_earlier) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < envs * agents; ++i) rows.push_back(env_steps - i % agents * leaves_earlier);
    return rows;
  }
};

}  // namespace troupe::training
