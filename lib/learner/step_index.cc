#include "lib/learner/step_index.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

using sample::MultiAgentBatch;
using sample::MultiAgentBatchPtr;

void StepIndex::Build(absl::Span<const MultiAgentBatchPtr> fragments, uint32_t num_envs) {
  // A counting sort by environment; inside one the rows usually come in order already.
  env_counts_.assign(num_envs + 1, 0);
  offset_.clear();
  size_t total = 0;
  for (const MultiAgentBatchPtr& fragment : fragments) {
    offset_.push_back(total);
    total += static_cast<size_t>(fragment->env_rows + fragment->final_env_rows);
    for (const sample::Index episode : fragment->step_episode.As<sample::Index>()) {
      ++env_counts_[fragment->episodes[episode].env_id.value() + 1];
    }
  }
  std::partial_sum(env_counts_.begin(), env_counts_.end(), env_counts_.begin());
  sorted_.resize(total);
  for (size_t f = 0; f < fragments.size(); ++f) {
    const MultiAgentBatch& fragment = *fragments[f];
    const absl::Span<const sample::Index> step_episode = fragment.step_episode.As<sample::Index>();
    const absl::Span<const int32_t> step_index = fragment.step_index.As<int32_t>();
    for (size_t i = 0; i < step_episode.size(); ++i) {
      const sample::EpisodeEntry& episode = fragment.episodes[step_episode[i]];
      // After this loop env_counts_[e] is where environment e + 1 begins, so e's rows end there.
      sorted_[env_counts_[episode.env_id.value()]++] =
          StepRef{episode.env_id,          episode.episode,         step_index[i],
                  static_cast<int32_t>(f), static_cast<int32_t>(i), static_cast<int64_t>(i) >= fragment.env_rows};
    }
  }
  const auto before = [](const StepRef& a, const StepRef& b) {
    return std::tie(a.episode, a.step) < std::tie(b.episode, b.step);
  };
  auto begin = sorted_.begin();
  for (uint32_t env = 0; env < num_envs; ++env) {
    const auto end = sorted_.begin() + env_counts_[env];
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
    begin = end;
  }
  global_.resize(total);
  distinct_.clear();
  for (const StepRef& ref : sorted_) {
    const bool same = !distinct_.empty() && distinct_.back().env_id == ref.env_id &&
                      distinct_.back().episode == ref.episode && distinct_.back().step == ref.step;
    // A fragment of another revision may lack the state that this one has of the same step.
    const auto rank = [&](const StepRef& step) {
      return (fragments[step.fragment]->state.present() ? 2 : 0) + (step.looked_at ? 0 : 1);
    };
    if (!same) {
      distinct_.push_back(ref);
    } else if (rank(distinct_.back()) < rank(ref)) {
      distinct_.back() = ref;  // where agents acted, whichever came first
    }
    global_[offset_[ref.fragment] + static_cast<size_t>(ref.row)] = static_cast<int32_t>(distinct_.size()) - 1;
  }
}

}  // namespace troupe::learner
