#include "lib/learner/run_state.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/line_quota.h"
#include "lib/base/log.h"
#include "lib/learner/grant_scheduler.h"
#include "lib/learner/iteration_source.h"
#include "lib/learner/learn_groups.h"
#include "lib/policy/policy_entry.h"

namespace troupe::learner {

std::vector<FeedSpec> AllFeeds(const LearnerConfig& config, const Trainer& trainer, const policy::PolicyTable& table) {
  std::vector<FeedSpec> feeds = trainer.Feeds();
  std::set<policy::GroupId> fed;
  for (const FeedSpec& feed : feeds) fed.insert(feed.groups.begin(), feed.groups.end());
  const std::vector<policy::LearnGroup> groups = GroupsOf(trainer, table);
  const bool all_fed = std::all_of(groups.begin(), groups.end(),
                                   [&fed](const policy::LearnGroup& group) { return fed.count(group.id) > 0; });
  if (!feeds.empty() && all_fed) return feeds;
  feeds.insert(feeds.begin(),
               FeedSpec{.name = "",
                        .max_ahead = AheadFor(config.options.max_policy_lag),
                        .make_source = [](int64_t iteration) { return std::make_unique<IterationSource>(iteration); }});
  return feeds;
}

int64_t MaxAhead(const std::vector<FeedSpec>& feeds) {
  int64_t ahead = feeds.front().max_ahead;
  for (const FeedSpec& feed : feeds) ahead = std::min(ahead, feed.max_ahead);
  return ahead;
}

namespace {

std::unique_ptr<SamplingPlan> MakePlan(const LearnerConfig& config, const std::vector<FeedSpec>& feeds,
                                       const LearnerState& start) {
  GrantScheduler::Options options;
  options.num_envs = config.options.num_envs;
  options.train_batch_size = config.options.train_batch_size;
  options.count_steps_by = config.options.count_steps_by;
  options.num_agents = static_cast<int32_t>(config.schema.agent_ids.size());
  options.max_ahead = MaxAhead(feeds);
  options.free_running = options.max_ahead >= kFreeRunning;
  options.complete_episodes = config.options.complete_episodes;
  options.num_workers = config.options.num_workers;
  options.join_timeout = config.options.join_timeout;
  options.grant_timeout = config.options.grant_timeout;
  options.stop = config.stop;
  // An update may need more than an iteration, or less.
  if (feeds.size() > 1 || !feeds.front().name.empty()) options.stop.updates = 0;
  options.env_steps_before = start.env_steps;
  return std::make_unique<GrantScheduler>(options, config.learner_epoch, start.sampled_iterations(), start.lanes);
}

}  // namespace

void Outbox::Send() const {
  for (const Notice& notice : expired) {
    const ExpiredGrant& over = notice.expired;
    notice.port->SendGrantOver(over.grant);
    if (!base::MayTellOfPeer()) continue;
    TROUPE_WARN(
        "a grant was out for too long, its work is granted to others worker={} grant={} age_s={} limit_s={} "
        "missing_env_steps={} expired_in_a_row={}{}",
        sample::WorkerText(over.worker), over.grant.value(), absl::ToDoubleSeconds(over.age),
        absl::ToDoubleSeconds(over.limit), over.missing_steps, over.misses,
        over.misses < WorkerStandings::kMisses ? "" : ": it gets none while there are others");
  }
  for (const Mail& mail : grants) mail.port->SendGrant(mail.grant);
}

RunState::RunState(const LearnerConfig* config, const LearnerDeps* deps, PolicyViewPtr view)
    : config(*config),
      clock(*deps->clock),
      feeds(AllFeeds(*config, *deps->trainer, *view->table)),
      view(std::move(view)),
      accounting(static_cast<int32_t>(config->schema.policies.size())),
      registry(config->learner_epoch),
      env_health(config->options.max_failed_share) {
  base::MutexLock lock(&mutex);
  BeginAtLocked(LearnerState());
}

void RunState::BeginAtLocked(const LearnerState& start) {
  plan = MakePlan(config, feeds, start);
  plan->SetRevision(view->table->revision());
  std::vector<Feed> sources;
  for (const FeedSpec& feed : feeds) {
    sources.push_back({feed.make_source(start.sampled_iterations()), feed.groups});
  }
  ingest = std::make_unique<Ingest>(config.options.ingest_budget_bytes, plan.get(), &accounting, std::move(sources));
  batches = noted_batches_ = start.iteration;
  version = start.published_version();
}

Outbox RunState::ScheduleLocked() {
  const absl::Duration now = clock.SteadyNow();
  plan->Advance(now);
  // A source may be done with what it never had in a batch.
  if (phase == Phase::kStarted && !updating) plan->SetPublished(ingest->Done(), version);
  if (const int64_t known = batches + ingest->NumReady(); known != noted_batches_) {
    noted_batches_ = known;
    changed.NotifyAll();
  }
  Outbox outbox;
  outbox.let_go = ingest->TakeLetGo();
  std::vector<GrantOrder> orders = plan->Schedule(now);
  if (!orders.empty() && !times.rate_since.has_value()) times.rate_since = now;
  for (const ExpiredGrant& expired : plan->TakeExpired()) {
    outbox.expired.push_back({registry.workers().at(expired.worker.value()).port, expired});
  }
  for (GrantOrder& order : orders) {
    if (config.policies != nullptr && view->table->revision() > 0) order.grant.policies = view->table;
    // Removing a worker from the registry removes it from the plan, so it is there.
    outbox.grants.push_back({registry.workers().at(order.worker.value()).port, std::move(order.grant)});
  }
  return outbox;
}

void RunState::EndIfEnvsFailLocked() {
  if (phase != Phase::kStarted) return;
  std::optional<std::string> why = env_health.End(clock.SteadyNow());
  if (why.has_value()) GiveUpLocked(StepOutcome::Kind::kEnvsFailed, *std::move(why));
}

void RunState::GiveUpLocked(StepOutcome::Kind as, std::string why) {
  if (phase != Phase::kStarted) return;
  phase = Phase::kDraining;
  ending.drained_as = as;
  ending.reason = std::move(why);
  plan->Close();
  changed.NotifyAll();
}

void RunState::FailLocked(absl::Status status) {
  phase = Phase::kFailed;
  ending.reason = std::string(status.message());
  ending.failure = std::move(status);
  plan->Close();
}

void RunState::StopLocked(std::string why) {
  if (phase != Phase::kMade && phase != Phase::kStarted && phase != Phase::kDraining) return;
  phase = Phase::kStopped;
  ending.reason = std::move(why);
  plan->Close();
}

absl::Duration RunState::WallClockLocked() const {
  const absl::Duration earlier = absl::Seconds(times.earlier_wall_clock_s);
  return times.sampling_since.has_value() ? earlier + (clock.SteadyNow() - *times.sampling_since) : earlier;
}

PolicyViewPtr RunState::View() const {
  base::MutexLock lock(&mutex);
  return view;
}

std::string RunState::StateWordsLocked() const {
  switch (phase) {
    case Phase::kMade:
      return "waiting for workers";
    case Phase::kStarted:
      return updating ? "updating" : plan->started() ? "sampling" : "waiting for workers";
    case Phase::kDraining:
      return "draining";
    case Phase::kStopped:
      return "stopped";
    case Phase::kFailed:
      return "failed";
  }
  return "";
}

policy::BySlot<RowCounters> RunState::PolicyRowsLocked() const {
  policy::BySlot<RowCounters> rows;
  for (const policy::PolicySlot slot : view->table->entries().ids()) rows.push_back(accounting.of_policy(slot));
  return rows;
}

LearnerStatus RunState::Status() const {
  base::MutexLock lock(&mutex);
  LearnerStatus status;
  status.state = StateWordsLocked();
  status.reason = ending.reason;
  status.learner_epoch = config.learner_epoch;
  status.progress = last;
  status.books = accounting.Books();
  status.progress.rows = status.books.totals;
  status.progress.groups = std::make_shared<const std::vector<GroupRows>>(status.books.groups);
  status.progress.workers = registry.num_connected();
  status.progress.env_counters = registry.env_counters();
  status.progress.expired_grants = plan->expired_grants();
  status.progress.wall_clock_s = absl::ToDoubleSeconds(WallClockLocked());
  status.fragments = accounting.fragments();
  status.policy_rows = PolicyRowsLocked();
  const absl::Duration now = clock.SteadyNow();
  for (const auto& [id, worker] : registry.workers()) {
    if (!worker.connected) continue;
    WorkerStatus entry;
    entry.id = worker.id;
    entry.epoch = worker.epoch;
    entry.lanes = plan->num_lanes_of(worker.id);
    entry.outstanding_steps = plan->outstanding_steps_of(worker.id);
    entry.accepted_rows = worker.accepted_rows;
    entry.expired_grants = plan->expired_grants_of(worker.id);
    entry.recent_episodes = worker.recent_episodes;
    if (env_health.beyond(worker.id.value())) entry.gets_no_work = env_health.Words(worker.id.value());
    if (worker.last_version_n >= 0) entry.policy_lag = static_cast<double>(version - worker.last_version_n);
    entry.since_last_seen = now - worker.last_seen;
    status.workers.push_back(entry);
  }
  status.queue_bytes = ingest->held_bytes();
  status.queue_budget_bytes = ingest->budget_bytes();
  return status;
}

}  // namespace troupe::learner
