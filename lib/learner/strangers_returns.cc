#include "lib/learner/strangers_returns.h"

#include <algorithm>
#include <utility>

#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

void StrangersReturns::Add(sample::WorkerId worker, std::vector<sample::FinishedEpisode> finished) {
  const auto found = reporters_.try_emplace(worker.value(), Reporter{EpisodeWindow(num_agents_, num_infos_)}).first;
  found->second.last = ++adds_;
  found->second.window.Add(std::move(finished));
  if (reporters_.size() <= kMostReporters) return;
  reporters_.erase(std::min_element(reporters_.begin(), reporters_.end(),
                                    [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
}

void StrangersReturns::ForgetPolicy(policy::PolicySlot slot) {
  for (auto& [id, reporter] : reporters_) reporter.window.ForgetPolicy(slot);
}

std::optional<double> StrangersReturns::ScoreOf(const Score& score, const policy::PolicyTable& table) const {
  std::vector<double> means;
  int64_t episodes = 0;
  for (const auto& [id, reporter] : reporters_) {
    const EpisodeStats stats = reporter.window.Stats(table.num_slots());
    const std::optional<double> mean = learner::ScoreOf(score, stats, table);
    if (!mean.has_value()) continue;
    means.push_back(*mean);
    episodes += stats.episodes();
  }
  if (means.size() < kFewestReporters || episodes < static_cast<int64_t>(EpisodeWindow::kEpisodes)) return std::nullopt;
  const auto middle = means.begin() + static_cast<std::ptrdiff_t>((means.size() - 1) / 2);
  std::nth_element(means.begin(), middle, means.end());
  return *middle;
}

}  // namespace troupe::learner
