#include "lib/rpc/learner_binding.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/line_quota.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/convert.h"
#include "lib/rpc/limits.h"

namespace troupe::rpc {
namespace {

absl::Status Acknowledge(const absl::StatusOr<sample::FragmentAck>& ack, learner::WorkerPort& port) {
  if (!ack.ok()) return ack.status();
  port.SendAck(*ack);
  return absl::OkStatus();
}

void Fill(const learner::RowCounters& rows, v1::RowCounters* out) {
  out->set_received(rows.received);
  out->set_accepted(rows.accepted);
  out->set_duplicate(rows.duplicate);
  out->set_stale(rows.stale);
  out->set_invalid(rows.invalid);
  out->set_trained(rows.trained);
  out->set_queued(rows.queued);
  out->set_dropped(rows.dropped);
  out->set_rolled_back(rows.rolled_back);
}

void Fill(const learner::FragmentCounters& fragments, v1::FragmentCounters* out) {
  out->set_received(fragments.received);
  out->set_accepted(fragments.accepted);
  out->set_duplicate(fragments.duplicate);
  out->set_stale(fragments.stale);
  out->set_invalid(fragments.invalid);
  out->set_rolled_back(fragments.rolled_back);
  out->set_unknown(fragments.unknown);
}

}  // namespace

absl::StatusOr<LearnerEndpoint::JoinReply> LearnerBinding::Join(const JoinRequest& request,
                                                                std::shared_ptr<learner::WorkerPort> port) {
  learner::WorkerHello hello;
  hello.worker_id = request.worker_id;
  {
    base::MutexLock lock(&mutex_);
    const auto known = known_.find(request.worker_id);
    // Another process under an id that is taken: a worker of its own, whose sequence numbers mean nothing here.
    if (known != known_.end() && known->second.incarnation != request.incarnation) hello.worker_id = sample::WorkerId();
    TROUPE_RETURN_IF_ERROR(CheckRoomLocked(hello.worker_id));
  }
  hello.next_sequence = request.first_unacked;
  hello.name = request.name;
  hello.own = request.caller.kind != base::Caller::Kind::kNetwork;
  absl::StatusOr<learner::WorkerTicket> ticket = learner_->Join(hello, std::move(port));
  if (absl::IsCancelled(ticket.status())) return absl::UnavailableError(ticket.status().message());
  if (!ticket.ok()) return ticket.status();
  {
    base::MutexLock lock(&mutex_);
    known_[ticket->worker_id] = {request.incarnation, request.name, request.permits};
    if (known_.size() > kMaxKnown) known_.erase(known_.begin());
    present_[ticket->worker_id] = ticket->worker_epoch;
  }
  if (base::MayTellOfPeer()) {
    TROUPE_INFO("worker joined id={} epoch={} name={} from=\"{}\" first_unacked={}",
                sample::WorkerText(ticket->worker_id), ticket->worker_epoch.value(), request.name,
                request.caller.ToString(), request.first_unacked);
  }
  return JoinReply{*ticket, request.first_unacked - 1};
}

absl::Status LearnerBinding::CheckRoomLocked(sample::WorkerId id) const {
  if (present_.size() < kMaxWorkers || present_.count(id) > 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(present_.size(), " workers are connected, a learner takes at most ", kMaxWorkers));
}

void LearnerBinding::Leave(const learner::WorkerTicket& ticket, const std::string& why) {
  {
    base::MutexLock lock(&mutex_);
    const auto present = present_.find(ticket.worker_id);
    // Not that of a newer registration, which has fenced this one off.
    if (present != present_.end() && present->second == ticket.worker_epoch) present_.erase(present);
  }
  learner_->Leave(ticket);
  if (base::MayTellOfPeer()) {
    TROUPE_INFO("worker left id={} epoch={} reason=\"{}\"", sample::WorkerText(ticket.worker_id),
                ticket.worker_epoch.value(), why);
  }
}

absl::Status LearnerBinding::Heartbeat(const learner::WorkerTicket& ticket,
                                       const std::optional<sample::EnvReport>& report) {
  return learner_->Heartbeat(ticket, report);
}

absl::Status LearnerBinding::Submit(const learner::WorkerTicket& ticket, uint64_t sequence,
                                    sample::MultiAgentBatchPtr batch, learner::WorkerPort& port) {
  return Acknowledge(learner_->Submit(ticket, sequence, std::move(batch)), port);
}

absl::Status LearnerBinding::SubmitUndecodable(const learner::WorkerTicket& ticket, uint64_t sequence,
                                               const absl::Status& why, learner::WorkerPort& port) {
  return Acknowledge(learner_->SubmitUndecodable(ticket, sequence, std::string(why.message())), port);
}

std::optional<std::string> LearnerBinding::WorkerWithout(uint64_t digest) const {
  const learner::LearnerStatus status = learner_->Status();
  base::MutexLock lock(&mutex_);
  for (const learner::WorkerStatus& worker : status.workers) {
    const auto known = known_.find(worker.id);
    if (known == known_.end()) continue;
    const std::vector<uint64_t>& permits = known->second.permits;
    if (!std::binary_search(permits.begin(), permits.end(), digest)) {
      return absl::StrCat(worker.id.value(), " (", known->second.name, ")");
    }
  }
  return std::nullopt;
}

v1::StatusReply LearnerBinding::Status() const {
  const learner::LearnerStatus status = learner_->Status();
  const double none = std::numeric_limits<double>::quiet_NaN();
  v1::StatusReply reply;
  reply.set_learner_epoch(status.learner_epoch);
  reply.set_updates(status.progress.updates);
  reply.set_env_steps(status.progress.env_steps);
  reply.set_agent_steps(status.progress.agent_steps);
  reply.set_episodes(status.progress.episodes);
  reply.set_wall_clock_s(status.progress.wall_clock_s);
  reply.set_env_steps_per_s(status.progress.env_steps_per_s);
  reply.set_return_sum(status.progress.return_sum.value_or(none));
  reply.set_return_mean(status.progress.return_mean.value_or(none));
  reply.set_rewards_differ(status.progress.rewards_differ);
  reply.set_state(status.state);
  reply.set_state_reason(status.reason);
  reply.set_queue_bytes(status.queue_bytes);
  reply.set_queue_budget_bytes(status.queue_budget_bytes);
  reply.set_expired_grants(status.progress.expired_grants);
  Fill(status.progress.rows, reply.mutable_rows());
  Fill(status.fragments, reply.mutable_fragments());
  *reply.mutable_env_counters() = ToProto(status.progress.env_counters);
  base::MutexLock lock(&mutex_);
  for (const learner::WorkerStatus& worker : status.workers) {
    v1::WorkerStatus* out = reply.add_workers();
    out->set_worker_id(worker.id.value());
    out->set_worker_epoch(worker.epoch.value());
    out->set_num_envs(worker.lanes);
    out->set_outstanding_steps(worker.outstanding_steps);
    out->set_accepted_rows(worker.accepted_rows);
    out->set_policy_lag(worker.policy_lag);
    out->set_expired_grants(worker.expired_grants);
    out->mutable_recent_episodes()->set_ended(worker.recent_episodes.ended);
    out->mutable_recent_episodes()->set_failed(worker.recent_episodes.failed);
    out->set_gets_no_work(!worker.gets_no_work.empty());
    out->set_gets_no_work_reason(worker.gets_no_work);
    out->set_last_seen_s(absl::ToDoubleSeconds(worker.since_last_seen));
    const auto known = known_.find(worker.id);
    if (known != known_.end()) out->set_name(known->second.name);
  }
  return reply;
}

}  // namespace troupe::rpc
