#include "lib/rollout/lane.h"

#include <algorithm>

namespace troupe::rollout {

void LaneEpisode::Begin(uint32_t number, std::shared_ptr<const policy::PolicyMapping> mapped_by, int64_t at_revision) {
  ordinal = number;
  running = true;
  mapping = std::move(mapped_by);
  revision = at_revision;
  step = 0;
  std::fill(info_sum.begin(), info_sum.end(), 0.0);
  std::fill(info_count.begin(), info_count.end(), 0);
}

void LaneCall::Begin(bool is_step) {
  stepping = is_step;
  all_terminated = false;
  all_truncated = false;
  agent_ended = false;
  observed.clear();
  final_env_row = -1;
}

void LaneMemory::Fit(size_t num_agents, size_t widest) {
  if (size == widest) return;
  std::vector<float> fitting(num_agents * 2 * widest);
  // Where it becomes narrower, no policy of the lane's episode had the rest: its table is one of those that count.
  const size_t kept = std::min(size, widest);
  for (size_t i = 0; i < num_agents * 2; ++i) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * size), kept,
                fitting.begin() + static_cast<std::ptrdiff_t>(i * widest));
  }
  values = std::move(fitting);
  size = widest;
}

}  // namespace troupe::rollout
