#include "lib/rpc/worker/rollout_reactor.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/permits.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"

namespace troupe::rpc {
namespace {

/// A registration that is over is no fault of the worker's bytes: ABORTED tells it to register again.
absl::Status Superseded(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) ? absl::AbortedError(status.message()) : status;
}

/// What the worker permits; nothing where it does not say.
absl::StatusOr<std::vector<uint64_t>> PermitsOf(const v1::Hello& hello) {
  if (hello.permits_size() > static_cast<int>(config::Permits::kMaxStatements)) {
    return absl::InvalidArgumentError(absl::StrCat("Hello has ", hello.permits_size(), " permits, expected at most ",
                                                   config::Permits::kMaxStatements));
  }
  std::vector<uint64_t> permits(hello.permits().begin(), hello.permits().end());
  const bool says = hello.permits_digest() != 0 || !permits.empty();
  if (says &&
      (!std::is_sorted(permits.begin(), permits.end()) || config::CombineDigests(permits) != hello.permits_digest())) {
    return absl::InvalidArgumentError(absl::StrCat("Hello has permits_digest ", absl::Hex(hello.permits_digest()),
                                                   ", expected that of its ", permits.size(),
                                                   " permits in ascending order"));
  }
  return permits;
}

}  // namespace

RolloutReactor* RolloutReactor::Start(const RolloutContext* context, base::Caller caller, std::string connection) {
  // The constructor is private, so make_shared cannot reach it.
  std::shared_ptr<RolloutReactor> reactor(new RolloutReactor(context, std::move(caller), std::move(connection)));
  reactor->Begin(reactor);
  return reactor.get();
}

void RolloutReactor::SendGrant(const sample::Grant& grant) {
  v1::LearnerMessage message;
  *message.mutable_grant() = ToProto(grant);
  const int64_t revision = grant.policies == nullptr ? 0 : grant.policies->revision();
  bool table_due = false;
  {
    base::MutexLock lock(&mutex_);
    table_due = revision > sent_revision_;
  }
  TableEncoder::Messages table;
  if (table_due) {
    absl::StatusOr<TableEncoder::Messages> encoded = context_->tables->Encode(grant.policies);
    if (!encoded.ok()) return End(encoded.status());
    table = *std::move(encoded);
  }
  grpc::ByteBuffer bytes = Serialize(message);
  {
    base::MutexLock lock(&mutex_);
    // Two grants may be sent at once: a table never follows a newer one.
    if (table != nullptr && revision > sent_revision_) {
      sent_revision_ = revision;
      for (const grpc::ByteBuffer& chunk : *table) QueueLocked(chunk);
    }
    QueueLocked(std::move(bytes));
  }
  Pump();
}

void RolloutReactor::SendGrantOver(sample::GrantId grant) {
  v1::LearnerMessage message;
  message.mutable_grant_over()->set_grant_id(grant.value());
  Send(message);
}

void RolloutReactor::SendAck(const sample::FragmentAck& ack) {
  v1::LearnerMessage message;
  *message.mutable_ack() = ToProto(ack);
  Send(message);
}

void RolloutReactor::SendDrain(const std::string& reason) {
  v1::LearnerMessage message;
  message.mutable_drain()->set_reason(reason);
  Send(message);
}

void RolloutReactor::Send(const v1::LearnerMessage& message, bool opening) {
  grpc::ByteBuffer bytes = Serialize(message);
  {
    base::MutexLock lock(&mutex_);
    if (opening && !EndingLocked()) {
      outbox_.PushFirst(std::move(bytes));
      opened_ = true;
    } else {
      QueueLocked(std::move(bytes));
    }
  }
  Pump();
}

void RolloutReactor::QueueLocked(grpc::ByteBuffer bytes) {
  if (EndingLocked() || outbox_.Push(std::move(bytes))) return;
  RequestEndLocked(absl::ResourceExhaustedError("the worker does not read what it is sent"));
  outbox_.Clear();
}

std::optional<StreamPump::Message> RolloutReactor::NextLocked() {
  if (!opened_ || outbox_.empty()) return std::nullopt;
  return Message{outbox_.Take()};
}

void RolloutReactor::CheckProgress(absl::Duration now) {
  {
    base::MutexLock lock(&mutex_);
    if (joined_ || now - started_at_ < kHandshakeTimeout) return;
  }
  End(absl::DeadlineExceededError(absl::StrCat("no Hello within ", absl::FormatDuration(kHandshakeTimeout))));
}

void RolloutReactor::OnReadsOver() {
  // Half-closed after a Goodbye, or gone.
  End(said_goodbye_ ? absl::OkStatus() : absl::CancelledError("the worker closed the stream"));
}

absl::Status RolloutReactor::HandleMessage(const grpc::ByteBuffer& bytes) {
  TROUPE_ASSIGN_OR_RETURN(const SliceList list, SliceList::From(bytes));
  TROUPE_ASSIGN_OR_RETURN(const SplitMessage split, SplitPayload(list, kMaxFieldsBytes));
  bool joined;
  learner::WorkerTicket ticket;
  {
    base::MutexLock lock(&mutex_);
    joined = joined_;
    ticket = ticket_;
  }
  v1::WorkerMessage message;
  const ParsedLimit& limit = joined ? kWorkerMessageLimit : kHelloLimit;
  if (const absl::Status read = ParseBounded(split.fields, limit, &message); !read.ok()) {
    return absl::InvalidArgumentError(read.message());
  }
  if (message.has_hello()) {
    if (joined) return absl::InvalidArgumentError("a second Hello on one stream");
    return HandleHello(message.hello());
  }
  if (!joined) return absl::InvalidArgumentError("the first message of a stream must be Hello");
  switch (message.kind_case()) {
    case v1::WorkerMessage::kFragment:
      return HandleFragment(message.fragment(), split, list);
    case v1::WorkerMessage::kHeartbeat: {
      std::optional<sample::EnvReport> report;
      if (message.heartbeat().has_env_counters()) {
        TROUPE_ASSIGN_OR_RETURN(report, FromProto(message.heartbeat()));
      }
      return Superseded(context_->endpoint->Heartbeat(ticket, report));
    }
    case v1::WorkerMessage::kGoodbye:
      said_goodbye_ = true;
      goodbye_ = base::LogSafe(message.goodbye().reason(), kMaxReasonBytes);
      return absl::OkStatus();
    default:
      // A newer worker may send kinds that this learner does not know.
      return absl::OkStatus();
  }
}

absl::Status RolloutReactor::Refuse(v1::RefusalReason reason, const absl::Status& why) {
  v1::LearnerMessage message;
  message.mutable_refusal()->set_reason(reason);
  message.mutable_refusal()->set_message(std::string(why.message()));
  Send(message, /*opening=*/true);
  return why;
}

absl::Status RolloutReactor::HandleHello(const v1::Hello& hello) {
  const absl::Status protocol = CheckProtocol(hello.protocol());
  if (!protocol.ok()) return Refuse(v1::REFUSAL_REASON_PROTOCOL, protocol);
  if (hello.spec_hash() != 0 && hello.spec_hash() != context_->spec_hash) {
    return Refuse(v1::REFUSAL_REASON_SPEC_HASH,
                  absl::FailedPreconditionError(
                      absl::StrCat("the worker was built from spec ", absl::Hex(hello.spec_hash()),
                                   ", but this run has ", absl::Hex(context_->spec_hash), ": start the worker again")));
  }
  if (hello.incarnation() == 0 || hello.first_unacked() == 0 || hello.next_sequence() < hello.first_unacked() ||
      hello.name().size() > kMaxWorkerNameBytes) {
    return Refuse(v1::REFUSAL_REASON_BAD_HELLO,
                  absl::InvalidArgumentError(absl::StrCat(
                      "Hello has incarnation ", hello.incarnation(), ", first_unacked ", hello.first_unacked(),
                      ", next_sequence ", hello.next_sequence(), " and a name of ", hello.name().size(),
                      " bytes, expected >= 1, >= 1, >= first_unacked and <= ", kMaxWorkerNameBytes)));
  }
  absl::StatusOr<std::vector<uint64_t>> permits = PermitsOf(hello);
  if (!permits.ok()) return Refuse(v1::REFUSAL_REASON_BAD_HELLO, permits.status());
  if (hello.worker_id() == 0 && hello.first_unacked() != 1) {
    return Refuse(
        v1::REFUSAL_REASON_BAD_HELLO,
        absl::InvalidArgumentError(absl::StrCat("Hello has worker_id 0 and first_unacked ", hello.first_unacked(),
                                                ", expected first_unacked 1 of a ", "worker that never had an id")));
  }
  if (hello.next_sequence() - hello.first_unacked() > learner::SequenceTracker::kMaxGap) {
    return Refuse(v1::REFUSAL_REASON_BAD_HELLO,
                  absl::InvalidArgumentError(absl::StrCat(
                      "Hello has first_unacked ", hello.first_unacked(), " and next_sequence ", hello.next_sequence(),
                      ", expected at most ", learner::SequenceTracker::kMaxGap, " fragments without an ack")));
  }
  LearnerEndpoint::JoinRequest request;
  request.worker_id = sample::WorkerId(hello.worker_id());
  request.incarnation = hello.incarnation();
  request.next_sequence = hello.next_sequence();
  request.first_unacked = hello.first_unacked();
  request.name = base::LogSafe(hello.name(), kMaxWorkerNameBytes);
  request.permits = *std::move(permits);
  request.caller = caller();
  const absl::StatusOr<LearnerEndpoint::JoinReply> joined = context_->endpoint->Join(request, shared_from_this());
  if (!joined.ok()) {
    const bool draining = absl::IsUnavailable(joined.status());
    return Refuse(draining ? v1::REFUSAL_REASON_DRAINING : v1::REFUSAL_REASON_REJECTED, joined.status());
  }
  {
    base::MutexLock lock(&mutex_);
    joined_ = true;
    ticket_ = joined->ticket;
  }
  context_->on_joined(joined->ticket.worker_id, shared_from_this());
  context_->on_worker(connection_);

  v1::LearnerMessage message;
  v1::Welcome* welcome = message.mutable_welcome();
  *welcome->mutable_protocol() = OurProtocol();
  welcome->set_worker_id(joined->ticket.worker_id.value());
  welcome->set_worker_epoch(joined->ticket.worker_epoch.value());
  welcome->set_learner_epoch(joined->ticket.learner_epoch);
  welcome->set_watermark(joined->watermark);
  welcome->set_spec_hash(context_->spec_hash);
  welcome->set_config_yaml(context_->config_yaml);
  welcome->set_credit_bytes(context_->credit_bytes);
  welcome->set_heartbeat_interval_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(kHeartbeatInterval)));
  Send(message, /*opening=*/true);
  return absl::OkStatus();
}

absl::Status RolloutReactor::HandleFragment(const v1::Fragment& header, const SplitMessage& split,
                                            const SliceList& list) {
  learner::WorkerTicket ticket;
  {
    base::MutexLock lock(&mutex_);
    ticket = ticket_;
  }
  if (header.sequence() == 0) return absl::InvalidArgumentError("a Fragment without a sequence number");
  absl::StatusOr<sample::MultiAgentBatchPtr> batch = context_->decoder->Decode(header, split, list);
  if (!batch.ok()) {
    return Superseded(context_->endpoint->SubmitUndecodable(ticket, header.sequence(), batch.status(), *this));
  }
  return Superseded(context_->endpoint->Submit(ticket, header.sequence(), *std::move(batch), *this));
}

void RolloutReactor::OnOver() {
  bool joined;
  learner::WorkerTicket ticket;
  std::string why;
  {
    base::MutexLock lock(&mutex_);
    joined = joined_;
    ticket = ticket_;
    why = said_goodbye_ ? goodbye_ : std::string(EndStatusLocked().message());
    outbox_.Clear();
  }
  if (joined) context_->endpoint->Leave(ticket, why);
}

}  // namespace troupe::rpc
