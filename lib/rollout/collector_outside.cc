// The half of Collector for worlds outside: lanes go on one by one, as their worlds answer, and share the grant's
// steps.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/status_macros.h"
#include "lib/env/slot_buffers.h"
#include "lib/rollout/collector.h"

namespace troupe::rollout {
namespace {

/// Between two looks at whether the worker is to stop.
constexpr absl::Duration kLook = absl::Milliseconds(50);
/// A grant's last steps are waited for so long while other lanes could take them.
constexpr absl::Duration kPatience = absl::Milliseconds(200);

}  // namespace

void Collector::DropOutside(Lane& lane, const absl::Status& reason) {
  config_.outside->Drop(lane.env_id, reason);
  lane.episode.running = false;
  lane.call.is_slow = false;
  if (!std::exchange(lane.call.in_flight, false) || !lane.call.start_status.ok()) return;
  env::SlotBuffers nowhere(config_.env_spec, 1);
  lane.env->Finish(nowhere.BeginStep(0)).IgnoreError();  // it has no episode any more
}

void Collector::TellItIsOver(const Lane& lane) {
  config_.outside->Drop(lane.env_id, absl::AbortedError("a limit of the configuration ended it; begin another"));
}

int64_t Collector::StepsLeft() const {
  const auto awaited = std::count_if(active_.begin(), active_.end(),
                                     [](const Lane* lane) { return lane->call.in_flight && !lane->call.is_slow; });
  return outside_left_ - awaited - static_cast<int64_t>(ready_.size());
}

bool Collector::OutsideIsDone(const sample::Grant& grant) const {
  if (outside_left_ > 0) return false;
  return !grant.complete_episodes ||
         std::none_of(active_.begin(), active_.end(), [](const Lane* lane) { return lane->episode.running; });
}

void Collector::BeginOutside(const sample::Grant& grant) {
  active_.clear();
  ready_.clear();
  int64_t left = outside_left_;
  for (Lane* lane : granted_) {
    // Whoever gave an episode up has not told its client.
    if (!lane->episode.running) DropOutside(*lane, absl::AbortedError("the worker gave the episode up; begin another"));
    if (lane->call.in_flight && !lane->call.is_slow) --left;
  }
  for (Lane* lane : granted_) {
    const bool is_ready = lane->episode.running && !lane->call.in_flight;
    // One for which no step is left sits this fragment out, as it is.
    if (is_ready && left <= 0 && !grant.complete_episodes) continue;
    active_.push_back(lane);
    lane->fragment.steps = 0;
    if (!is_ready) continue;
    ready_.push_back(lane);
    --left;
  }
  builder_.Begin(grant, adopter_.versions(), active_);
}

absl::Status Collector::StartOutside(WeightSource& weights) {
  for (Lane* lane : active_) {
    if (lane->episode.running || lane->call.in_flight || lane->grant.episodes_begun > lane->grant.steps_wanted)
      continue;
    if (StepsLeft() <= 0 || !config_.outside->HasEpisode()) break;
    ++lane->grant.episodes_begun;
    builder_.StartEpisode(*lane);
    lane->call.start_status = lane->env->StartReset({config_.options.seed, lane->env_id, lane->episode.ordinal});
    lane->call.in_flight = true;
    TROUPE_RETURN_IF_ERROR(StartEpisode(*lane));
    if (!lane->episode.running) {
      TellItIsOver(*lane);
      continue;
    }
    ready_.push_back(lane);
    adopter_.LookAhead(*lane, weights);
  }
  adopter_.Trim(weights);
  return absl::OkStatus();
}

void Collector::NoteOldDecisions() {
  for (Lane* lane : ready_) {
    for (size_t slot = 0; slot < lane->agents.size(); ++slot) {
      const AgentState& agent = lane->agents[slot];
      if (agent.phase != AgentPhase::kReady) continue;
      const base::AgentSlot agent_slot(static_cast<int32_t>(slot));
      const LoggedAction* const logged = config_.outside->Logged(lane->env_id, agent_slot);
      if (logged == nullptr || logged->weights == 0) continue;
      const std::optional<policy::WeightVersion> version =
          config_.outside->VersionOf(logged->weights, agent_slot, agent.policy);
      builder_.NoteVersion(*lane, slot, version.value_or(policy::WeightVersion{}));  // nobody's: as old as can be
    }
  }
}

void Collector::TakeLoggedActions() {
  for (Lane* lane : ready_) {
    for (size_t slot = 0; slot < lane->agents.size(); ++slot) {
      if (!lane->agents[slot].acts) continue;
      const base::AgentSlot agent(static_cast<int32_t>(slot));
      const LoggedAction* const logged = config_.outside->Logged(lane->env_id, agent);
      if (logged != nullptr) builder_.SetOpenAction(lane->agents[slot], logged->words, logged->logp);
    }
  }
}

void Collector::SendActions() {
  for (Lane* lane : ready_) {
    if (!lane->call.act_status.ok()) {
      lane->call.start_status = std::exchange(lane->call.act_status, absl::OkStatus());
      // Why is this side's own affair: the text may be that of a user's program.
      config_.outside->Drop(lane->env_id, absl::AbortedError("a policy could not act, the worker's log says why"));
    } else {
      GatherActions(*lane);
      for (size_t slot = 0; slot < lane->agents.size(); ++slot) {
        if (!lane->agents[slot].acts) continue;
        config_.outside->SetLogp(lane->env_id, base::AgentSlot(static_cast<int32_t>(slot)),
                                 builder_.LogpOf(lane->agents[slot]));
      }
      lane->call.start_status = lane->env->StartStep(lane->actions.rows);
    }
    lane->call.in_flight = true;
  }
  ready_.clear();
}

absl::StatusOr<bool> Collector::TakeAnswers(const sample::Grant& grant) {
  bool any = false;
  for (Lane* lane : active_) {
    if (!lane->call.in_flight) continue;
    if (lane->call.start_status.ok() && !config_.outside->Answered(lane->env_id)) continue;
    if (outside_left_ <= 0 && !grant.complete_episodes) break;
    any = true;
    lane->call.is_slow = false;
    TROUPE_ASSIGN_OR_RETURN(const bool stepped, StepLane(*lane));
    if (stepped) {
      ++lane->grant.steps_taken;
      ++lane->fragment.steps;
      --outside_left_;
    }
    if (!lane->episode.running) {
      TellItIsOver(*lane);
      continue;
    }
    if (StepsLeft() > 0 || grant.complete_episodes) {
      ready_.push_back(lane);
    } else {
      builder_.CutLane(*lane);  // the next grant's weights act on what it saw
    }
  }
  // Those that were cut are not in the fragment any more.
  const auto sits_out = [](const Lane* lane) {
    return lane->episode.running && !lane->call.in_flight && lane->fragment.episode_index < 0;
  };
  active_.erase(std::remove_if(active_.begin(), active_.end(), sits_out), active_.end());
  return any;
}

absl::Status Collector::SubmitOutside(bool last_of_grant, SampleSink& sink) {
  for (Lane* lane : active_) {
    if (lane->call.in_flight && lane->episode.running) builder_.CutLane(*lane);
  }
  return Submit(last_of_grant, sink);
}

bool Collector::OutsideIsStuck() const {
  return std::none_of(granted_.begin(), granted_.end(), [](const Lane* lane) {
    return lane->call.in_flight || lane->episode.running || lane->grant.episodes_begun <= lane->grant.steps_wanted;
  });
}

bool Collector::OthersWait() const {
  const bool has_episode = config_.outside->HasEpisode();
  return std::any_of(granted_.begin(), granted_.end(), [has_episode](const Lane* lane) {
    return !lane->call.in_flight &&
           (lane->episode.running || (has_episode && lane->grant.episodes_begun <= lane->grant.steps_wanted));
  });
}

bool Collector::OutsideFragmentFull() const {
  int64_t most_steps = 0;  // of a lane
  for (const Lane* lane : active_) most_steps = std::max(most_steps, lane->fragment.steps);
  return builder_.env_steps() > 0 && FragmentFull(most_steps);
}

absl::Status Collector::PrepareOutside() {
  for (auto& [env_id, lane] : lanes_) {
    lane->grant.episodes_begun = 0;
    if (std::find(granted_.begin(), granted_.end(), lane.get()) == granted_.end()) {
      DropOutside(*lane, absl::AbortedError("the learner gave the episode's environment away; begin another"));
    }
  }
  outside_left_ = 0;
  for (const Lane* lane : granted_) outside_left_ += lane->grant.steps_wanted;
  const int64_t most = config_.options.max_fragment_bytes / (4 * builder_.RoundBytesBound());
  if (static_cast<int64_t>(granted_.size()) <= std::max<int64_t>(1, most)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a grant of ", granted_.size(),
                                                 " environments of a world outside, expected at most ", most,
                                                 ": lower num_envs_per_worker"));
}

absl::Status Collector::RunOutside(const sample::Grant& grant, WeightSource& weights, SampleSink& sink) {
  TROUPE_RETURN_IF_ERROR(PrepareOutside());
  BeginOutside(grant);
  absl::Duration waits_since = base::Clock::Real().SteadyNow();
  while (true) {
    absl::Status at_hand = StartOutside(weights);
    if (at_hand.ok()) at_hand = adopter_.AdoptOpen(weights, stop_);
    if (at_hand.ok() && (stop_.load(std::memory_order_relaxed) || config_.outside->closed())) {
      at_hand = absl::CancelledError("the rollout was told to stop");
    }
    if (absl::IsCancelled(at_hand)) TROUPE_RETURN_IF_ERROR(SubmitOutside(/*last_of_grant=*/false, sink));
    TROUPE_RETURN_IF_ERROR(at_hand);
    if (!ready_.empty()) {
      NoteOldDecisions();
      builder_.Decide(ready_);
      TROUPE_RETURN_IF_ERROR(ActForAll());
      TakeLoggedActions();
      builder_.CloseRound();
      SendActions();
    }
    TROUPE_ASSIGN_OR_RETURN(const bool answered, TakeAnswers(grant));
    // Who begins too many episodes without a step ends the grant short of its steps: the learner grants them again.
    if (OutsideIsDone(grant) || OutsideIsStuck()) return SubmitOutside(/*last_of_grant=*/true, sink);
    const absl::Duration now = base::Clock::Real().SteadyNow();
    if (answered) waits_since = now;
    const bool others_wait = ready_.empty() && OthersWait();
    const bool loses_patience = others_wait && outside_left_ > 0 && StepsLeft() <= 0 && now - waits_since > kPatience;
    const bool some_sit_out = others_wait && StepsLeft() > 0 && active_.size() < granted_.size();
    if (loses_patience || some_sit_out || OutsideFragmentFull()) {
      for (Lane* lane : active_) lane->call.is_slow = lane->call.is_slow || (loses_patience && lane->call.in_flight);
      TROUPE_RETURN_IF_ERROR(SubmitOutside(/*last_of_grant=*/false, sink));
      BeginOutside(grant);
      waits_since = now;
    } else if (!answered && ready_.empty()) {
      config_.outside->Await(kLook);
    }
  }
}

}  // namespace troupe::rollout
