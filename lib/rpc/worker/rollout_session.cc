#include "lib/rpc/worker/rollout_session.h"

#include <algorithm>
#include <cstddef>

#include "lib/config/permits.h"
#include "lib/rpc/transport/convert.h"

namespace troupe::rpc {

void RolloutSession::BeginStream() {
  said_ = Said::kNothing;
  tables_ = std::make_shared<TableAssembler>();
}

absl::Status RolloutSession::CheckOrder(const v1::LearnerMessage& message) const {
  switch (message.kind_case()) {
    case v1::LearnerMessage::kWelcome:
      if (joined_) return absl::InvalidArgumentError("got a second Welcome on one stream, expected one");
      break;
    case v1::LearnerMessage::kGrant:
    case v1::LearnerMessage::kGrantOver:
    case v1::LearnerMessage::kAck:
    case v1::LearnerMessage::kPolicyTable:
      if (!joined_) return absl::InvalidArgumentError("got another message first, expected Welcome or Refusal");
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

RolloutSession::Dropped RolloutSession::OnWelcome(const v1::Welcome& welcome, absl::Duration now) {
  Dropped dropped{fragments_.FreeUpTo(welcome.watermark()), grants_.Clear()};
  fragments_.SetCredit(welcome.credit_bytes());
  fragments_.SendAgain();
  welcome_.worker_id = sample::WorkerId(welcome.worker_id());
  welcome_.worker_epoch = sample::WorkerEpoch(welcome.worker_epoch());
  welcome_.learner_epoch = welcome.learner_epoch();
  welcome_.spec_hash = welcome.spec_hash();
  welcome_.config_yaml = welcome.config_yaml();
  welcome_.credit_bytes = fragments_.credit_bytes();
  env_report_due_ = env_report_ != sample::EnvReport();  // it may be another learner process
  told_incidents_ = 0;
  if (welcome.heartbeat_interval_ms() > 0) {
    heartbeat_interval_ =
        std::clamp(absl::Milliseconds(welcome.heartbeat_interval_ms()), kMinHeartbeatInterval, kMaxHeartbeatInterval);
  }
  last_sent_at_ = now;
  joined_ = true;
  ++joins_;
  return dropped;
}

bool RolloutSession::TakeFirstAccepted() {
  if (first_accepted_told_ || fragments_.acks().accepted == 0) return false;
  first_accepted_told_ = true;
  return true;
}

bool RolloutSession::ReportEnvs(const sample::EnvReport& report) {
  const bool news = report.counters != env_report_.counters || !report.incidents.empty() ||
                    report.tracked != env_report_.tracked || report.callbacks_off != env_report_.callbacks_off;
  env_report_.counters = report.counters;
  env_report_.recent = report.recent;
  env_report_.fails_from_the_start = report.fails_from_the_start;
  env_report_.tracked = report.tracked;
  env_report_.callbacks_off = report.callbacks_off;
  if (!news) return false;
  env_report_.incidents.insert(env_report_.incidents.end(), report.incidents.begin(), report.incidents.end());
  env_report_due_ = true;
  return true;
}

bool RolloutSession::MaybeBeat(absl::Duration now) {
  if (now - last_sent_at_ < heartbeat_interval_) return false;
  heartbeat_due_ = true;
  return true;
}

absl::Duration RolloutSession::UntilBeat(absl::Duration now) const {
  const absl::Duration idle = now - last_sent_at_;
  return idle < heartbeat_interval_ ? heartbeat_interval_ - idle : heartbeat_interval_;
}

v1::WorkerMessage RolloutSession::MakeHello() const {
  v1::WorkerMessage message;
  v1::Hello* hello = message.mutable_hello();
  *hello->mutable_protocol() = OurProtocol();
  hello->set_spec_hash(spec_hash_);
  hello->set_worker_id(welcome_.worker_id.value());
  hello->set_next_sequence(fragments_.next_sequence());
  hello->set_first_unacked(fragments_.first_unacked());
  hello->set_incarnation(identity_.incarnation);
  hello->set_name(identity_.name.substr(0, kMaxWorkerNameBytes));
  hello->set_permits_digest(config::CombineDigests(identity_.permits));
  hello->mutable_permits()->Assign(identity_.permits.begin(), identity_.permits.end());
  return message;
}

v1::WorkerMessage RolloutSession::MakeHeartbeat() {
  v1::WorkerMessage message;
  sample::EnvReport untold = env_report_;
  untold.incidents.erase(untold.incidents.begin(),
                         untold.incidents.begin() + static_cast<std::ptrdiff_t>(told_incidents_));
  told_incidents_ = env_report_.incidents.size();
  FillHeartbeat(untold, message.mutable_heartbeat());
  return message;
}

std::optional<LinkOwner::Outgoing> RolloutSession::NextMessage(absl::Duration now) {
  if (said_ == Said::kNothing) {
    said_ = Said::kHello;
    return LinkOwner::Outgoing{Serialize(MakeHello())};
  }
  if (!joined_ || said_ == Said::kGoodbye) return std::nullopt;
  if (heartbeat_due_ || env_report_due_) {
    heartbeat_due_ = env_report_due_ = false;
    last_sent_at_ = now;
    return LinkOwner::Outgoing{Serialize(MakeHeartbeat())};
  }
  if (fragments_.has_unsent()) {
    last_sent_at_ = now;
    return LinkOwner::Outgoing{fragments_.Send()};
  }
  if (goodbye_wanted_ && fragments_.empty()) {
    said_ = Said::kGoodbye;
    v1::WorkerMessage message;
    message.mutable_goodbye()->set_reason(grants_.close_reason());
    return LinkOwner::Outgoing{Serialize(message), /*last=*/true};
  }
  return std::nullopt;
}

}  // namespace troupe::rpc
