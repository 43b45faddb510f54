#include "lib/rpc/learner/learner_binding.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/line_quota.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/limits.h"

namespace troupe::rpc {
namespace {

absl::Status Acknowledge(const absl::StatusOr<sample::FragmentAck>& ack, learner::WorkerPort& port) {
  if (!ack.ok()) return ack.status();
  port.SendAck(*ack);
  return absl::OkStatus();
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

RunStatus LearnerBinding::Status() const {
  RunStatus status;
  status.learner = learner_->Status();
  base::MutexLock lock(&mutex_);
  for (learner::WorkerStatus& worker : status.learner.workers) {
    ConnectedWorker& told = status.workers.emplace_back();
    const auto known = known_.find(worker.id);
    if (known != known_.end()) told.name = known->second.name;
    told.gets_no_work = !worker.gets_no_work.empty();
    told.worker = std::move(worker);
  }
  status.learner.workers.clear();
  return status;
}

}  // namespace troupe::rpc
