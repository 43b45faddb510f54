// The update thread's half of Learner.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/learner/learner.h"
#include "lib/learner/training_stats.h"

namespace troupe::learner {
StepOutcome Learner::Step(absl::Duration timeout) {
  ReleaseDrained();
  const absl::Duration begin = deps_.clock->SteadyNow();
  std::optional<StepOutcome> nothing = AwaitBatch(timeout);
  wait_s_ += absl::ToDoubleSeconds(deps_.clock->SteadyNow() - begin);
  if (nothing.has_value()) return *std::move(nothing);
  std::vector<CheckedFragment> fragments;
  int64_t iteration = 0;
  {
    base::MutexLock lock(&mutex_);
    iteration = iteration_;
    fragments = ingest_->Take(iteration);
    updating_ = true;
  }
  StepOutcome outcome = Train(std::move(fragments), iteration);
  base::MutexLock lock(&mutex_);
  updating_ = false;
  return outcome;
}

std::optional<StepOutcome> Learner::AwaitBatch(absl::Duration timeout) {
  // The deadline is of the machine's clock, as the waiting is; decisions use the given clock.
  const absl::Duration deadline = base::Clock::Real().SteadyNow() + timeout;
  base::MutexLock lock(&mutex_);
  while (true) {
    if (std::optional<StepOutcome> end = EndLocked()) return end;
    if (HasCompleteLocked()) return std::nullopt;
    const absl::Duration left = deadline - base::Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) return StepOutcome{};
    changed_.WaitFor(&mutex_, left);
  }
}

std::optional<StepOutcome> Learner::EndLocked() {
  if (state_ == State::kMade) {
    return StepOutcome{StepOutcome::Kind::kFailed, "", absl::FailedPreconditionError("Step before Start")};
  }
  if (state_ == State::kStarted || state_ == State::kDraining) {
    if (!ingest_->stuck().ok()) {
      FailLocked(ingest_->stuck());
    } else if (EndIfEnvsFailLocked(); envs_failed_) {
      // What has arrived whole is trained on.
    } else if (auto reason = StopByTimeOrReturn(config_.stop, WallClockLocked(), NoScore)) {
      scheduler_->Close();
      // What is complete is trained on first: it was sampled in time.
      if (!HasCompleteLocked()) {
        state_ = State::kStopped;
        reason_ = *reason;
        if (iteration_ == first_iteration_) {
          absl::StrAppend(&reason_, "; no update was made: ", arrived_env_steps_,
                          " env steps had arrived, a batch has ", config_.options.train_batch_size,
                          config_.options.count_steps_by == CountStepsBy::kEnvSteps ? "" : " agent steps");
        }
      }
    }
  }
  switch (state_) {
    case State::kStopped:
      return StepOutcome{StepOutcome::Kind::kStopped, reason_, absl::OkStatus()};
    case State::kFailed:
      return StepOutcome{StepOutcome::Kind::kFailed, "", failure_};
    case State::kDraining:
      if (!HasCompleteLocked()) {
        return StepOutcome{envs_failed_ ? StepOutcome::Kind::kEnvsFailed : StepOutcome::Kind::kDrained, reason_,
                           absl::OkStatus()};
      }
      return std::nullopt;
    case State::kMade:
    case State::kStarted:
      return std::nullopt;
  }
  return std::nullopt;
}

void Learner::FailLocked(absl::Status status) {
  state_ = State::kFailed;
  reason_ = std::string(status.message());
  failure_ = std::move(status);
  scheduler_->Close();
}

absl::StatusOr<policy::WeightSnapshotPtr> Learner::VersionOf(policy::PolicySlot slot, int64_t n, bool stamp) {
  const policy::WeightVersion version{config_.learner_epoch, n};
  TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, deps_.trainer->Snapshot(slot));
  if (stamp) {
    // Fresh or restored weights know nothing of this learner epoch.
    auto stamped = std::make_shared<policy::WeightSnapshot>(*snapshot);
    stamped->version = version;
    snapshot = std::move(stamped);
  }
  if (snapshot->version != version) {
    return absl::InternalError(absl::StrCat("policy '", snapshot->id.value(), "' has version (",
                                            snapshot->version.learner_epoch, ", ", snapshot->version.n,
                                            ") after its update, expected (", version.learner_epoch, ", ", n, ")"));
  }
  return snapshot;
}

absl::Status Learner::PublishVersion(int64_t n, const std::vector<PolicyUpdateReport>* reports) {
  const policy::PolicyTablePtr table = Policies();
  const bool stamp = reports == nullptr;
  std::vector<bool> changed(table->num_slots(), stamp);
  if (!stamp) {
    // Also of removed policies: their episodes play on with what updates make of them.
    for (const PolicyUpdateReport& report : *reports) {
      if (report.trained_rows > 0) changed[static_cast<size_t>(report.policy.value())] = true;
    }
  }
  for (size_t p = 0; p < changed.size(); ++p) {
    const policy::PolicySlot slot(static_cast<int32_t>(p));
    const policy::PolicyEntry* const entry = table->Find(slot);
    if (!changed[p] || entry == nullptr || !entry->spec.policy_class.has_weights()) continue;
    TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, VersionOf(slot, n, stamp));
    deps_.publisher->Publish(slot, std::move(snapshot));
  }
  deps_.publisher->AnnounceVersion(policy::WeightVersion{config_.learner_epoch, n});
  return absl::OkStatus();
}

StepOutcome Learner::Train(std::vector<CheckedFragment> fragments, int64_t iteration) {
  const absl::Duration assemble_begin = deps_.clock->SteadyNow();
  std::vector<sample::MultiAgentBatchPtr> batches;
  std::vector<sample::FinishedEpisode> finished;
  for (const CheckedFragment& fragment : fragments) {
    batches.push_back(fragment.batch);
    finished.insert(finished.end(), fragment.batch->finished.begin(), fragment.batch->finished.end());
  }
  const Assembly& assembly = assembler_.Assemble(batches, iteration);
  UpdateContext context;
  context.seed = config_.options.seed;
  context.iteration = iteration;
  context.next_version = policy::WeightVersion{config_.learner_epoch, iteration + 1};
  {
    // The fragments have been copied: their memory is free for the samples of the next iteration.
    base::MutexLock lock(&mutex_);
    ingest_->Release(fragments);
    context.env_steps = trained_.env_steps;
  }
  batches.clear();
  fragments.clear();

  const absl::Duration update_begin = deps_.clock->SteadyNow();
  absl::StatusOr<std::vector<PolicyUpdateReport>> reports = deps_.trainer->Update(assembly.batch, context);
  const absl::Duration update_end = deps_.clock->SteadyNow();
  absl::Status status = reports.status();
  const bool trained = status.ok();
  if (trained) {
    {
      base::MutexLock lock(&mutex_);
      scheduler_->SetPublishing(iteration + 1);
    }
    status = PublishVersion(iteration + 1, &*reports);
  }
  if (!status.ok()) {
    base::MutexLock lock(&mutex_);
    // Given up: the run ends without weights that saw these rows.
    accounting_.BookDropped(assembly.trained);
    accounting_.BookDropped(assembly.dropped);
    arrived_env_steps_ -= assembly.batch.env_steps;
    FailLocked(status);
    return StepOutcome{StepOutcome::Kind::kFailed, "", std::move(status), !trained};
  }

  const auto num_finished = static_cast<int64_t>(finished.size());
  if (!rewards_differ_ && config_.options.common_reward == CommonReward::kNone && ReturnsDiffer(finished)) {
    rewards_differ_ = true;
  }
  window_.Add(std::move(finished));
  ProgressRecord record;
  record.assemble_s = absl::ToDoubleSeconds(update_begin - assemble_begin);
  record.update_s = absl::ToDoubleSeconds(update_end - update_begin);
  record.wait_s = std::exchange(wait_s_, 0);
  record.policy_lag = assembly.mean_lag;
  TellEpisodes(&record);
  record.losses = MeanMetrics(*reports);
  record.train_s = JoinTrainTimes(*reports, config_.options.train_time_aggregator);
  if (record.table->num_slots() > 1) {
    record.agent_losses = AgentLosses(assembly.batch, *reports, config_.schema.agent_ids);
  }
  for (std::pair<std::string, double>& metric : deps_.trainer->Metrics()) record.losses.push_back(std::move(metric));
  for (const PolicyUpdateReport& report : *reports) {
    record.minibatch_steps += report.minibatch_steps;
    record.skipped_steps += report.skipped_steps;
  }
  record.policies = std::make_shared<const std::vector<PolicyUpdateReport>>(*std::move(reports));

  Outbox outbox;
  {
    base::MutexLock lock(&mutex_);
    accounting_.BookTrained(assembly.trained);
    accounting_.BookDropped(assembly.dropped);
    arrived_env_steps_ -= assembly.batch.env_steps;
    trained_.env_steps += assembly.batch.env_steps;
    trained_.agent_steps += assembly.batch.agent_steps;
    trained_.updates = ++iteration_;
    episodes_ += num_finished;
    const absl::Duration now = deps_.clock->SteadyNow();
    std::optional<std::string> stop = StopByCounts(config_.stop, trained_);
    if (!stop.has_value()) {
      stop = StopByReturns(config_.stop, record.window, *record.table);
      if (StopByTimeOrReturn(config_.stop, WallClockLocked(), NoScore).has_value()) scheduler_->Close();
    }
    if (stop.has_value() && (state_ == State::kStarted || state_ == State::kDraining)) {
      state_ = State::kStopped;
      reason_ = *std::move(stop);
      scheduler_->Close();
    }
    // Sampling goes on before anything is reported: it is what the workers wait for.
    scheduler_->SetPublished(iteration_);
    outbox = ScheduleLocked();
    record.env_steps = trained_.env_steps;
    record.agent_steps = trained_.agent_steps;
    record.updates = iteration_;
    record.episodes = episodes_;
    record.wall_clock_s = absl::ToDoubleSeconds(WallClockLocked());
    const double elapsed_s = absl::ToDoubleSeconds(now - rate_since_.value_or(now));
    record.env_steps_per_s = elapsed_s > 0 ? static_cast<double>(assembly.batch.env_steps) / elapsed_s : 0;
    rate_since_ = now;
    record.workers = registry_.num_connected();
    record.env_counters = registry_.env_counters();
    record.expired_grants = scheduler_->expired_grants();
    record.rows = accounting_.totals();
    last_ = record;
  }
  Send(outbox);
  ReportMetrics(record);
  if (deps_.progress != nullptr) deps_.progress->OnProgress(record);
  return StepOutcome{StepOutcome::Kind::kUpdated, "", absl::OkStatus()};
}

void Learner::ReportMetrics(const ProgressRecord& record) {
  if (deps_.metrics == nullptr) return;
  const auto scalar = [&](const std::string& tag, std::optional<double> value) {
    if (value.has_value()) deps_.metrics->Scalar(tag, *value, record.env_steps);
  };
  scalar("Train-Results/Episode-Rewards", record.return_sum);
  scalar("Train-Results/Episode-Rewards/Mean-Agent", record.return_mean);
  scalar("Train-Results/Episode-Steps", record.episode_length);
  if (!record.window.return_sum.empty()) {
    scalar("Train-Results/Episode-Rewards/Min", record.window.return_sum.min);
    scalar("Train-Results/Episode-Rewards/Max", record.window.return_sum.max);
    scalar("Train-Results/Episode-Steps/Min", record.window.length.min);
    scalar("Train-Results/Episode-Steps/Max", record.window.length.max);
  }
  scalar("Reward / Total reward (mean)", record.return_sum);
  for (size_t i = 0; i < config_.info_columns.size(); ++i) {
    scalar(absl::StrCat("env/", config_.info_columns[i]), window_.info(static_cast<int32_t>(i)));
  }
  for (const auto& [tag, value] : record.losses) scalar(tag, value);
  for (const auto& [tag, value] : record.agent_losses) scalar(tag, value);
  scalar("Time/env_steps_per_s", record.env_steps_per_s);
  scalar("Time/update_s", record.update_s);
  scalar("Time/train_s", record.train_s);
  scalar("Time/wait_s", record.wait_s);
  const std::pair<const char*, int64_t> counters[] = {
      {"received", record.rows.received}, {"accepted", record.rows.accepted}, {"duplicate", record.rows.duplicate},
      {"stale", record.rows.stale},       {"invalid", record.rows.invalid},   {"trained", record.rows.trained},
      {"dropped", record.rows.dropped}};
  for (const auto& [name, value] : counters) scalar(absl::StrCat("Rows/", name), static_cast<double>(value));
  scalar("Lag/mean", record.policy_lag);
  scalar("Workers/connected", static_cast<double>(record.workers));
  scalar("Grants/expired", static_cast<double>(record.expired_grants));
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    scalar(field.tag, static_cast<double>(record.env_counters.*field.value));
  }
}

std::optional<Score> Learner::BestBy() const {
  if (config_.best_by.has_value() || rewards_differ_) return config_.best_by;
  return Score{};
}

void Learner::TellEpisodes(ProgressRecord* record) {
  record->table = Policies();
  record->window = window_.Stats(record->table->num_slots());
  record->return_sum = record->window.return_sum.mean();
  record->return_mean = record->window.return_mean.mean();
  record->episode_length = record->window.length.mean();
  record->rewards_differ = rewards_differ_;
  const std::optional<Score> by = BestBy();
  if (!by.has_value()) return;
  record->best_by = by->Text();
  const std::optional<double> score = window_.full() ? ScoreOf(*by, record->window, *record->table) : std::nullopt;
  if (score.has_value()) best_window_ = std::max(*score, best_window_.value_or(*score));
  record->best = best_window_;
}

void Learner::ReportEvaluation(const EpisodeStats& evaluation) { evaluation_ = evaluation; }

absl::StatusOr<LearnerSnapshot> Learner::SnapshotState() {
  LearnerSnapshot snapshot;
  LearnerState& state = snapshot.state;
  // Policies first: between Steps nothing changes them, and the counters below belong to the same moment.
  TROUPE_RETURN_IF_ERROR(SavePolicies(&state));
  window_.Save(state);
  const std::optional<Score> by = BestBy();
  std::optional<double> score;
  if (by.has_value()) {
    const policy::PolicyTablePtr table = Policies();
    if (!config_.best_by_evaluation) {
      if (window_.full()) score = ScoreOf(*by, window_.Stats(table->num_slots()), *table);
    } else if (evaluation_.has_value()) {
      score = ScoreOf(*by, *evaluation_, *table);
    }
  }
  evaluation_.reset();
  has_best_ = has_best_ && by.has_value();
  if (!has_best_) best_return_ = 0;
  // Until something has been scored, any state is the best there is.
  snapshot.is_best = by.has_value() && (score.has_value() ? !has_best_ || *score > best_return_ : !has_best_);
  if (score.has_value() && snapshot.is_best) {
    has_best_ = true;
    best_return_ = *score;
  }
  state.has_best = has_best_;
  state.best_return = best_return_;
  state.best_by = by.has_value() ? by->Text() : "";
  if (by.has_value()) state.best_window = best_window_;
  state.rewards_differ = rewards_differ_;

  base::MutexLock lock(&mutex_);
  state.iteration = iteration_;
  state.env_steps = trained_.env_steps;
  state.agent_steps = trained_.agent_steps;
  state.episodes = episodes_;
  state.wall_clock_s = absl::ToDoubleSeconds(WallClockLocked());
  state.learner_epoch = config_.learner_epoch;
  state.rows = accounting_.totals();
  state.lanes = scheduler_->Lanes();
  state.lanes.insert(state.lanes.end(), retired_lanes_.begin(), retired_lanes_.end());
  state.watermarks = registry_.Watermarks();
  return snapshot;
}

}  // namespace troupe::learner
