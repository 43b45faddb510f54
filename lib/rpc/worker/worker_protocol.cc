#include "lib/rpc/worker/worker_protocol.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"

namespace troupe::rpc {
namespace {

/// Whether another try could end differently. Everything else (a lost connection, a learner that restarts or is full)
/// may heal.
bool Permanent(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

WorkerProtocol::WorkerProtocol(WorkerIdentity identity, LearnerPresence::Options presence,
                               ReconnectingLink rollout_link, ReconnectingLink weight_link, absl::Duration now)
    : presence_(std::move(presence), now),
      session_(std::move(identity)),
      rollout_link_(std::move(rollout_link)),
      weight_link_(std::move(weight_link)) {}

void WorkerProtocol::End(const absl::Status& error) {
  TROUPE_CHECK(!error.ok());
  if (!ended()) end_status_ = error;
}

WorkerProtocol::Due WorkerProtocol::TakeDue(absl::Duration now,
                                            const std::function<std::shared_ptr<ClientLink>()>& make_link) {
  Due due;
  const auto in = [&due](absl::Duration wait) {
    if (wait > absl::ZeroDuration()) due.next = std::min(due.next, wait);
    return wait <= absl::ZeroDuration();
  };
  due.away = presence_.TakeAway(now);
  in(presence_.UntilAway(now));
  if (presence_.TakeBack()) due.there = session_.welcome().learner_epoch;
  if (!rollout_link_.open()) {
    if (in(rollout_link_.UntilTry(now))) {
      session_.BeginStream();
      due.rollout = rollout_link_.Open(make_link(), std::min(now + kHandshakeTimeout, presence_.gone_at()));
    }
  } else if (!session_.joined()) {
    if (in(rollout_link_.UntilGivenUp(now))) due.cancel = rollout_link_.GiveUp();
  } else {
    if (session_.MaybeBeat(now)) due.kick = rollout_link_.link();
    in(session_.UntilBeat(now));
  }
  // Only a registered worker subscribes: a learner that refuses it would refuse this stream, too.
  if (weights_.has_policies() && !weight_link_.open() && session_.joined() && in(weight_link_.UntilTry(now))) {
    weights_.BeginStream();
    due.weights = weight_link_.Open(make_link());
  }
  return due;
}

std::optional<LinkOwner::Outgoing> WorkerProtocol::NextMessage(const ClientLink* link, absl::Duration now) {
  if (rollout_link_.Is(link)) return session_.NextMessage(now);
  if (weight_link_.Is(link)) return weights_.NextRequest(session_.welcome().worker_id, session_.spec_hash());
  return std::nullopt;
}

absl::Status WorkerProtocol::CheckSpec(const v1::Welcome& welcome) const {
  // The learner compares them, too; but it may be another one by now, that says what it likes.
  if (session_.spec_hash() == 0 || welcome.spec_hash() == session_.spec_hash()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the learner that answers now has spec ",
                                                    absl::Hex(welcome.spec_hash()), ", but this worker was built from ",
                                                    absl::Hex(session_.spec_hash()), ": start the worker again"));
}

WorkerProtocol::Heard WorkerProtocol::OnMessage(const v1::LearnerMessage& message, absl::Duration now) {
  Heard heard;
  absl::Status valid;
  switch (message.kind_case()) {
    case v1::LearnerMessage::kWelcome:
      return OnWelcome(message.welcome(), now);
    case v1::LearnerMessage::kGrant:
      valid = OnGrant(message.grant());
      break;
    case v1::LearnerMessage::kGrantOver:
      heard.grants = session_.grants().OnOver(sample::GrantId(message.grant_over().grant_id()));
      break;
    case v1::LearnerMessage::kAck: {
      absl::StatusOr<Heard> acked = OnAck(message.ack());
      if (acked.ok()) return *std::move(acked);
      valid = acked.status();
      break;
    }
    case v1::LearnerMessage::kDrain:
      run_ended_ = true;
      heard.grants = session_.grants().Close(base::LogSafe(message.drain().reason()));
      break;
    case v1::LearnerMessage::kRefusal:
      heard.grants = OnRefusal(message.refusal());
      break;
    default:
      break;  // a newer learner may send kinds that this worker does not know
  }
  if (!valid.ok()) End(valid);
  return heard;
}

WorkerProtocol::Heard WorkerProtocol::OnWelcome(const v1::Welcome& welcome, absl::Duration now) {
  Heard heard;
  if (welcome.learner_epoch() != session_.welcome().learner_epoch) heard.weights = weights_.OnNewLearnerEpoch();
  RolloutSession::Dropped dropped = session_.OnWelcome(welcome, now);
  heard.fragments = std::move(dropped.fragments);
  heard.grants = std::move(dropped.grants);
  presence_.OnThere();
  rollout_link_.Succeeded();
  weight_link_.Succeeded();
  return heard;
}

absl::Status WorkerProtocol::OnGrant(const v1::Grant& message) {
  TROUPE_ASSIGN_OR_RETURN(sample::Grant grant, FromProto(message));
  grant.policies = weights_.table();
  return session_.grants().Add(std::move(grant));
}

absl::StatusOr<WorkerProtocol::Heard> WorkerProtocol::OnAck(const v1::Ack& message) {
  TROUPE_ASSIGN_OR_RETURN(const sample::FragmentAck ack, FromProto(message));
  Heard heard;
  const bool invalid_before = session_.fragments().acks().invalid > 0;
  heard.fragments = session_.fragments().OnAck(ack);
  heard.first_invalid = !invalid_before && session_.fragments().acks().invalid > 0;
  heard.first_accepted = session_.TakeFirstAccepted();
  return heard;
}

GrantQueue::Dropped WorkerProtocol::OnRefusal(const v1::Refusal& refusal) {
  const std::string words = base::LogSafe(refusal.message(), 1024);
  presence_.NoteError(absl::FailedPreconditionError(words));
  if (refusal.reason() != v1::REFUSAL_REASON_DRAINING) return {};
  run_ended_ = true;
  End(absl::CancelledError(words));
  return session_.grants().Close(words);
}

std::shared_ptr<ClientLink> WorkerProtocol::OnLinkDone(const ClientLink* link, const absl::Status& status,
                                                       absl::Duration now) {
  // What this end cancelled (a try that took too long) says less than what came before.
  if (!status.ok() && !absl::IsCancelled(status)) presence_.NoteError(status);
  const bool is_rollout = rollout_link_.Is(link);
  std::shared_ptr<ClientLink> done = (is_rollout ? rollout_link_ : weight_link_).Close(now);
  if (is_rollout) {
    presence_.OnAway(now);
    session_.EndStream();
    if (session_.said_goodbye()) End(absl::CancelledError("drained"));
  }
  if (Permanent(status)) End(status);
  if (is_rollout && now >= presence_.gone_at()) End(presence_.Unavailable("is gone"));
  return done;
}

absl::StatusOr<std::optional<rollout::CurrentWeights>> WorkerProtocol::FindWeights(
    policy::PolicySlot policy, policy::WeightVersion min_version) const {
  if (ended()) return end_status_;
  TROUPE_RETURN_IF_ERROR(session_.grants().CheckTaken());
  TROUPE_ASSIGN_OR_RETURN(std::optional<rollout::CurrentWeights> found, weights_.Find(policy, min_version));
  // A grant that was not begun before a drain need not be.
  if (!found.has_value() && session_.grants().closed()) return absl::CancelledError(session_.grants().close_reason());
  return found;
}

}  // namespace troupe::rpc
