#include "lib/learner/learner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/line_quota.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/learner/stale_rows.h"

namespace troupe::learner {

using sample::FragmentAck;
using sample::WorkerId;

namespace {

/// No worker lives long enough to send more.
constexpr uint64_t kMaxSequence = uint64_t{1} << 48;

absl::Status CheckOptions(const LearnerConfig& config) {
  const auto at_least = [](const char* name, int64_t value, int64_t low) {
    if (value >= low) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", expected at least ", low));
  };
  const LearnerOptions& options = config.options;
  TROUPE_RETURN_IF_ERROR(at_least("learner_epoch", static_cast<int64_t>(config.learner_epoch), 1));
  TROUPE_RETURN_IF_ERROR(at_least("train_batch_size", options.train_batch_size, 1));
  TROUPE_RETURN_IF_ERROR(at_least("max_policy_lag", options.max_policy_lag, 0));
  TROUPE_RETURN_IF_ERROR(at_least("num_workers", options.num_workers, 0));
  TROUPE_RETURN_IF_ERROR(at_least("num_envs", options.num_envs, 1));
  TROUPE_RETURN_IF_ERROR(at_least("policies", static_cast<int64_t>(config.schema.policies.size()), 1));
  TROUPE_RETURN_IF_ERROR(at_least("agents", static_cast<int64_t>(config.schema.agent_ids.size()), 1));
  TROUPE_RETURN_IF_ERROR(at_least("schema.num_envs", config.schema.num_envs, options.num_envs));
  TROUPE_RETURN_IF_ERROR(sample::TrainRules::Make(options.train_rules).status());
  if (static_cast<int64_t>(config.info_columns.size()) != config.schema.num_info_columns) {
    return absl::InvalidArgumentError(absl::StrCat("info_columns has ", config.info_columns.size(), " names, expected ",
                                                   config.schema.num_info_columns));
  }
  return absl::OkStatus();
}

/// The policies that a learner begins with. One that follows another gives no table a revision that may have been given
/// before, by a learner whose last changes no checkpoint has.
absl::StatusOr<PolicyViewPtr> FirstView(const LearnerConfig& config) {
  if (config.policies != nullptr) {
    const auto first_revision = static_cast<int64_t>((config.learner_epoch - 1) << 32);
    return MakePolicyView(config.policies->AtLeast(first_revision), config.schema);
  }
  std::vector<bool> trains;
  const std::vector<policy::PolicySpec>& specs = config.schema.policies;
  for (size_t p = 0; p < specs.size(); ++p) {
    const bool wanted = config.options.trains.empty() || config.options.trains[p];
    trains.push_back(wanted && specs[p].policy_class.trainable());
  }
  // Nobody asks this one who plays.
  TROUPE_ASSIGN_OR_RETURN(policy::PolicyTablePtr table,
                          policy::PolicyTable::Make(specs, trains, {{"*", {{specs[0].id}}}}, config.schema.agent_ids));
  return MakePolicyView(std::move(table), config.schema);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Learner>> Learner::Create(LearnerConfig config, const LearnerDeps& deps) {
  TROUPE_CHECK(deps.trainer != nullptr && deps.publisher != nullptr && deps.clock != nullptr &&
               deps.allocator != nullptr);
  TROUPE_RETURN_IF_ERROR(CheckOptions(config));
  TROUPE_ASSIGN_OR_RETURN(const PolicyViewPtr view, FirstView(config));
  config.schema.policies = view->schema.policies;
  TROUPE_RETURN_IF_ERROR(Assembler::CheckSchema(config.schema));
  TROUPE_RETURN_IF_ERROR(Ingest::CheckBudget(config.options, config.schema, config.limits));
  return std::unique_ptr<Learner>(new Learner(std::move(config), deps, view));
}

Learner::Learner(LearnerConfig config, const LearnerDeps& deps, PolicyViewPtr view)
    : config_(std::move(config)),
      deps_(deps),
      assembler_(config_.schema,
                 {config_.options.common_reward, config_.options.max_policy_lag,
                  /*trains=*/{}, *sample::TrainRules::Make(config_.options.train_rules)},  // CheckOptions has tried
                 *deps.allocator),
      window_(static_cast<int32_t>(config_.schema.agent_ids.size()),
              static_cast<int32_t>(config_.schema.num_info_columns)),
      view_(std::move(view)),
      accounting_(static_cast<int32_t>(config_.schema.policies.size())),
      registry_(config_.learner_epoch),
      env_health_(config_.options.max_failed_share),
      scheduler_(MakeScheduler(0, {})),
      ingest_(std::make_unique<Ingest>(config_.options.ingest_budget_bytes, scheduler_.get(), &accounting_)) {
  base::MutexLock lock(&mutex_);
  assembler_.SetPolicies(*view_->table);
  scheduler_->SetRevision(view_->table->revision());
  for (const policy::PolicySpec& spec : view_->schema.policies) trained_as_.push_back(spec.id);
}

Learner::~Learner() = default;

std::unique_ptr<GrantScheduler> Learner::MakeScheduler(int64_t iteration, const std::vector<LaneState>& lanes) const {
  GrantScheduler::Options options;
  options.num_envs = config_.options.num_envs;
  options.train_batch_size = config_.options.train_batch_size;
  options.count_steps_by = config_.options.count_steps_by;
  options.num_agents = static_cast<int32_t>(config_.schema.agent_ids.size());
  options.max_policy_lag = config_.options.max_policy_lag;
  options.complete_episodes = config_.options.complete_episodes;
  options.num_workers = config_.options.num_workers;
  options.join_timeout = config_.options.join_timeout;
  options.grant_timeout = config_.options.grant_timeout;
  return std::make_unique<GrantScheduler>(options, config_.learner_epoch, iteration, lanes);
}

absl::Status Learner::Restore(const LearnerState& state) {
  if (state.learner_epoch >= config_.learner_epoch) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint is of learner epoch ", state.learner_epoch,
                                                      ", this is epoch ", config_.learner_epoch,
                                                      ", expected a higher one"));
  }
  if (state.policies.size() != config_.schema.policies.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint has ", state.policies.size(), " policies, expected ",
                                                   config_.schema.policies.size()));
  }
  {
    base::MutexLock lock(&mutex_);
    if (state_ != State::kMade) return absl::FailedPreconditionError("the learner has started already");
    if (registry_.num_connected() > 0) return absl::FailedPreconditionError("workers have joined already");
  }
  const policy::PolicyTablePtr table = Policies();
  for (size_t p = 0; p < state.policies.size(); ++p) {
    const policy::PolicySlot slot(static_cast<int32_t>(p));
    if (table->Find(slot) == nullptr) continue;
    TROUPE_RETURN_IF_ERROR(deps_.trainer->ImportState(state.policies[p], slot));
  }
  if (state.trained_as.size() == trained_as_.size()) trained_as_ = state.trained_as;
  window_.Restore(state);
  window_.KeepPolicies([&table](int32_t policy) { return table->Find(policy::PolicySlot(policy)) != nullptr; });
  rewards_differ_ = state.rewards_differ && config_.options.common_reward == CommonReward::kNone;
  // What was the best by another return is none by this one.
  const std::optional<Score> by = BestBy();
  const bool same = by.has_value() && by->Text() == state.best_by;
  has_best_ = state.has_best && same;
  best_return_ = has_best_ ? state.best_return : 0;
  best_window_ = same ? state.best_window : std::nullopt;
  // Of an earlier version: the largest that a checkpoint had.
  if (!best_window_ && has_best_ && !config_.best_by_evaluation) best_window_ = best_return_;
  retired_lanes_.clear();
  for (const LaneState& lane : state.lanes) {
    if (static_cast<int64_t>(lane.env_id) >= config_.options.num_envs) retired_lanes_.push_back(lane);
  }
  ProgressRecord last;
  TellEpisodes(&last);
  base::MutexLock lock(&mutex_);
  last_ = std::move(last);
  accounting_.Restore(state.rows);
  registry_.Restore(state.watermarks);
  scheduler_ = MakeScheduler(state.iteration, state.lanes);
  scheduler_->SetRevision(view_->table->revision());
  ingest_ = std::make_unique<Ingest>(config_.options.ingest_budget_bytes, scheduler_.get(), &accounting_);
  iteration_ = state.iteration;
  noted_complete_ = state.iteration;
  trained_ = RunCounts{state.env_steps, state.agent_steps, state.iteration};
  episodes_ = state.episodes;
  earlier_wall_clock_s_ = state.wall_clock_s;
  last_.env_steps = state.env_steps;
  last_.agent_steps = state.agent_steps;
  last_.updates = state.iteration;
  last_.episodes = state.episodes;
  return absl::OkStatus();
}

absl::Status Learner::Start() {
  int64_t iteration = 0;
  {
    base::MutexLock lock(&mutex_);
    if (state_ != State::kMade) return absl::FailedPreconditionError("the learner has started already");
    iteration = iteration_;
  }
  if (config_.policies != nullptr) deps_.publisher->SetPolicies(Policies());
  TROUPE_RETURN_IF_ERROR(PublishVersion(iteration, /*reports=*/nullptr));
  Outbox outbox;
  {
    base::MutexLock lock(&mutex_);
    state_ = State::kStarted;
    first_iteration_ = iteration;
    auto reason = StopByCounts(config_.stop, trained_);
    // Of a run that goes on, last_ has the window that it was saved with.
    if (!reason && last_.table != nullptr) reason = StopByReturns(config_.stop, last_.window, *last_.table);
    if (reason) {
      state_ = State::kStopped;
      reason_ = *reason;
      scheduler_->Close();
    }
    scheduler_->SetPublished(iteration);
    outbox = ScheduleLocked();
  }
  Send(outbox);
  return absl::OkStatus();
}

Learner::Outbox Learner::ScheduleLocked() {
  const absl::Duration now = deps_.clock->SteadyNow();
  scheduler_->Advance(now);
  if (scheduler_->first_incomplete() != noted_complete_) {
    noted_complete_ = scheduler_->first_incomplete();
    CloseIfEnoughLocked();
    changed_.NotifyAll();
  }
  Outbox outbox;
  std::vector<GrantOrder> orders = scheduler_->Schedule(now);
  if (!orders.empty() && !rate_since_.has_value()) rate_since_ = now;
  for (const ExpiredGrant& expired : scheduler_->TakeExpired()) {
    outbox.expired.push_back({registry_.workers().at(expired.worker.value()).port, expired});
  }
  for (GrantOrder& order : orders) {
    if (config_.policies != nullptr && view_->table->revision() > 0) order.grant.policies = view_->table;
    // Removing a worker from the registry removes it from the scheduler, so it is there.
    outbox.grants.push_back({registry_.workers().at(order.worker.value()).port, std::move(order.grant)});
  }
  return outbox;
}

void Learner::Send(const Outbox& outbox) {
  for (const Notice& notice : outbox.expired) {
    const ExpiredGrant& expired = notice.expired;
    notice.port->SendGrantOver(expired.grant);
    if (!base::MayTellOfPeer()) continue;
    TROUPE_WARN(
        "a grant was out for too long, its work is granted to others worker={} grant={} age_s={} limit_s={} "
        "missing_env_steps={} expired_in_a_row={}{}",
        sample::WorkerText(expired.worker), expired.grant.value(), absl::ToDoubleSeconds(expired.age),
        absl::ToDoubleSeconds(expired.limit), expired.missing_steps, expired.misses,
        expired.misses < WorkerStandings::kMisses ? "" : ": it gets none while there are others");
  }
  for (const Mail& mail : outbox.grants) mail.port->SendGrant(mail.grant);
}

absl::StatusOr<WorkerTicket> Learner::Join(const WorkerHello& hello, std::shared_ptr<WorkerPort> port) {
  TROUPE_CHECK(port != nullptr);
  if (hello.next_sequence > kMaxSequence) {
    return absl::InvalidArgumentError(
        absl::StrCat("next_sequence is ", hello.next_sequence, ", expected at most ", kMaxSequence));
  }
  WorkerRegistry::Joined joined;
  Outbox outbox;
  {
    base::MutexLock lock(&mutex_);
    if (state_ != State::kMade && state_ != State::kStarted) {
      return absl::CancelledError(absl::StrCat("the run takes no workers any more: ", reason_));
    }
    const absl::Duration now = deps_.clock->SteadyNow();
    TROUPE_RETURN_IF_ERROR(registry_.Check(hello));
    joined = registry_.Join(hello, std::move(port), now);
    if (joined.was_connected) scheduler_->RemoveWorker(joined.ticket.worker_id);
    if (joined.gap > 0) accounting_.BookGap(joined.gap, joined.restarted);
    // Its lanes are fresh: of episodes that it had before no rows are accepted.
    (*registry_.Find(joined.ticket))->oldest_revision = view_->table->revision();
    scheduler_->AddWorker(joined.ticket.worker_id, now);
    if (env_health_.Join(joined.ticket.worker_id.value(), hello.name, hello.own)) {
      scheduler_->ExcludeWorker(joined.ticket.worker_id);
    }
    outbox = ScheduleLocked();
  }
  Send(outbox);
  return joined.ticket;
}

void Learner::Leave(const WorkerTicket& ticket) {
  std::shared_ptr<WorkerPort> port;
  Outbox outbox;
  {
    base::MutexLock lock(&mutex_);
    absl::StatusOr<WorkerRegistry::Worker*> worker = registry_.Find(ticket);
    if (!worker.ok()) return;
    scheduler_->RemoveWorker(ticket.worker_id);
    env_health_.Leave(ticket.worker_id.value());
    port = registry_.Leave(**worker);
    outbox = ScheduleLocked();
  }
  Send(outbox);
}

CheckedFragment Learner::CheckBy(const PolicyView& view, const sample::MultiAgentBatchPtr& batch) const {
  if (config_.policies == nullptr) {
    return CheckFragment(batch, view.schema, config_.limits, config_.options.max_policy_lag);
  }
  // As long as nothing has changed, there is nothing to leave out.
  FreshPart fresh = view.table->revision() == 0
                        ? FreshPart{batch, {}, {}}
                        : LeaveOutStale(batch, *view.table, config_.learner_epoch, config_.limits);
  CheckedFragment checked =
      CheckFragment(std::move(fresh.batch), view.schema, config_.limits, config_.options.max_policy_lag);
  checked.status.Update(CheckRevisions(*batch, view.table->revision()));
  checked.stale_rows = std::move(fresh.stale_rows);
  checked.stale_reason = std::move(fresh.reason);
  return checked;
}

absl::StatusOr<FragmentAck> Learner::Submit(const WorkerTicket& ticket, uint64_t sequence,
                                            sample::MultiAgentBatchPtr batch) {
  TROUPE_CHECK(batch != nullptr);
  // A refused fragment is destroyed with this copy: after the lock.
  const sample::MultiAgentBatchPtr kept = batch;
  PolicyViewPtr view = View();
  Outbox outbox;
  absl::StatusOr<FragmentAck> ack = FragmentAck{};
  while (true) {
    CheckedFragment checked = CheckBy(*view, batch);
    int64_t rows = 0;
    for (const PolicyRowCount& count : checked.rows) rows += count.rows;

    base::MutexLock lock(&mutex_);
    if (view != view_) {
      view = view_;  // the policies have changed meanwhile: it is judged by what they are now
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(WorkerRegistry::Worker* const worker, registry_.Find(ticket));
    if (CheckRevisions(*batch, view->table->revision()).ok()) {
      worker->oldest_revision = std::max(worker->oldest_revision, batch->oldest_revision);
    }
    worker->last_seen = deps_.clock->SteadyNow();
    ack = ingest_->Offer(ticket.worker_id, worker->sequences, sequence, std::move(checked));
    if (!ack.ok()) {
      if (!ingest_->stuck().ok()) changed_.NotifyAll();
      return ack;
    }
    if (ack->disposition == sample::Disposition::kAccepted) {
      worker->accepted_rows += rows;
      for (const sample::PolicyRows& policy_rows : kept->policies) {
        worker->last_version_n = std::max(worker->last_version_n, policy_rows.version.n);
      }
      arrived_env_steps_ += kept->num_env_steps;
      if (!sampling_since_.has_value()) sampling_since_ = worker->last_seen;
      env_health_.Delivered(ticket.worker_id.value(), static_cast<int64_t>(kept->finished.size()));
    }
    outbox = ScheduleLocked();
    break;
  }
  Send(outbox);
  return ack;
}

absl::StatusOr<FragmentAck> Learner::SubmitUndecodable(const WorkerTicket& ticket, uint64_t sequence,
                                                       const std::string& reason) {
  Outbox outbox;
  absl::StatusOr<FragmentAck> ack = FragmentAck{};
  {
    base::MutexLock lock(&mutex_);
    TROUPE_ASSIGN_OR_RETURN(WorkerRegistry::Worker* const worker, registry_.Find(ticket));
    worker->last_seen = deps_.clock->SteadyNow();
    ack = ingest_->OfferUndecodable(ticket.worker_id, worker->sequences, sequence, reason);
    outbox = ScheduleLocked();
  }
  Send(outbox);
  return ack;
}

absl::Status Learner::Heartbeat(const WorkerTicket& ticket, const std::optional<sample::EnvReport>& report) {
  std::vector<std::string> lines;
  Outbox outbox;
  {
    base::MutexLock lock(&mutex_);
    TROUPE_ASSIGN_OR_RETURN(WorkerRegistry::Worker* const worker, registry_.Find(ticket));
    worker->last_seen = deps_.clock->SteadyNow();
    if (!report.has_value()) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(lines, ReportLocked(*worker, *report));
    if (!lines.empty()) outbox = ScheduleLocked();  // the work of a worker that gets no more
  }
  Send(outbox);
  for (const std::string& line : lines) {
    if (base::MayTellOfPeer()) TROUPE_WARN("{}", line);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Learner::ReportLocked(WorkerRegistry::Worker& worker,
                                                               const sample::EnvReport& report) {
  TROUPE_RETURN_IF_ERROR(registry_.Count(worker, report.counters, worker.last_seen));
  worker.recent_episodes = report.recent;
  const EnvHealth::News news = env_health_.Report(worker.id.value(), report, worker.last_seen);
  std::vector<std::string> lines;
  for (const sample::EnvIncident& incident : news.first_of_their_kind) {
    const bool failed = incident.what == sample::EnvIncident::What::kFailure;
    lines.push_back(absl::StrCat(
        failed ? "environment failed" : "observation outside its space", " worker=", sample::WorkerText(worker.id),
        " name=", env_health_.name(worker.id.value()), ", more of this kind are only counted: ",
        base::LogSafeLines(incident.text, sample::EnvIncident::kMaxTextBytes)));
  }
  if (news.beyond) {
    scheduler_->ExcludeWorker(worker.id);
    lines.push_back(absl::StrCat("too many episodes fail (env.max_failed_share), a worker gets no more work: ",
                                 env_health_.Words(worker.id.value())));
  }
  EndIfEnvsFailLocked();
  return lines;
}

void Learner::EndIfEnvsFailLocked() {
  if (state_ != State::kStarted) return;
  std::optional<std::string> why = env_health_.End(deps_.clock->SteadyNow());
  if (!why.has_value()) return;
  state_ = State::kDraining;
  envs_failed_ = true;
  reason_ = *std::move(why);
  scheduler_->Close();
  changed_.NotifyAll();
}

void Learner::Tick() {
  std::vector<std::shared_ptr<WorkerPort>> ports;
  std::vector<WorkerId> silent;
  Outbox outbox;
  {
    base::MutexLock lock(&mutex_);
    const absl::Duration now = deps_.clock->SteadyNow();
    for (WorkerRegistry::Worker* worker : registry_.SilentSince(now - config_.options.worker_timeout)) {
      silent.push_back(worker->id);
      scheduler_->RemoveWorker(worker->id);
      env_health_.Leave(worker->id.value());
      ports.push_back(registry_.Leave(*worker));
    }
    outbox = ScheduleLocked();
  }
  Send(outbox);
  for (const WorkerId id : silent) {
    if (!base::MayTellOfPeer()) continue;
    TROUPE_WARN("worker gave no sign of life for {} s, its work is granted again id={}",
                absl::ToDoubleSeconds(config_.options.worker_timeout), sample::WorkerText(id));
  }
}

void Learner::RequestDrain(const std::string& reason) {
  std::vector<std::shared_ptr<WorkerPort>> ports;
  {
    base::MutexLock lock(&mutex_);
    scheduler_->Close();
    if (state_ == State::kMade || state_ == State::kStarted) {
      state_ = State::kDraining;
      reason_ = reason;
    }
    changed_.NotifyAll();
    if (drain_sent_) return;
    drain_sent_ = true;
    for (const auto& [id, worker] : registry_.workers()) {
      if (worker.connected) ports.push_back(worker.port);
    }
  }
  for (const std::shared_ptr<WorkerPort>& port : ports) port->SendDrain(reason);
}

void Learner::CloseIfEnoughLocked() {
  // No iteration is open, so what has arrived is exactly the batches that will be trained on. Agent steps are left out:
  // rows may still be dropped at assembly.
  const RunCounts after{trained_.env_steps + arrived_env_steps_, 0, scheduler_->first_incomplete()};
  if (StopByCounts(config_.stop, after).has_value()) scheduler_->Close();
}

bool Learner::HasCompleteLocked() const { return scheduler_->first_incomplete() > iteration_; }

absl::Duration Learner::WallClockLocked() const {
  const absl::Duration earlier = absl::Seconds(earlier_wall_clock_s_);
  return sampling_since_.has_value() ? earlier + (deps_.clock->SteadyNow() - *sampling_since_) : earlier;
}

LearnerStatus Learner::Status() const {
  base::MutexLock lock(&mutex_);
  LearnerStatus status;
  switch (state_) {
    case State::kMade:
      status.state = "waiting for workers";
      break;
    case State::kStarted:
      status.state = updating_ ? "updating" : scheduler_->started() ? "sampling" : "waiting for workers";
      break;
    case State::kDraining:
      status.state = "draining";
      break;
    case State::kStopped:
      status.state = "stopped";
      break;
    case State::kFailed:
      status.state = "failed";
      break;
  }
  status.reason = reason_;
  status.learner_epoch = config_.learner_epoch;
  status.progress = last_;
  status.progress.rows = accounting_.totals();
  status.progress.workers = registry_.num_connected();
  status.progress.env_counters = registry_.env_counters();
  status.progress.expired_grants = scheduler_->expired_grants();
  status.progress.wall_clock_s = absl::ToDoubleSeconds(WallClockLocked());
  status.fragments = accounting_.fragments();
  for (size_t p = 0; p < view_->table->num_slots(); ++p) {
    status.policy_rows.push_back(accounting_.of_policy(static_cast<int32_t>(p)));
  }
  const absl::Duration now = deps_.clock->SteadyNow();
  for (const auto& [id, worker] : registry_.workers()) {
    if (!worker.connected) continue;
    WorkerStatus entry;
    entry.id = worker.id;
    entry.epoch = worker.epoch;
    entry.lanes = scheduler_->num_lanes_of(worker.id);
    entry.outstanding_steps = scheduler_->outstanding_steps_of(worker.id);
    entry.accepted_rows = worker.accepted_rows;
    entry.expired_grants = scheduler_->expired_grants_of(worker.id);
    entry.recent_episodes = worker.recent_episodes;
    if (env_health_.beyond(worker.id.value())) entry.gets_no_work = env_health_.Words(worker.id.value());
    if (worker.last_version_n >= 0) entry.policy_lag = static_cast<double>(iteration_ - worker.last_version_n);
    entry.since_last_seen = now - worker.last_seen;
    status.workers.push_back(entry);
  }
  status.queue_bytes = ingest_->held_bytes();
  status.queue_budget_bytes = ingest_->budget_bytes();
  return status;
}

}  // namespace troupe::learner
