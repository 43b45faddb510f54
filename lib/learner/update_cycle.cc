#include "lib/learner/update_cycle.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/learner/cut_out.h"
#include "lib/learner/progress_metrics.h"
#include "lib/learner/train_chooser.h"
#include "lib/learner/training_stats.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

using Phase = RunState::Phase;

UpdateCycle::UpdateCycle(const LearnerDeps* deps, RunState* run)
    : config_(run->config),
      deps_(*deps),
      run_(*run),
      assembler_(config_.schema,
                 {config_.options.common_reward, config_.options.max_policy_lag,
                  /*trains=*/{}, *sample::TrainRules::Make(config_.options.train_rules)},  // Learner::Create has tried
                 *deps_.allocator),
      aging_(&config_.options),
      episodes_(&config_),
      policies_(&deps_, &run_, &assembler_, &episodes_) {
  clocks_.assign(run_.feeds.size(), FeedClock(0));
}

absl::Status UpdateCycle::Restore(const LearnerState& state) {
  if (state.learner_epoch >= config_.learner_epoch) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint is of learner epoch ", state.learner_epoch,
                                                      ", this is epoch ", config_.learner_epoch,
                                                      ", expected a higher one"));
  }
  if (state.policies.size() != config_.schema.policies.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint has ", state.policies.size(), " policies, expected ",
                                                   config_.schema.policies.size()));
  }
  TROUPE_RETURN_IF_ERROR(CheckFeeds(state));
  {
    base::MutexLock lock(&run_.mutex);
    if (run_.phase != Phase::kMade) return absl::FailedPreconditionError("the learner has started already");
    if (run_.registry.num_connected() > 0) return absl::FailedPreconditionError("workers have joined already");
  }
  TROUPE_RETURN_IF_ERROR(policies_.Restore(state));
  const policy::PolicyTablePtr table = policies_.table();
  episodes_.Restore(state, *table);
  retired_lanes_.clear();
  for (const LaneState& lane : state.lanes) {
    if (static_cast<int64_t>(lane.env_id.value()) >= config_.options.num_envs) retired_lanes_.push_back(lane);
  }
  ProgressRecord last;
  episodes_.Tell(table, &last);
  base::MutexLock lock(&run_.mutex);
  run_.last = std::move(last);
  run_.accounting.Restore(state.rows);
  run_.registry.Restore(state.watermarks);
  run_.BeginAtLocked(state);
  clocks_.clear();
  for (const FeedSpec& feed : run_.feeds) clocks_.emplace_back(state.updates_of(feed.name), state.published_version());
  run_.trained = RunCounts{state.env_steps, state.agent_steps, state.iteration};
  deps_.trainer->SetTime(state.env_steps, state.iteration);
  run_.episodes = state.episodes;
  run_.times.earlier_wall_clock_s = state.wall_clock_s;
  run_.last.env_steps = state.env_steps;
  run_.last.agent_steps = state.agent_steps;
  run_.last.updates = state.iteration;
  run_.last.episodes = state.episodes;
  return absl::OkStatus();
}

absl::Status UpdateCycle::CheckFeeds(const LearnerState& state) const {
  std::vector<std::string> saved, here;
  for (const auto& [feed, _] : state.feed_updates) saved.push_back(feed);
  if (saved.empty()) saved = {""};
  for (const FeedSpec& feed : run_.feeds) here.push_back(feed.name);
  std::sort(here.begin(), here.end());
  if (saved == here) return absl::OkStatus();
  const auto quoted = [](std::string* out, const std::string& feed) { absl::StrAppend(out, "\"", feed, "\""); };
  return absl::InvalidArgumentError(absl::StrCat("the checkpoint's policies were trained from the feeds [",
                                                 absl::StrJoin(saved, ", ", quoted), "], this run has [",
                                                 absl::StrJoin(here, ", ", quoted), "]; expected the same algorithms"));
}

absl::Status UpdateCycle::Start() {
  int64_t version = 0;
  {
    base::MutexLock lock(&run_.mutex);
    if (run_.phase != Phase::kMade) return absl::FailedPreconditionError("the learner has started already");
    version = run_.version;
  }
  if (config_.policies != nullptr) deps_.publisher->SetPolicies(policies_.table());
  TROUPE_RETURN_IF_ERROR(policies_.PublishVersion(version, /*reports=*/nullptr));
  // A run that goes on has the episodes that it was saved with.
  const std::optional<std::string> by_returns = episodes_.StopByTraining(*policies_.table());
  Outbox outbox;
  {
    base::MutexLock lock(&run_.mutex);
    run_.phase = Phase::kStarted;
    run_.first_updates = run_.trained.updates;
    auto reason = StopByCounts(config_.stop, run_.trained);
    if (!reason) reason = by_returns;
    if (reason) run_.StopLocked(*std::move(reason));
    run_.plan->SetPublished(run_.ingest->Done(), version);
    outbox = run_.ScheduleLocked();
  }
  outbox.Send();
  return absl::OkStatus();
}

StepOutcome UpdateCycle::Step(absl::Duration timeout) {
  policies_.ReleaseDrained();
  const absl::Duration begin = run_.clock.SteadyNow();
  std::optional<StepOutcome> nothing = AwaitBatch(timeout);
  wait_s_ += absl::ToDoubleSeconds(run_.clock.SteadyNow() - begin);
  if (nothing.has_value()) return *std::move(nothing);
  Batch batch;
  Selection selection;
  {
    base::MutexLock lock(&run_.mutex);
    batch.feed = *run_.ingest->FindReady(next_feed_);  // what is ready stays so
    next_feed_ = batch.feed + 1;
    selection = run_.ingest->Select(batch.feed);
    ++run_.batches;
    batch.version = run_.version;
    batch.env_steps_before = run_.plan->EnvStepsBelow(selection.iteration);
    run_.updating = true;
  }
  StepOutcome outcome = Train(std::move(selection), std::move(batch));
  base::MutexLock lock(&run_.mutex);
  run_.updating = false;
  return outcome;
}

std::optional<StepOutcome> UpdateCycle::AwaitBatch(absl::Duration timeout) {
  // The deadline is of the machine's clock, as the waiting is; decisions use the given clock.
  const absl::Duration deadline = base::Clock::Real().SteadyNow() + timeout;
  base::MutexLock lock(&run_.mutex);
  while (true) {
    if (std::optional<StepOutcome> end = EndLocked()) return end;
    if (run_.HasBatchLocked()) return std::nullopt;
    const absl::Duration left = deadline - base::Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) return StepOutcome{};
    run_.changed.WaitFor(&run_.mutex, left);
  }
}

std::optional<StepOutcome> UpdateCycle::EndLocked() {
  if (run_.phase == Phase::kMade) {
    return StepOutcome{StepOutcome::Kind::kFailed, "", absl::FailedPreconditionError("Step before Start")};
  }
  if (run_.phase == Phase::kStarted || run_.phase == Phase::kDraining) {
    if (!run_.ingest->stuck().ok()) {
      run_.FailLocked(run_.ingest->stuck());
    } else if (run_.EndIfEnvsFailLocked(); run_.ending.drained_as != StepOutcome::Kind::kDrained) {
      // What has arrived whole is trained on.
    } else if (auto reason = StopByTimeOrReturn(config_.stop, run_.WallClockLocked(), NoScore)) {
      run_.plan->Close();
      // What is complete is trained on first: it was sampled in time.
      if (!run_.HasBatchLocked()) {
        if (run_.trained.updates == run_.first_updates) {
          absl::StrAppend(&*reason, "; no update was made: ", run_.arrived_env_steps,
                          " env steps had arrived, a batch has ", config_.options.train_batch_size,
                          config_.options.count_steps_by == CountStepsBy::kEnvSteps ? "" : " agent steps");
        }
        run_.StopLocked(*std::move(reason));
      }
    }
  }
  switch (run_.phase) {
    case Phase::kStopped:
      return StepOutcome{StepOutcome::Kind::kStopped, run_.ending.reason, absl::OkStatus()};
    case Phase::kFailed:
      return StepOutcome{StepOutcome::Kind::kFailed, "", run_.ending.failure};
    case Phase::kDraining:
      if (!run_.HasBatchLocked()) {
        return StepOutcome{run_.ending.drained_as, run_.ending.reason, absl::OkStatus()};
      }
      return std::nullopt;
    case Phase::kMade:
    case Phase::kStarted:
      return std::nullopt;
  }
  return std::nullopt;
}

void UpdateCycle::Assemble(Selection selection, Batch& batch) {
  batch.assemble_begin = run_.clock.SteadyNow();
  std::vector<sample::MultiAgentBatchPtr> fragments;
  for (const Pick& pick : selection.picks) {
    sample::MultiAgentBatchPtr fragment = pick.fragment->checked().batch;
    if (!pick.ranges.empty()) fragment = CutOut(fragment, pick.ranges);
    if (!pick.first) fragment = CountedBefore(*fragment);
    if (!fragment->finished.empty()) {
      const CheckedFragment& from = pick.fragment->checked();
      std::vector<sample::FinishedEpisode>& finished =
          from.own ? batch.finished.own : batch.finished.by_strangers[from.worker.value()];
      finished.insert(finished.end(), fragment->finished.begin(), fragment->finished.end());
    }
    fragments.push_back(std::move(fragment));
  }
  assembler_.SetMaxLag(run_.feeds[batch.feed].MaxLagInUpdates(config_.options.max_policy_lag));
  batch.assembly = &assembler_.Assemble(fragments, clocks_[batch.feed]);
  // The fragments have been copied: their memory is free for the samples of the next iteration.
  base::MutexLock lock(&run_.mutex);
  const Assembly& made = *batch.assembly;
  batch.fates = run_.ingest->Release(batch.feed, selection, made.aged, made.replaced, made.waited);
  if (run_.feeds.size() == 1) return;
  for (const PolicyTrainBatch& rows : made.batch.policies) {
    if (!run_.ingest->Feeds(batch.feed, rows.policy)) assembler_.LeaveAsItIs(rows.policy);
  }
}

StepOutcome UpdateCycle::Train(Selection selection, Batch batch) {
  Assemble(std::move(selection), batch);
  const int64_t version = batch.version;
  UpdateContext context;
  context.seed = config_.options.seed;
  context.next_version = policy::WeightVersion{config_.learner_epoch, version + 1};
  context.iteration = clocks_[batch.feed].updates();
  context.env_steps = batch.env_steps_before;
  int64_t updates = 0;
  {
    base::MutexLock lock(&run_.mutex);
    updates = run_.trained.updates;
  }
  if (deps_.chooser != nullptr) ChoosePolicies(batch, updates);
  batch.update_begin = run_.clock.SteadyNow();
  absl::StatusOr<std::vector<PolicyUpdateReport>> reports = deps_.trainer->Update(batch.assembly->batch, context);
  batch.update_end = run_.clock.SteadyNow();
  if (!reports.ok()) return GiveUp(batch, reports.status(), /*state_is_whole=*/true);
  {
    base::MutexLock lock(&run_.mutex);
    run_.plan->SetPublishing(version + 1);
  }
  const absl::Status published = policies_.PublishVersion(version + 1, &*reports);
  if (!published.ok()) return GiveUp(batch, published, /*state_is_whole=*/false);

  const int64_t num_finished = batch.finished.count();
  ProgressRecord record = Describe(&batch, *std::move(reports));
  Book(batch, num_finished, &record);
  if (deps_.metrics != nullptr) ReportProgress(record, deps_.metrics);
  if (deps_.progress != nullptr) deps_.progress->OnProgress(record);
  for (const std::string& words : aging_.TakeNews()) TROUPE_WARN("{}", words);
  if (const std::optional<std::string> words = episodes_.TakeWarning(*record.table)) TROUPE_WARN("{}", *words);
  return StepOutcome{StepOutcome::Kind::kUpdated, "", absl::OkStatus()};
}

void UpdateCycle::ChoosePolicies(const Batch& batch, int64_t updates) {
  BatchFacts facts{.updates = updates, .env_steps = batch.assembly->batch.env_steps};
  std::vector<policy::PolicySlot> slots;
  for (const PolicyTrainBatch& rows : batch.assembly->batch.policies) {
    if (!rows.train) continue;
    slots.push_back(rows.policy);
    BatchFacts::Policy& policy = facts.policies.emplace_back();
    policy.id = policies_.table()->IdOf(rows.policy);
    policy.rows = rows.rows;
    std::vector<int64_t> by_agent(config_.schema.agent_ids.size());
    for (const int32_t slot : rows.slot) ++by_agent[static_cast<size_t>(slot)];
    for (size_t slot = 0; slot < by_agent.size(); ++slot) {
      if (by_agent[slot] > 0) policy.agents.emplace_back(config_.schema.agent_ids[slot], by_agent[slot]);
    }
  }
  const std::vector<sample::FinishedEpisode> finished =
      config_.info_columns.empty() ? std::vector<sample::FinishedEpisode>() : batch.finished.All();
  for (size_t column = 0; column < config_.info_columns.size(); ++column) {
    Spread spread;
    for (const sample::FinishedEpisode& episode : finished) {
      if (column < episode.infos.size() && std::isfinite(episode.infos[column])) spread.Add(episode.infos[column]);
    }
    if (const std::optional<double> mean = spread.mean()) facts.infos.emplace_back(config_.info_columns[column], *mean);
  }
  for (policy::PolicyId& id : policies_.table()->ActiveIds()) {
    if (!id.value().empty()) facts.active.insert(std::move(id));
  }
  const std::vector<bool> trains = deps_.chooser->Choose(facts);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!trains[i]) assembler_.LeaveAsItIs(slots[i]);
  }
}

StepOutcome UpdateCycle::GiveUp(const Batch& batch, absl::Status status, bool state_is_whole) {
  base::MutexLock lock(&run_.mutex);
  // The run ends without weights that saw these rows.
  run_.accounting.BookGivenUp(batch.fates);
  run_.arrived_env_steps -= batch.assembly->batch.env_steps;
  run_.FailLocked(status);
  return StepOutcome{StepOutcome::Kind::kFailed, "", std::move(status), state_is_whole};
}

ProgressRecord UpdateCycle::Describe(Batch* batch, std::vector<PolicyUpdateReport> reports) {
  ProgressRecord record;
  record.assemble_s = absl::ToDoubleSeconds(batch->update_begin - batch->assemble_begin);
  record.update_s = absl::ToDoubleSeconds(batch->update_end - batch->update_begin);
  record.wait_s = std::exchange(wait_s_, 0);
  record.policy_lag = batch->assembly->mean_lag;
  aging_.Add(*batch->assembly, *policies_.table());
  record.losing_rows = aging_.Losing();
  episodes_.Add(std::move(batch->finished));
  episodes_.Tell(policies_.table(), &record);
  record.losses = MeanMetrics(reports);
  record.train_s = JoinTrainTimes(reports, config_.options.train_time_aggregator);
  if (record.table->num_slots() > 1) {
    record.agent_losses = AgentLosses(batch->assembly->batch, reports, config_.schema.agent_ids);
  }
  for (std::pair<std::string, double>& metric : deps_.trainer->Metrics()) record.losses.push_back(std::move(metric));
  for (const PolicyUpdateReport& report : reports) {
    record.minibatch_steps += report.minibatch_steps;
    record.skipped_steps += report.skipped_steps;
  }
  record.policies = std::make_shared<const std::vector<PolicyUpdateReport>>(std::move(reports));
  return record;
}

void UpdateCycle::Book(const Batch& batch, int64_t num_finished, ProgressRecord* record) {
  const TrainBatch& rows = batch.assembly->batch;
  clocks_[batch.feed].Published(batch.version + 1);
  const std::optional<std::string> by_returns = episodes_.StopByTraining(*record->table);
  Outbox outbox;
  {
    base::MutexLock lock(&run_.mutex);
    run_.accounting.BookBatch(batch.fates);
    const int64_t done = run_.ingest->Done();
    const int64_t env_steps = run_.plan->EnvStepsBelow(done) - run_.trained.env_steps;
    run_.arrived_env_steps -= env_steps;
    run_.trained.env_steps += env_steps;
    run_.trained.agent_steps += rows.agent_steps;
    ++run_.trained.updates;
    run_.version = batch.version + 1;
    run_.episodes += num_finished;
    const absl::Duration now = run_.clock.SteadyNow();
    std::optional<std::string> stop = StopByCounts(config_.stop, run_.trained);
    if (!stop.has_value()) {
      stop = by_returns;
      if (StopByTimeOrReturn(config_.stop, run_.WallClockLocked(), NoScore).has_value()) run_.plan->Close();
    }
    if (stop.has_value()) {
      run_.StopLocked(*std::move(stop));
    } else if (aging_.end().has_value()) {
      run_.GiveUpLocked(StepOutcome::Kind::kNothingTrained, *aging_.end());
    }
    // Sampling goes on before anything is reported: it is what the workers wait for.
    run_.plan->SetPublished(done, run_.version);
    outbox = run_.ScheduleLocked();
    record->env_steps = run_.trained.env_steps;
    record->agent_steps = run_.trained.agent_steps;
    record->updates = run_.trained.updates;
    record->episodes = run_.episodes;
    record->wall_clock_s = absl::ToDoubleSeconds(run_.WallClockLocked());
    const double elapsed_s = absl::ToDoubleSeconds(now - run_.times.rate_since.value_or(now));
    record->env_steps_per_s = elapsed_s > 0 ? static_cast<double>(env_steps) / elapsed_s : 0;
    run_.times.rate_since = now;
    record->workers = run_.registry.num_connected();
    record->env_counters = run_.registry.env_counters();
    record->expired_grants = run_.plan->expired_grants();
    record->rows = run_.accounting.totals();
    record->waited_ages = run_.last.waited_ages;
    record->waited_ages.Add(batch.assembly->waited_ages);
    record->policy_rows = run_.PolicyRowsLocked();
    record->groups = std::make_shared<const std::vector<GroupRows>>(run_.accounting.Books().groups);
    run_.last = *record;
  }
  outbox.Send();
}

void UpdateCycle::ReportEvaluation(const EpisodeStats& evaluation) {
  const std::optional<std::string> stop = episodes_.ReportEvaluation(evaluation, *policies_.table());
  if (!stop.has_value()) return;
  base::MutexLock lock(&run_.mutex);
  run_.StopLocked(*stop);
}

absl::StatusOr<LearnerSnapshot> UpdateCycle::SnapshotState() {
  LearnerSnapshot snapshot;
  LearnerState& state = snapshot.state;
  // Policies first: between Steps nothing changes them, and the counters below belong to the same moment.
  TROUPE_RETURN_IF_ERROR(policies_.Save(&state));
  snapshot.is_best = episodes_.Save(*policies_.table(), &state);

  base::MutexLock lock(&run_.mutex);
  state.iteration = run_.trained.updates;
  if (run_.feeds.size() > 1 || !run_.feeds[0].name.empty()) {
    state.iterations = run_.ingest->Done();
    state.version = run_.version;
    for (size_t feed = 0; feed < clocks_.size(); ++feed) {
      state.feed_updates[run_.feeds[feed].name] = clocks_[feed].updates();
    }
  }
  state.env_steps = run_.trained.env_steps;
  state.agent_steps = run_.trained.agent_steps;
  state.episodes = run_.episodes;
  state.wall_clock_s = absl::ToDoubleSeconds(run_.WallClockLocked());
  state.learner_epoch = config_.learner_epoch;
  state.rows = run_.accounting.totals();
  state.lanes = run_.plan->Lanes();
  state.lanes.insert(state.lanes.end(), retired_lanes_.begin(), retired_lanes_.end());
  state.watermarks = run_.registry.Watermarks();
  return snapshot;
}

}  // namespace troupe::learner
