#include "lib/run/episode_callbacks.h"

#include <utility>

#include "lib/policy/policy_spec.h"
#include "lib/policy/python_callable.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::run {

EpisodeCallbacks::EpisodeCallbacks(const config::EnvSettings& env, const env::EnvSpec& spec,
                                   std::shared_ptr<envhost::PythonFunctions> functions)
    : agents_(spec.possible_agents) {
  if (policy::IsPythonName(env.name)) return;
  teller_ = std::make_unique<envhost::EpisodeTeller>(std::move(functions), env.python, tracks_);
}

void EpisodeCallbacks::OnEnded(absl::Span<const sample::FinishedEpisode> episodes,
                               const policy::BySlot<policy::PolicySpec>& policies) {
  if (teller_ == nullptr || tracks_->off()) return;
  std::vector<envhost::EndedEpisode> ended;
  for (const sample::FinishedEpisode& episode : episodes) {
    envhost::EndedEpisode& told = ended.emplace_back();
    told.length = episode.length;
    for (size_t slot = 0; slot < episode.policies.size(); ++slot) {
      const policy::PolicySlot policy = episode.policies[slot];
      if (policy == policy::kNoPolicy) continue;
      const float trajectories = episode.trajectories.empty() ? 1 : static_cast<float>(episode.trajectories[slot]);
      told.parts.push_back(
          {agents_[slot].id.value(), policies[policy].id.value(), episode.returns[slot] * trajectories});
    }
  }
  teller_->Tell(ended);
}

void EpisodeCallbacks::AddTo(sample::EnvReport* report) const {
  report->tracked = tracks_->totals();
  report->callbacks_off = tracks_->why_off();
}

}  // namespace troupe::run
