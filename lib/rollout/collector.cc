#include "lib/rollout/collector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::rollout {

absl::StatusOr<std::unique_ptr<Collector>> Collector::Create(RolloutConfig config) {
  TROUPE_RETURN_IF_ERROR(config.env_spec.Validate());
  if (config.policies.empty()) return absl::InvalidArgumentError("a rollout needs at least one policy");
  if (config.mapping == nullptr || config.env_factory == nullptr) {
    return absl::InvalidArgumentError("a rollout needs a policy mapping and an environment factory");
  }
  if (config.options.policy_map_capacity < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy_map_capacity is ", config.options.policy_map_capacity, ", expected at least 1"));
  }
  auto collector = std::unique_ptr<Collector>(new Collector(std::move(config)));
  // A policy that cannot play is said at the start.
  for (const policy::PolicySpec& spec : collector->config_.policies) {
    TROUPE_RETURN_IF_ERROR(collector->MakeActor(spec).status());
  }
  TROUPE_RETURN_IF_ERROR(collector->CheckRoundFits());
  return collector;
}

Collector::Collector(RolloutConfig config)
    : config_(std::move(config)),
      builder_(RolloutSchema{config_.env_spec, config_.policies}, config_.mapping,
               {config_.options.seed, 0, 0, config_.options.worker, config_.options.env_args}),
      actors_(config_.options.policy_map_capacity),
      since_(config_.policies.size(), 0),
      versions_(since_.size()),
      adopted_in_(since_.size(), 0),
      sought_in_(since_.size(), 0),
      subscribed_(since_.size(), 0),
      needed_by_(since_.size(), 0) {
  for (const env::AgentSpec& agent : config_.env_spec.possible_agents) {
    action_words_ = std::max(action_words_, static_cast<size_t>(agent.action_space.action_words()));
  }
}

absl::Status Collector::CheckRoundFits() const {
  const int64_t round = builder_.RoundBytesBound();
  const int64_t limit = config_.options.max_fragment_bytes;
  if (round <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("max_fragment_bytes is ", limit, ", but a step of environment ",
                                                 config_.env_spec.name, " may need ", round, " bytes"));
}

RolloutStats Collector::stats() const {
  RolloutStats stats = stats_;
  stats.carried_rows = builder_.carried_rows();
  stats.dropped_rows = builder_.dropped_rows();
  for (const auto& [env_id, lane] : lanes_) {
    if (lane->env != nullptr) stats.missing_all += lane->env->missing_all_count();
  }
  return stats;
}

absl::StatusOr<Lane*> Collector::FindLane(uint32_t env_id) {
  std::unique_ptr<Lane>& place = lanes_[env_id];
  if (place == nullptr) {
    place = std::make_unique<Lane>();
    place->env_id = env_id;
    builder_.InitLane(*place);
  }
  if (place->env == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<env::MultiAgentEnv> env, config_.env_factory());
    if (env->spec().ToString() != config_.env_spec.ToString()) {
      return absl::InvalidArgumentError(absl::StrCat("the environment of env ", env_id, " is ", env->spec().ToString(),
                                                     ", expected ", config_.env_spec.ToString()));
    }
    place->env = std::make_unique<env::CheckedEnv>(std::move(env));
  }
  return place.get();
}

absl::Status Collector::PrepareLanes(const sample::Grant& grant) {
  granted_.clear();
  for (size_t i = 0; i < grant.lanes.size(); ++i) {
    const sample::GrantLane& order = grant.lanes[i];
    if (i > 0 && order.env_id <= grant.lanes[i - 1].env_id) {
      return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id.value(), ": env ", order.env_id, " after env ",
                                                     grant.lanes[i - 1].env_id, ", expected ascending ids"));
    }
    TROUPE_ASSIGN_OR_RETURN(Lane * lane, FindLane(order.env_id));
    if (order.fresh || !lane->known) {
      lane->in_episode = false;
      lane->next_episode = order.next_episode;
      lane->known = true;
    } else {
      // Never an ordinal twice, whoever counted further.
      lane->next_episode = std::max(lane->next_episode, order.next_episode);
    }
    lane->steps_wanted = order.env_steps;
    lane->steps_taken = 0;
    if (order.env_steps > 0) granted_.push_back(lane);
  }
  return absl::OkStatus();
}

absl::Status Collector::PrepareGrant(const sample::Grant& grant, WeightSource& weights, absl::Duration timeout) {
  prepared_ = false;
  if (preparing_ != grant.id) {
    ++grants_;
    min_version_ = newest_ = grant.min_version;
    preparing_ = grant.id;
  }
  absl::Status status = AdoptPolicies(grant, weights);
  if (status.ok()) status = PrepareLanes(grant);
  if (status.ok()) status = AdoptFirst(weights, timeout);
  prepared_ = status.ok();
  if (!prepared_ && !absl::IsDeadlineExceeded(status)) preparing_.reset();
  return status;
}

absl::Status Collector::RunGrant(const sample::Grant& grant, WeightSource& weights, SampleSink& sink) {
  if (!prepared_ || preparing_ != grant.id) {
    TROUPE_RETURN_IF_ERROR(PrepareGrant(grant, weights, absl::ZeroDuration()));
  }
  prepared_ = false;
  preparing_.reset();
  // As many lanes at a time as may write two rounds into one fragment; a single one needs room for one.
  const int64_t group = std::max<int64_t>(1, config_.options.max_fragment_bytes / (2 * builder_.RoundBytesBound()));
  for (size_t first = 0; first == 0 || first < granted_.size(); first += static_cast<size_t>(group)) {
    const size_t count = std::min(static_cast<size_t>(group), granted_.size() - first);
    absl::Status status = RunLanes(grant, absl::MakeSpan(granted_).subspan(first, count),
                                   first + count == granted_.size(), weights, sink);
    if (!status.ok()) {
      // A fragment that was not finished is lost, and with it the episodes that it was part of.
      if (builder_.begun()) {
        builder_.Abandon();
        for (Lane* lane : granted_) lane->in_episode = lane->in_episode && lane->episode_index < 0;
      }
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Collector::RunLanes(const sample::Grant& grant, absl::Span<Lane* const> lanes, bool last_group,
                                 WeightSource& weights, SampleSink& sink) {
  active_.assign(lanes.begin(), lanes.end());
  builder_.Begin(grant, versions_, active_);
  int64_t rounds = 0;  // in the fragment
  while (!active_.empty()) {
    TROUPE_RETURN_IF_ERROR(StartEpisodes(weights));
    const absl::Status at_hand = AdoptOpen(weights);
    if (absl::IsCancelled(at_hand)) {
      // Lanes are cut in the reverse order of their last calls: those that just began were called after the others.
      std::stable_partition(active_.begin(), active_.end(), [](const Lane* lane) { return !lane->began; });
      TROUPE_RETURN_IF_ERROR(Submit(/*last_of_grant=*/false, sink));
    }
    TROUPE_RETURN_IF_ERROR(at_hand);
    builder_.Decide(active_);
    TROUPE_RETURN_IF_ERROR(ActForAll());
    builder_.CloseRound();
    size_t kept = 0;
    for (Lane* lane : active_) {
      TROUPE_ASSIGN_OR_RETURN(const bool stepped, StepLane(*lane));
      if (stepped) ++lane->steps_taken;
      const bool enough = lane->steps_taken >= lane->steps_wanted && !(grant.complete_episodes && lane->in_episode);
      if (!enough) {
        active_[kept++] = lane;
      } else if (lane->in_episode) {
        builder_.CutLane(*lane);
      }
    }
    active_.resize(kept);
    ++rounds;
    const bool stop = stop_.load(std::memory_order_relaxed);
    if (stop || (!active_.empty() && FragmentFull(rounds))) {
      TROUPE_RETURN_IF_ERROR(Submit(active_.empty() && last_group, sink));
      if (stop) return absl::CancelledError("the rollout was told to stop");
      builder_.Begin(grant, versions_, active_);
      rounds = 0;
    }
  }
  // Groups share nothing, so every group but the last ends with a fragment of its own.
  return Submit(last_group, sink);
}

bool Collector::FragmentFull(int64_t rounds) const {
  const RolloutOptions& options = config_.options;
  if (options.max_fragment_env_steps > 0 && rounds >= options.max_fragment_env_steps) return true;
  const int64_t next_round = static_cast<int64_t>(active_.size()) * builder_.RoundBytesBound();
  return builder_.BytesIfCut() + next_round > options.max_fragment_bytes;
}

absl::Status Collector::Submit(bool last_of_grant, SampleSink& sink) {
  for (auto lane = active_.rbegin(); lane != active_.rend(); ++lane) {
    if ((*lane)->in_episode) builder_.CutLane(**lane);
  }
  stats_.env_steps += builder_.env_steps();
  sample::MultiAgentBatchPtr fragment = builder_.Finish(last_of_grant, OldestRevision());
  stats_.agent_steps += fragment->num_agent_steps;
  stats_.episodes += static_cast<int64_t>(fragment->finished.size());
  ++stats_.fragments;
  return sink.Submit(std::move(fragment));
}

absl::Status Collector::CountError(Lane& lane, const absl::Status& status) {
  ++stats_.env_errors;
  if (++lane.consecutive_errors < kMaxConsecutiveErrors) {
    TROUPE_DEBUG("environment failed env={} episode={} error={}", lane.env_id, lane.episode,
                 base::LogSafe(status.ToString()));
    return absl::OkStatus();
  }
  lane.consecutive_errors = 0;
  // ABORTED is what a grant that is over ends with.
  const absl::StatusCode code = absl::IsAborted(status) ? absl::StatusCode::kInternal : status.code();
  return absl::Status(code, absl::StrCat(kMaxConsecutiveErrors, " times in a row: ", status.message()));
}

absl::Status Collector::StartEpisodes(WeightSource& weights) {
  bool began = false;
  for (Lane* lane : active_) {
    lane->began = !lane->in_episode;
    if (!lane->began) continue;
    began = true;
    while (!lane->in_episode) TROUPE_RETURN_IF_ERROR(StartEpisode(*lane));
    LookAhead(*lane, weights);
  }
  if (began) TrimPolicies(weights);
  return absl::OkStatus();
}

absl::Status Collector::StartEpisode(Lane& lane) {
  builder_.StartEpisode(lane);
  env::StepWriter& writer = builder_.BeginCall(lane, /*is_step=*/false);
  absl::Status status = lane.env->Reset({config_.options.seed, lane.env_id, lane.episode}, writer);
  if (status.ok()) status = builder_.FinishCall(lane);
  if (status.ok()) return status;
  builder_.AbortCall(lane);
  return CountError(lane, status);
}

absl::Status Collector::ActForAll() {
  ++rounds_;
  for (size_t place = 0; place < builder_.num_places(); ++place) {
    inference::ActInput input = builder_.OpenRows(place);
    if (input.rows == 0) continue;
    input.deterministic = !config_.options.explore;
    ResidentActor& actor = *actors_.Find(builder_.PolicyAt(place));
    actor.last_used = rounds_;
    TROUPE_RETURN_IF_ERROR(actor.actor->Act(input, builder_.OpenActions(place), builder_.OpenLogp(place)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Collector::StepLane(Lane& lane) {
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    const AgentState& agent = lane.agents[slot];
    lane.actions[slot] = nullptr;
    if (!agent.acts) continue;
    const space::ActionWord* action = builder_.ActionOf(agent);
    const ResidentActor& actor = *actors_.Find(agent.policy);
    if (!actor.bounds.identity()) {
      space::ActionWord* bounded = &lane.bounded_actions[slot * action_words_];
      actor.bounds.Apply(absl::MakeConstSpan(action, actor.action_words), absl::MakeSpan(bounded, actor.action_words));
      action = bounded;
    }
    lane.actions[slot] = action;
  }
  env::StepWriter& writer = builder_.BeginCall(lane, /*is_step=*/true);
  absl::Status status = lane.env->Step(lane.actions, writer);
  if (status.ok()) status = builder_.FinishCall(lane);
  if (status.ok()) {
    lane.consecutive_errors = 0;
    return true;
  }
  builder_.AbortCall(lane);
  TROUPE_RETURN_IF_ERROR(CountError(lane, status));
  return false;
}

}  // namespace troupe::rollout
