#include "lib/rollout/collector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/base/traceback.h"
#include "lib/env/slot_buffers.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/round_bytes.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::rollout {

namespace {

/// Of an error in the log.
constexpr size_t kMaxErrorChars = 1000;

/// An environment's error that ends a grant. ABORTED, DEADLINE_EXCEEDED and CANCELLED would say something of the grant
/// itself: that it is over, that weights are not there yet, that the rollout stops.
absl::Status EndsGrant(const absl::Status& status) {
  const bool of_grants = absl::IsAborted(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
  return of_grants ? absl::InternalError(status.message()) : status;
}

}  // namespace

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
  TROUPE_RETURN_IF_ERROR(collector->adopter_.Start());
  TROUPE_RETURN_IF_ERROR(CheckRoundFits(collector->builder_.schema(), collector->config_.options.max_fragment_bytes));
  return collector;
}

Collector::Collector(RolloutConfig config)
    : config_(std::move(config)),
      builder_(RolloutSchema{config_.env_spec, config_.policies, config_.options.always_sends_state}, config_.mapping,
               {.seed = config_.options.seed,
                .worker = config_.options.worker,
                .env_args = config_.options.env_args,
                .host = config_.mapping_host.get()}),
      tells_envs_(config_.listener != nullptr && config_.listener->TellsEnvs()),
      adopter_(config_, builder_, lanes_) {
  for (const env::AgentSpec& agent : config_.env_spec.possible_agents) {
    action_words_ = std::max(action_words_, static_cast<size_t>(agent.action_space.action_words()));
  }
}

RolloutStats Collector::stats() const {
  RolloutStats stats = stats_;
  const PolicyAdopter::Counters& policies = adopter_.counters();
  stats.policy_hits = policies.hits;
  stats.policy_misses = policies.misses;
  stats.policy_evictions = policies.evictions;
  stats.weight_waits = policies.weight_waits;
  stats.given_up = policies.given_up;
  stats.carried_rows = builder_.carried_rows();
  stats.dropped_rows = builder_.dropped_rows();
  for (const auto& [env_id, lane] : lanes_) {
    if (lane->env != nullptr) stats.missing_all += lane->env->missing_all_count();
  }
  return stats;
}

absl::StatusOr<Lane*> Collector::FindLane(base::EnvId env_id) {
  std::unique_ptr<Lane>& place = lanes_[env_id];
  if (place == nullptr) {
    place = std::make_unique<Lane>();
    place->env_id = env_id;
    builder_.InitLane(*place);
  }
  if (place->env == nullptr) {
    absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> made = config_.env_factory();
    if (!made.ok()) return EndsGrant(made.status());
    std::unique_ptr<env::MultiAgentEnv> env = *std::move(made);
    if (env->spec().ToString() != config_.env_spec.ToString()) {
      return absl::InvalidArgumentError(absl::StrCat("the environment of env ", env_id.value(), " is ",
                                                     env->spec().ToString(), ", expected ",
                                                     config_.env_spec.ToString()));
    }
    place->env = std::make_unique<env::CheckedEnv>(
        std::move(env), env::CheckedEnv::Options{.count_outside_space = config_.options.count_outside_space});
  }
  return place.get();
}

absl::Status Collector::PrepareLanes(const sample::Grant& grant) {
  granted_.clear();
  for (size_t i = 0; i < grant.lanes.size(); ++i) {
    const sample::GrantLane& order = grant.lanes[i];
    if (i > 0 && order.env_id.value() <= grant.lanes[i - 1].env_id.value()) {
      return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id.value(), ": env ", order.env_id.value(),
                                                     " after env ", grant.lanes[i - 1].env_id.value(),
                                                     ", expected ascending ids"));
    }
    if (order.env_id.value() >= config_.options.num_envs) {
      return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id.value(), ": env ", order.env_id.value(),
                                                     ", expected less than ", config_.options.num_envs,
                                                     ", the run's environments"));
    }
    TROUPE_ASSIGN_OR_RETURN(Lane * lane, FindLane(order.env_id));
    if (order.fresh || !lane->known) {
      lane->episode.running = false;
      lane->next_episode = order.next_episode;
      lane->known = true;
    } else {
      // Never an ordinal twice, whoever counted further.
      lane->next_episode = std::max(lane->next_episode, order.next_episode);
    }
    lane->grant.steps_wanted = order.env_steps;
    lane->grant.steps_taken = 0;
    if (order.env_steps > 0) granted_.push_back(lane);
  }
  return absl::OkStatus();
}

absl::Status Collector::AdoptTable(const sample::Grant& grant, WeightSource& weights) {
  TROUPE_ASSIGN_OR_RETURN(const bool changed, adopter_.AdoptTable(grant, weights));
  if (!changed) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(CheckRoundFits(builder_.schema(), config_.options.max_fragment_bytes));
  for (auto& [env_id, lane] : lanes_) {
    if (lane->episode.running) adopter_.LookAhead(*lane, weights);
  }
  return absl::OkStatus();
}

absl::Status Collector::PrepareGrant(const sample::Grant& grant, WeightSource& weights, absl::Duration timeout) {
  prepared_ = false;
  if (preparing_ != grant.id) {
    adopter_.BeginGrant(grant.min_version);
    preparing_ = grant.id;
  }
  absl::Status status = AdoptTable(grant, weights);
  if (status.ok()) status = PrepareLanes(grant);
  if (status.ok()) status = adopter_.AdoptFirst(granted_, weights, timeout);
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
  sink_ = &sink;
  if (config_.outside != nullptr) return EndRun(RunOutside(grant, weights, sink));
  // As many lanes at a time as may write two rounds into one fragment; a single one needs room for one.
  // ... and as many as the entries that a fragment can number allow, with what each agent may carry into it.
  const int64_t entries = 4 * (config_.env_spec.num_agents() + 2);
  const int64_t group = std::max<int64_t>(
      1,
      std::min(config_.options.max_fragment_bytes / (2 * builder_.RoundBytesBound()), sample::kMaxIndexed / entries));
  for (size_t first = 0; first == 0 || first < granted_.size(); first += static_cast<size_t>(group)) {
    const size_t count = std::min(static_cast<size_t>(group), granted_.size() - first);
    TROUPE_RETURN_IF_ERROR(EndRun(RunLanes(grant, absl::MakeSpan(granted_).subspan(first, count),
                                           first + count == granted_.size(), weights, sink)));
  }
  return absl::OkStatus();
}

absl::Status Collector::EndRun(const absl::Status& status) {
  if (status.ok()) return status;
  AbandonCalls();
  // A fragment that was not finished is lost, and with it the episodes that it was part of.
  if (builder_.begun()) {
    builder_.Abandon();
    for (Lane* lane : granted_) lane->episode.running = lane->episode.running && lane->fragment.episode_index < 0;
  }
  return status;
}

absl::Status Collector::RunLanes(const sample::Grant& grant, absl::Span<Lane* const> lanes, bool last_group,
                                 WeightSource& weights, SampleSink& sink) {
  active_.assign(lanes.begin(), lanes.end());
  elsewhere_ = !active_.empty() && active_[0]->env->runs_elsewhere();
  for (size_t i = 0; i < active_.size(); ++i) {
    active_[i]->grant.group = elsewhere_ && i >= (active_.size() + 1) / 2 ? 1 : 0;
  }
  ready_ = active_;
  builder_.Begin(grant, adopter_.versions(), active_);
  int64_t rounds = 0;  // in the fragment
  int next = 0;        // the group whose steps are finished next
  while (!active_.empty()) {
    absl::Status at_hand = StartEpisodes(weights);
    if (at_hand.ok()) at_hand = adopter_.AdoptOpen(weights, stop_);
    if (absl::IsCancelled(at_hand)) {
      // Lanes are cut in the reverse order of their last calls: those that just began were called after the others, in
      // an order of their own where some began again.
      std::stable_sort(ready_.begin(), ready_.end(),
                       [](const Lane* a, const Lane* b) { return a->episode.began < b->episode.began; });
      TROUPE_RETURN_IF_ERROR(Drain(grant));
      TROUPE_RETURN_IF_ERROR(Submit(/*last_of_grant=*/false, sink));
    }
    TROUPE_RETURN_IF_ERROR(at_hand);
    builder_.Decide(ready_);
    TROUPE_RETURN_IF_ERROR(ActForAll());
    builder_.CloseRound();
    StartSteps();
    ready_.clear();
    const auto steps = [this](int group) {
      return std::any_of(active_.begin(), active_.end(),
                         [group](const Lane* lane) { return lane->grant.group == group; });
    };
    if (!steps(next)) next = 1 - next;
    // Between two rounds all lanes have taken as many steps, but for those in flight, which are about to.
    const bool between_rounds = next == 0 || !steps(0);
    TROUPE_RETURN_IF_ERROR(StepGroup(grant, next));
    next = elsewhere_ ? 1 - next : 0;
    rounds += static_cast<int64_t>(between_rounds);
    const bool stop = stop_.load(std::memory_order_relaxed);
    if (stop || (between_rounds && !active_.empty() && FragmentFull(rounds))) {
      TROUPE_RETURN_IF_ERROR(Drain(grant));
      TROUPE_RETURN_IF_ERROR(Submit(active_.empty() && last_group, sink));
      if (stop) return absl::CancelledError("the rollout was told to stop");
      if (active_.empty()) return absl::OkStatus();
      builder_.Begin(grant, adopter_.versions(), active_);
      ready_ = active_;
      rounds = 0;
      next = 0;
    }
  }
  // Groups share nothing, so every group but the last ends with a fragment of its own.
  return Submit(last_group, sink);
}

void Collector::StartSteps() {
  if (!elsewhere_) return;
  for (Lane* lane : ready_) {
    if (!lane->call.act_status.ok()) continue;
    GatherActions(*lane);
    lane->call.start_status = lane->env->StartStep(lane->actions.rows);
    lane->call.in_flight = true;
  }
}

absl::Status Collector::StepGroup(const sample::Grant& grant, int group) {
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    Lane* const lane = active_[i];
    if (lane->grant.group == group) {
      TROUPE_ASSIGN_OR_RETURN(const bool stepped, StepLane(*lane));
      if (stepped) ++lane->grant.steps_taken;
      if (lane->grant.steps_taken >= lane->grant.steps_wanted && !(grant.complete_episodes && lane->episode.running)) {
        if (lane->episode.running) builder_.CutLane(*lane);
        continue;
      }
      ready_.push_back(lane);
    }
    active_[kept++] = lane;
  }
  active_.resize(kept);
  return absl::OkStatus();
}

absl::Status Collector::Drain(const sample::Grant& grant) {
  for (const int group : {0, 1}) {
    const bool in_flight = std::any_of(active_.begin(), active_.end(), [group](const Lane* lane) {
      return lane->grant.group == group && lane->call.in_flight;
    });
    if (in_flight) TROUPE_RETURN_IF_ERROR(StepGroup(grant, group));
  }
  return absl::OkStatus();
}

void Collector::AbandonCalls() {
  std::unique_ptr<env::SlotBuffers> nowhere;
  for (Lane* lane : granted_) {
    lane->call.act_status = absl::OkStatus();
    if (!std::exchange(lane->call.in_flight, false)) continue;
    lane->episode.running = false;
    if (!lane->call.start_status.ok()) continue;
    if (nowhere == nullptr) nowhere = std::make_unique<env::SlotBuffers>(config_.env_spec, 1);
    const absl::Status status = lane->env->Finish(nowhere->BeginStep(0));
    // A world outside that has not answered is in order.
    if (!status.ok() && !(config_.outside != nullptr && absl::IsCancelled(status))) ++stats_.env_errors;
  }
}

bool Collector::FragmentFull(int64_t rounds) const {
  const RolloutOptions& options = config_.options;
  if (options.max_fragment_env_steps > 0 && rounds >= options.max_fragment_env_steps) return true;
  // Lanes in flight may bring a round before the next look, besides the one that all take.
  const auto in_flight =
      std::count_if(active_.begin(), active_.end(), [](const Lane* lane) { return lane->call.in_flight; });
  const int64_t next_round = static_cast<int64_t>(active_.size()) + in_flight;
  return builder_.BytesIfCut() + next_round * builder_.RoundBytesBound() > options.max_fragment_bytes ||
         builder_.IndexedAfterRound(next_round) > sample::kMaxIndexed;
}

absl::Status Collector::Submit(bool last_of_grant, SampleSink& sink) {
  for (auto lane = ready_.rbegin(); lane != ready_.rend(); ++lane) {
    if ((*lane)->episode.running) builder_.CutLane(**lane);
  }
  stats_.env_steps += builder_.env_steps();
  sample::MultiAgentBatchPtr fragment = builder_.Finish(last_of_grant, OldestRevision());
  stats_.agent_steps += fragment->num_agent_steps;
  stats_.episodes += static_cast<int64_t>(fragment->finished.size());
  ++stats_.fragments;
  if (config_.listener != nullptr && !fragment->finished.empty()) {
    config_.listener->OnEnded(fragment->finished, builder_.policies());
  }
  sink.ReportEnvs(TakeReport());
  return sink.Submit(std::move(fragment));
}

int64_t Collector::OldestRevision() const {
  int64_t oldest = builder_.revision();
  for (const auto& [env_id, lane] : lanes_) {
    if (lane->episode.running) oldest = std::min(oldest, lane->episode.revision);
  }
  return oldest;
}

sample::EnvCounters Collector::env_counters() const {
  sample::EnvCounters counters;
  if (config_.env_counters != nullptr) counters = config_.env_counters();
  counters.errors = stats_.env_errors;
  if (!config_.options.count_outside_space) return counters;
  for (const auto& [env_id, lane] : lanes_) {
    if (lane->env != nullptr) counters.outside_space += lane->env->outside_space_count();
  }
  return counters;
}

sample::EnvReport Collector::TakeReport() {
  sample::EnvReport report{env_counters(), outcomes_.recent(), FailsFromTheStart(), incidents_.Take()};
  if (config_.listener != nullptr) config_.listener->AddTo(&report);
  return report;
}

bool Collector::FailsFromTheStart() const {
  return !ended_well_ && lanes_failed_ == lanes_.size() && stats_.env_errors >= kFewestFailures;
}

void Collector::NoteCall(Lane& lane) {
  if (!lane.episode.running) {
    outcomes_.Add(/*failed=*/false);
    ended_well_ = true;
    if (tells_envs_) lane.env->NoteEnd();
  }
  if (!lane.env->has_outside_space()) return;
  bool told = false;
  for (const env::CheckedEnv::OutsideSpace& outside : lane.env->TakeOutsideSpace()) {
    const env::AgentSpec& agent = config_.env_spec.possible_agents[static_cast<size_t>(outside.agent.value())];
    told = incidents_.AddOutsideSpace(agent.id.value(), outside.message) || told;
  }
  if (told) sink_->ReportEnvs(TakeReport());
}

absl::Status Collector::CountError(Lane& lane, const absl::Status& status) {
  // Of worlds outside: their client is gone, which is counted where that is known.
  if (config_.outside != nullptr && absl::IsCancelled(status)) return absl::OkStatus();
  ++stats_.env_errors;
  const bool news = incidents_.AddFailure(status);
  // A callback's failure says nothing about the environment. The callback is called no more.
  if (base::IsCallbackBlamed(status)) {
    if (news) sink_->ReportEnvs(TakeReport());
    return absl::OkStatus();
  }
  outcomes_.Add(/*failed=*/true);
  lanes_failed_ += static_cast<size_t>(!std::exchange(lane.has_failed, true));
  const bool from_the_start = FailsFromTheStart() && !std::exchange(told_of_start_, true);
  if (news || from_the_start || gives_up()) sink_->ReportEnvs(TakeReport());
  if (absl::IsResourceExhausted(status)) return status;
  if (gives_up()) {
    const sample::RecentEpisodes& recent = outcomes_.recent();
    return absl::AbortedError(absl::StrCat(recent.failed, " of the last ", recent.ended,
                                           " episodes failed, the last: ", std::string(status.message())));
  }
  if (++lane.consecutive_errors < kMaxConsecutiveErrors) {
    TROUPE_DEBUG("environment failed env={} episode={} error={}", lane.env_id.value(), lane.episode.ordinal,
                 base::LogSafe(status.ToString(), kMaxErrorChars));
    return absl::OkStatus();
  }
  lane.consecutive_errors = 0;
  return EndsGrant(
      absl::Status(status.code(), absl::StrCat(kMaxConsecutiveErrors, " times in a row: ", status.message())));
}

absl::Status Collector::StartEpisodes(WeightSource& weights) {
  starting_.clear();
  for (Lane* lane : ready_) {
    lane->episode.began = 0;
    if (!lane->episode.running) starting_.push_back(lane);
  }
  if (starting_.empty()) return absl::OkStatus();
  int64_t began = 0;
  // All try once before one tries again: where every environment fails, that is seen at once.
  for (bool again = false; !starting_.empty(); again = true) {
    // An environment that fails again and again must not keep a worker that is to stop.
    if (again && stop_.load(std::memory_order_relaxed)) return absl::CancelledError("the rollout was told to stop");
    for (Lane* lane : starting_) {
      if (!elsewhere_) break;
      builder_.StartEpisode(*lane);
      lane->call.start_status = lane->env->StartReset({config_.options.seed, lane->env_id, lane->episode.ordinal});
      lane->call.in_flight = true;
    }
    size_t left = 0;
    for (Lane* lane : starting_) {
      TROUPE_RETURN_IF_ERROR(StartEpisode(*lane));
      if (!lane->episode.running) {
        starting_[left++] = lane;
        continue;
      }
      lane->episode.began = ++began;
      adopter_.LookAhead(*lane, weights);
    }
    starting_.resize(left);
  }
  adopter_.Trim(weights);
  return absl::OkStatus();
}

absl::Status Collector::StartEpisode(Lane& lane) {
  const bool started = std::exchange(lane.call.in_flight, false);
  if (!started) builder_.StartEpisode(lane);
  env::StepWriter& writer = builder_.BeginCall(lane, /*is_step=*/false);
  absl::Status status;
  if (started) {
    status = lane.call.start_status.ok() ? lane.env->Finish(writer) : lane.call.start_status;
  } else {
    status = lane.env->Reset({config_.options.seed, lane.env_id, lane.episode.ordinal}, writer);
  }
  if (status.ok()) status = builder_.FinishCall(lane);
  if (status.ok()) {
    NoteCall(lane);
    return status;
  }
  builder_.AbortCall(lane);
  return CountError(lane, status);
}

absl::Status Collector::ActForAll() {
  ++rounds_;
  for (size_t place = 0; place < builder_.num_places(); ++place) {
    inference::ActInput input = builder_.OpenRows(place);
    if (input.rows == 0) continue;
    input.deterministic = !config_.options.explore;
    ResidentActor& actor = adopter_.ActorOf(builder_.PolicyAt(place));
    actor.last_used = rounds_;
    absl::Status status = actor.actor->Act(input, builder_.OpenActions(place), builder_.OpenLogp(place));
    if (status.ok()) continue;
    if (!actor.actor->runs_elsewhere() || absl::IsResourceExhausted(status)) return status;
    FailToAct(place, status);
  }
  return absl::OkStatus();
}

void Collector::FailToAct(size_t place, const absl::Status& status) {
  const policy::PolicySlot slot = builder_.PolicyAt(place);
  const auto rows = static_cast<size_t>(builder_.OpenRows(place).rows);
  std::fill_n(builder_.OpenActions(place), rows * adopter_.ActorOf(slot).action_words, space::ActionWord());
  std::fill_n(builder_.OpenLogp(place), rows, 0.0f);
  for (Lane* lane : ready_) {
    const bool plays = std::any_of(lane->agents.begin(), lane->agents.end(),
                                   [slot](const AgentState& agent) { return agent.acts && agent.policy == slot; });
    if (plays) lane->call.act_status = status;
  }
}

void Collector::NoteDecisions(Lane& lane) {
  if (!tells_envs_) return;
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    const AgentState& agent = lane.agents[slot];
    if (!agent.acts) continue;
    lane.env->NoteDecision(base::AgentSlot(static_cast<int32_t>(slot)), builder_.policies()[agent.policy].id.value(),
                           builder_.LogpOf(agent));
  }
}

void Collector::GatherActions(Lane& lane) {
  NoteDecisions(lane);
  for (size_t slot = 0; slot < lane.agents.size(); ++slot) {
    const AgentState& agent = lane.agents[slot];
    lane.actions.rows[slot] = nullptr;
    if (!agent.acts) continue;
    space::ActionWord* const bounded = &lane.actions.bounded[slot * action_words_];
    const space::ActionWord* action = builder_.ActionOf(agent, bounded);
    const ResidentActor& actor = adopter_.ActorOf(agent.policy);
    if (!actor.bounds.identity()) {
      actor.bounds.Apply(absl::MakeConstSpan(action, actor.action_words), absl::MakeSpan(bounded, actor.action_words));
      action = bounded;
    }
    lane.actions.rows[slot] = action;
  }
}

absl::StatusOr<bool> Collector::StepLane(Lane& lane) {
  absl::Status status;
  if (std::exchange(lane.call.in_flight, false)) {
    env::StepWriter& writer = builder_.BeginCall(lane, /*is_step=*/true);
    status = lane.call.start_status.ok() ? lane.env->Finish(writer) : lane.call.start_status;
  } else {
    env::StepWriter& writer = builder_.BeginCall(lane, /*is_step=*/true);
    status = std::exchange(lane.call.act_status, absl::OkStatus());
    if (status.ok()) {
      GatherActions(lane);
      status = lane.env->Step(lane.actions.rows, writer);
    }
  }
  if (status.ok()) status = builder_.FinishCall(lane);
  if (status.ok()) {
    lane.consecutive_errors = 0;
    NoteCall(lane);
    return true;
  }
  builder_.AbortCall(lane);
  TROUPE_RETURN_IF_ERROR(CountError(lane, status));
  return false;
}

}  // namespace troupe::rollout
