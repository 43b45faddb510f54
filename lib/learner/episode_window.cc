#include "lib/learner/episode_window.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

}  // namespace

EpisodeWindow::EpisodeWindow(int32_t num_agents, int32_t num_infos) : num_agents_(num_agents), num_infos_(num_infos) {}

void EpisodeWindow::Push(Episode episode) {
  if (full()) episodes_.pop_front();
  episodes_.push_back(std::move(episode));
}

void EpisodeWindow::Add(std::vector<sample::FinishedEpisode> finished, bool by_strangers) {
  std::sort(finished.begin(), finished.end(),
            [](const auto& a, const auto& b) { return std::tie(a.env_id, a.episode) < std::tie(b.env_id, b.episode); });
  struct Ranked {
    int64_t rank;  ///< among the episodes of its environment
    size_t index;
  };
  std::vector<Ranked> order;
  for (size_t i = 0; i < finished.size(); ++i) {
    const bool same = i > 0 && finished[i].env_id == finished[i - 1].env_id;
    order.push_back(Ranked{same ? order.back().rank + 1 : 0, i});
  }
  std::sort(order.begin(), order.end(),
            [](const Ranked& a, const Ranked& b) { return std::tie(a.rank, a.index) < std::tie(b.rank, b.index); });
  for (const Ranked& ranked : order) {
    const sample::FinishedEpisode& from = finished[ranked.index];
    Episode episode;
    episode.length = from.length;
    episode.returns.assign(from.returns.begin(), from.returns.end());
    episode.return_sum = ReturnSum(episode.returns, from.trajectories);
    episode.policies = from.policies;
    episode.infos.assign(from.infos.begin(), from.infos.end());
    episode.by_stranger = by_strangers;
    Push(std::move(episode));
  }
}

void EpisodeWindow::ForgetPolicy(policy::PolicySlot policy) {
  KeepPolicies([policy](policy::PolicySlot other) { return other != policy; });
}

void EpisodeWindow::KeepPolicies(absl::FunctionRef<bool(policy::PolicySlot)> is_there) {
  for (Episode& episode : episodes_) {
    for (policy::PolicySlot& policy : episode.policies) {
      if (policy != policy::kNoPolicy && !is_there(policy)) policy = policy::kNoPolicy;
    }
  }
}

void EpisodeWindow::Restore(const LearnerState& state) {
  episodes_.clear();
  for (size_t i = 0; i < state.recent_return_sums.size(); ++i) {
    Episode episode;
    episode.return_sum = state.recent_return_sums[i];
    episode.length = i < state.recent_lengths.size() ? state.recent_lengths[i] : kAbsent;
    for (int32_t slot = 0; slot < num_agents_; ++slot) {
      const bool known =
          slot < static_cast<int32_t>(state.recent_agent_returns.size()) && i < state.recent_agent_returns[slot].size();
      episode.returns.push_back(known ? state.recent_agent_returns[slot][i] : kAbsent);
      const bool played = slot < static_cast<int32_t>(state.recent_agent_policies.size()) &&
                          i < state.recent_agent_policies[slot].size();
      episode.policies.push_back(played ? policy::PolicySlot(state.recent_agent_policies[slot][i]) : policy::kNoPolicy);
    }
    episode.infos.assign(static_cast<size_t>(num_infos_), kAbsent);
    episode.by_stranger = i < state.recent_by_strangers.size() && state.recent_by_strangers[i] != 0;
    Push(std::move(episode));
  }
}

void EpisodeWindow::Save(LearnerState& state) const {
  state.recent_return_sums.clear();
  state.recent_lengths.clear();
  state.recent_by_strangers.clear();
  state.recent_agent_returns.assign(static_cast<size_t>(num_agents_), {});
  state.recent_agent_policies.assign(static_cast<size_t>(num_agents_), {});
  for (const Episode& episode : episodes_) {
    state.recent_return_sums.push_back(episode.return_sum);
    state.recent_lengths.push_back(episode.length);
    state.recent_by_strangers.push_back(static_cast<uint8_t>(episode.by_stranger));
    for (int32_t slot = 0; slot < num_agents_; ++slot) {
      state.recent_agent_returns[slot].push_back(episode.returns[slot]);
      state.recent_agent_policies[slot].push_back(episode.policies[slot].value());
    }
  }
}

EpisodeWindow EpisodeWindow::WithoutStrangers() const {
  EpisodeWindow own(num_agents_, num_infos_);
  for (const Episode& episode : episodes_) {
    if (!episode.by_stranger) own.episodes_.push_back(episode);
  }
  return own;
}

EpisodeStats EpisodeWindow::Stats(size_t num_policies) const {
  EpisodeStats stats(static_cast<size_t>(num_agents_), num_policies);
  for (const Episode& episode : episodes_) {
    stats.Add(episode.return_sum, episode.length, episode.returns, episode.policies);
  }
  return stats;
}

std::optional<double> EpisodeWindow::info(int32_t column) const {
  Spread infos;
  for (const Episode& episode : episodes_) {
    if (!std::isnan(episode.infos[column])) infos.Add(episode.infos[column]);
  }
  return infos.mean();
}

}  // namespace troupe::learner
