#include "lib/learner/worker_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/line_quota.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/learner/stale_rows.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

using sample::FragmentAck;
using sample::WorkerId;

namespace {

/// No worker lives long enough to send more.
constexpr uint64_t kMaxSequence = uint64_t{1} << 48;

}  // namespace

absl::StatusOr<WorkerTicket> WorkerDesk::Join(const WorkerHello& hello, std::shared_ptr<WorkerPort> port) {
  TROUPE_CHECK(port != nullptr);
  if (hello.next_sequence > kMaxSequence) {
    return absl::InvalidArgumentError(
        absl::StrCat("next_sequence is ", hello.next_sequence, ", expected at most ", kMaxSequence));
  }
  WorkerRegistry::Joined joined;
  Outbox outbox;
  {
    base::MutexLock lock(&run_.mutex);
    if (!run_.GoesOnLocked()) {
      return absl::CancelledError(absl::StrCat("the run takes no workers any more: ", run_.ending.reason));
    }
    const absl::Duration now = run_.clock.SteadyNow();
    TROUPE_RETURN_IF_ERROR(run_.registry.Check(hello));
    joined = run_.registry.Join(hello, std::move(port), now);
    if (joined.was_connected) run_.plan->RemoveWorker(joined.ticket.worker_id);
    if (joined.gap > 0) run_.accounting.BookGap(joined.gap, joined.restarted);
    WorkerRegistry::Worker& worker = **run_.registry.Find(joined.ticket);
    // Its lanes are fresh: of episodes that it had before no rows are accepted.
    worker.oldest_revision = run_.view->table->revision();
    run_.tracked.Leave(&worker.tracked);  // one that comes back before it was missed
    run_.plan->AddWorker(joined.ticket.worker_id, now);
    if (run_.env_health.Join(joined.ticket.worker_id.value(), hello.name, hello.own)) {
      run_.plan->ExcludeWorker(joined.ticket.worker_id);
    }
    outbox = run_.ScheduleLocked();
  }
  outbox.Send();
  return joined.ticket;
}

void WorkerDesk::Leave(const WorkerTicket& ticket) {
  std::shared_ptr<WorkerPort> port;
  Outbox outbox;
  {
    base::MutexLock lock(&run_.mutex);
    absl::StatusOr<WorkerRegistry::Worker*> worker = run_.registry.Find(ticket);
    if (!worker.ok()) return;
    port = LeaveLocked(**worker);
    outbox = run_.ScheduleLocked();
  }
  outbox.Send();
}

std::shared_ptr<WorkerPort> WorkerDesk::LeaveLocked(WorkerRegistry::Worker& worker) {
  run_.plan->RemoveWorker(worker.id);
  run_.env_health.Leave(worker.id.value());
  // Who leaves as the run ends was in it to its end.
  if (run_.GoesOnLocked()) run_.tracked.Leave(&worker.tracked);
  return run_.registry.Leave(worker);
}

CheckedFragment WorkerDesk::CheckBy(const PolicyView& view, const sample::MultiAgentBatchPtr& batch) const {
  if (run_.config.policies == nullptr) {
    return CheckFragment(batch, view.schema, run_.config.limits);
  }
  // As long as nothing has changed, there is nothing to leave out.
  FreshPart fresh = view.table->revision() == 0
                        ? FreshPart{batch, {}, {}}
                        : LeaveOutStale(batch, *view.table, run_.config.learner_epoch, run_.config.limits);
  CheckedFragment checked = CheckFragment(std::move(fresh.batch), view.schema, run_.config.limits);
  checked.status.Update(CheckRevisions(*batch, view.table->revision()));
  checked.stale_rows = std::move(fresh.stale_rows);
  checked.stale_reason = std::move(fresh.reason);
  return checked;
}

absl::StatusOr<FragmentAck> WorkerDesk::Submit(const WorkerTicket& ticket, uint64_t sequence,
                                               sample::MultiAgentBatchPtr batch) {
  TROUPE_CHECK(batch != nullptr);
  // A refused fragment is destroyed with this copy: after the lock.
  const sample::MultiAgentBatchPtr kept = batch;
  PolicyViewPtr view = run_.View();
  Outbox outbox;
  absl::StatusOr<FragmentAck> ack = FragmentAck{};
  while (true) {
    CheckedFragment checked = CheckBy(*view, batch);
    int64_t rows = 0;
    for (const PolicyRowCount& count : checked.rows) rows += count.rows;

    base::MutexLock lock(&run_.mutex);
    if (view != run_.view) {
      view = run_.view;  // the policies have changed meanwhile: it is judged by what they are now
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(WorkerRegistry::Worker* const worker, run_.registry.Find(ticket));
    if (CheckRevisions(*batch, view->table->revision()).ok()) {
      worker->oldest_revision = std::max(worker->oldest_revision, batch->oldest_revision);
    }
    worker->last_seen = run_.clock.SteadyNow();
    checked.worker = ticket.worker_id;
    checked.own = worker->own && !run_.config.strangers_play;
    ack = run_.ingest->Offer(ticket.worker_id, worker->sequences, sequence, std::move(checked));
    if (!ack.ok()) {
      if (!run_.ingest->stuck().ok()) run_.changed.NotifyAll();
      return ack;
    }
    if (ack->disposition == sample::Disposition::kAccepted) {
      worker->accepted_rows += rows;
      for (const sample::PolicyRows& policy_rows : kept->policies) {
        worker->last_version_n = std::max(worker->last_version_n, policy_rows.version.n);
      }
      run_.arrived_env_steps += kept->num_env_steps;
      if (!run_.times.sampling_since.has_value()) run_.times.sampling_since = worker->last_seen;
      run_.env_health.Delivered(ticket.worker_id.value(), static_cast<int64_t>(kept->finished.size()));
    }
    outbox = run_.ScheduleLocked();
    break;
  }
  outbox.Send();
  return ack;
}

absl::StatusOr<FragmentAck> WorkerDesk::SubmitUndecodable(const WorkerTicket& ticket, uint64_t sequence,
                                                          const std::string& reason) {
  Outbox outbox;
  absl::StatusOr<FragmentAck> ack = FragmentAck{};
  {
    base::MutexLock lock(&run_.mutex);
    TROUPE_ASSIGN_OR_RETURN(WorkerRegistry::Worker* const worker, run_.registry.Find(ticket));
    worker->last_seen = run_.clock.SteadyNow();
    ack = run_.ingest->OfferUndecodable(ticket.worker_id, worker->sequences, sequence, reason);
    outbox = run_.ScheduleLocked();
  }
  outbox.Send();
  return ack;
}

absl::Status WorkerDesk::Heartbeat(const WorkerTicket& ticket, const std::optional<sample::EnvReport>& report) {
  std::vector<std::string> lines;
  Outbox outbox;
  {
    base::MutexLock lock(&run_.mutex);
    TROUPE_ASSIGN_OR_RETURN(WorkerRegistry::Worker* const worker, run_.registry.Find(ticket));
    worker->last_seen = run_.clock.SteadyNow();
    if (!report.has_value()) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(lines, ReportLocked(*worker, *report));
    if (!lines.empty()) outbox = run_.ScheduleLocked();  // the work of a worker that gets no more
  }
  outbox.Send();
  for (const std::string& line : lines) {
    if (base::MayTellOfPeer()) TROUPE_WARN("{}", line);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> WorkerDesk::ReportLocked(WorkerRegistry::Worker& worker,
                                                                  const sample::EnvReport& report) {
  TROUPE_RETURN_IF_ERROR(run_.registry.Count(worker, report.counters, worker.last_seen));
  worker.recent_episodes = report.recent;
  const EnvHealth::News news = run_.env_health.Report(worker.id.value(), report, worker.last_seen);
  std::vector<std::string> lines;
  for (const sample::EnvIncident& incident : news.first_of_their_kind) {
    const bool failed = incident.what == sample::EnvIncident::What::kFailure;
    lines.push_back(absl::StrCat(
        failed ? "environment failed" : "observation outside its space", " worker=", sample::WorkerText(worker.id),
        " name=", run_.env_health.name(worker.id.value()), ", more of this kind are only counted: ",
        base::LogSafeLines(incident.text, sample::EnvIncident::kMaxTextBytes)));
  }
  if (run_.config.episode_callbacks && run_.tracked.Report(report, worker.counted_before, &worker.tracked)) {
    lines.push_back(absl::StrCat("callbacks of episodes are off worker=", sample::WorkerText(worker.id),
                                 " name=", run_.env_health.name(worker.id.value()), ": ",
                                 base::LogSafe(report.callbacks_off, sample::EnvReport::kMaxCallbacksOffBytes)));
  }
  if (news.beyond) {
    run_.plan->ExcludeWorker(worker.id);
    lines.push_back(absl::StrCat("too many episodes fail (env.max_failed_share), a worker gets no more work: ",
                                 run_.env_health.Words(worker.id.value())));
  }
  run_.EndIfEnvsFailLocked();
  return lines;
}

void WorkerDesk::Tick() {
  std::vector<std::shared_ptr<WorkerPort>> ports;
  std::vector<WorkerId> silent;
  Outbox outbox;
  {
    base::MutexLock lock(&run_.mutex);
    const absl::Duration now = run_.clock.SteadyNow();
    for (WorkerRegistry::Worker* worker : run_.registry.SilentSince(now - run_.config.options.worker_timeout)) {
      silent.push_back(worker->id);
      ports.push_back(LeaveLocked(*worker));
    }
    outbox = run_.ScheduleLocked();
  }
  outbox.Send();
  for (const WorkerId id : silent) {
    if (!base::MayTellOfPeer()) continue;
    TROUPE_WARN("worker gave no sign of life for {} s, its work is granted again id={}",
                absl::ToDoubleSeconds(run_.config.options.worker_timeout), sample::WorkerText(id));
  }
}

void WorkerDesk::RequestDrain(const std::string& reason) {
  std::vector<std::shared_ptr<WorkerPort>> ports;
  {
    base::MutexLock lock(&run_.mutex);
    run_.plan->Close();
    if (run_.GoesOnLocked()) {
      run_.phase = RunState::Phase::kDraining;
      run_.ending.reason = reason;
    }
    run_.changed.NotifyAll();
    if (run_.ending.drain_sent) return;
    run_.ending.drain_sent = true;
    for (const auto& [id, worker] : run_.registry.workers()) {
      if (worker.connected) ports.push_back(worker.port);
    }
  }
  for (const std::shared_ptr<WorkerPort>& port : ports) port->SendDrain(reason);
}

}  // namespace troupe::learner
