#include "lib/learner/episode_stats.h"

#include <cmath>

#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {
namespace {

constexpr float kRounding = 1e-5f;  // relative to the larger return, or to 1

}  // namespace

void Spread::Add(double value) {
  min = count == 0 ? value : std::min(min, value);
  max = count == 0 ? value : std::max(max, value);
  sum += value;
  ++count;
}

std::optional<double> Spread::mean() const {
  return empty() ? std::nullopt : std::optional<double>(sum / static_cast<double>(count));
}

void EpisodeStats::Add(double length_of, absl::Span<const double> returns,
                       absl::Span<const policy::PolicySlot> played_by) {
  Add(ReturnSum(returns, {}), length_of, returns, played_by);
}

void EpisodeStats::Add(double sum, double length_of, absl::Span<const double> returns,
                       absl::Span<const policy::PolicySlot> played_by) {
  return_sum.Add(sum);
  if (!std::isnan(length_of)) length.Add(length_of);
  Spread of_agents;
  for (size_t slot = 0; slot < returns.size(); ++slot) {
    if (std::isnan(returns[slot])) continue;
    of_agents.Add(returns[slot]);
    if (slot < agents.size()) agents[slot].Add(returns[slot]);
    const policy::PolicySlot policy = slot < played_by.size() ? played_by[slot] : policy::kNoPolicy;
    if (policies.Contains(policy)) policies[policy].Add(returns[slot]);
  }
  if (const std::optional<double> mean = of_agents.mean()) return_mean.Add(*mean);
}

double ReturnSum(absl::Span<const double> returns, absl::Span<const int32_t> trajectories) {
  double sum = 0;
  for (size_t slot = 0; slot < returns.size(); ++slot) {
    if (std::isnan(returns[slot])) continue;
    sum += trajectories.empty() ? returns[slot] : returns[slot] * trajectories[slot];
  }
  return sum;
}

bool ReturnsDiffer(absl::Span<const float> returns) {
  float least = 0;
  float largest = 0;
  bool any = false;
  for (const float value : returns) {
    if (std::isnan(value)) continue;
    least = any ? std::min(least, value) : value;
    largest = any ? std::max(largest, value) : value;
    any = true;
  }
  return largest - least > kRounding * std::max({1.0f, std::abs(least), std::abs(largest)});
}

bool ReturnsDiffer(absl::Span<const sample::FinishedEpisode> episodes) {
  return std::any_of(episodes.begin(), episodes.end(),
                     [](const sample::FinishedEpisode& episode) { return ReturnsDiffer(episode.returns); });
}

}  // namespace troupe::learner
