// The free-running plan of a GrantScheduler.

#include <algorithm>
#include <set>
#include <utility>

#include "lib/learner/grant_scheduler.h"

namespace troupe::learner {

int64_t GrantScheduler::Counted(const Round& round) const {
  return options_.count_steps_by == CountStepsBy::kAgentSteps ? round.agent_steps : round.env_steps;
}

int64_t GrantScheduler::outstanding_steps() const {
  int64_t steps = 0;
  for (const auto& [worker, outstanding] : outstanding_) steps += outstanding;
  return steps;
}

int64_t GrantScheduler::StepsFor(int64_t batches) const {
  const int64_t counted = batches * options_.train_batch_size - Counted(rounds_.front());
  return (counted + most_per_env_step() - 1) / most_per_env_step() - outstanding_steps();
}

int64_t GrantScheduler::StepsAhead() const {
  return StepsFor(1 + options_.max_ahead - (rounds_.front().iteration - done_));
}

int64_t GrantScheduler::StepsToStop() const {
  const Round& open = rounds_.front();
  int64_t steps = INT64_MAX;
  if (options_.stop.updates > 0) {
    steps = open.iteration < options_.stop.updates ? StepsFor(options_.stop.updates - open.iteration) : 0;
  }
  if (options_.stop.env_steps == 0) return steps;
  const int64_t below = env_steps_below_.rbegin()->second;
  if (below >= options_.stop.env_steps) return 0;
  // The last batch has to be whole, too.
  const int64_t to_stop = options_.stop.env_steps - below - open.env_steps - outstanding_steps();
  return std::min(steps, std::max(to_stop, StepsFor(1)));
}

void GrantScheduler::FollowWorkers(absl::Span<const WorkerStandings::Choice> choices) {
  std::set<uint64_t> owners;
  for (const Lane& lane : lanes_) owners.insert(lane.owner);
  const auto may_have = [choices](uint64_t worker) {
    return std::any_of(choices.begin(), choices.end(),
                       [worker](const auto& choice) { return choice.worker == worker; });
  };
  if (owners.size() == std::min(choices.size(), lanes_.size()) && std::all_of(owners.begin(), owners.end(), may_have)) {
    return;
  }
  Rebalance();
}

void GrantScheduler::GrantFreely(std::vector<GrantOrder>* orders) {
  if (!has_published_) return;
  if (rounds_.empty()) Begin();
  const std::vector<WorkerStandings::Choice> choices = standings_.Select(age_);
  FollowWorkers(choices);
  std::map<uint64_t, int64_t> grants;
  for (const WorkerStandings::Choice& choice : choices) grants[choice.worker] = 0;
  for (const auto& [id, grant] : grants_) {
    if (const auto found = grants.find(grant.worker); found != grants.end()) ++found->second;
  }
  const int64_t batch = std::max<int64_t>(options_.num_envs, options_.train_batch_size / most_per_env_step());
  Round& round = rounds_.front();
  round.min_version = version_when_done_.begin()->second;
  for (int64_t has = 0; has < kGrantsAhead; ++has) {
    for (auto& [worker, count] : grants) {
      if (count > has) continue;
      int64_t share = 0;
      for (size_t i = 0; i < lanes_.size(); ++i) {
        if (lanes_[i].owner == worker) share += ShareOf(i, batch);
      }
      const int64_t to_stop = StepsToStop();
      if (share == 0) continue;
      int64_t left = std::min(share, to_stop);
      const int64_t ahead = StepsAhead();
      // Whoever has least comes first, and waits for room rather than that others take it.
      const bool has_room = ahead >= left || (ahead > 0 && outstanding_steps() == 0);
      if (left <= 0 || !has_room) return;
      for (size_t i = 0; i < lanes_.size(); ++i) {
        if (lanes_[i].owner != worker) continue;
        round.ungranted[i] = static_cast<int32_t>(std::min<int64_t>(left, ShareOf(i, batch)));
        round.owed += round.ungranted[i];
        left -= round.ungranted[i];
      }
      GrantRound(round, orders);
      ++count;
    }
  }
}

}  // namespace troupe::learner
