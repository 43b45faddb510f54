#include "lib/rpc/worker_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/permits.h"
#include "lib/config/run_config.h"
#include "lib/rpc/address.h"
#include "lib/rpc/convert.h"
#include "lib/rpc/limits.h"
#include "lib/rpc/parsed_size.h"
#include "proto/troupe/v1/weights.pb.h"

namespace troupe::rpc {
namespace {

constexpr char kRolloutMethod[] = "/troupe.v1.Rollout/Stream";
constexpr char kWeightMethod[] = "/troupe.v1.Weights/Subscribe";
// How long Step may sleep when nothing is due: wakes come by notification, this only bounds a bug.
constexpr absl::Duration kIdleStep = absl::Seconds(1);
// Once no wait is to be long any more, one that begins late still has so much.
constexpr absl::Duration kLastWait = absl::Milliseconds(250);

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

absl::StatusOr<std::unique_ptr<WorkerClient>> WorkerClient::Create(WorkerClientOptions options, base::Clock* clock) {
  TROUPE_ASSIGN_OR_RETURN(const Address address, ParseAddress(options.address));
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> rollout, MakeChannel(address, options.security));
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> weights, MakeChannel(address, options.security));
  return std::unique_ptr<WorkerClient>(
      new WorkerClient(std::move(options), clock, std::move(rollout), std::move(weights)));
}

WorkerClient::WorkerClient(WorkerClientOptions options, base::Clock* clock,
                           std::shared_ptr<grpc::Channel> rollout_channel,
                           std::shared_ptr<grpc::Channel> weight_channel)
    : options_(std::move(options)),
      clock_(clock),
      rollout_channel_(std::move(rollout_channel)),
      weight_channel_(std::move(weight_channel)),
      rollout_backoff_(options_.backoff, options_.incarnation),
      lost_at_(clock->SteadyNow()),
      heartbeat_interval_(kHeartbeatInterval),
      weight_backoff_(options_.backoff, options_.incarnation + 1),
      subscriptions_(policy::PolicyTable::kMaxPolicies) {}

WorkerClient::~WorkerClient() { Close(); }

absl::Duration WorkerClient::Step() {
  std::shared_ptr<ClientLink> start_rollout, start_weights, kick, cancel;
  bool wait_rollout = false, wait_weights = false;
  std::optional<std::string> away;
  std::optional<uint64_t> there;  // the learner's epoch
  absl::Duration next = kIdleStep;
  {
    base::MutexLock lock(&mutex_);
    if (ended_) return absl::ZeroDuration();
    const absl::Duration now = clock_->SteadyNow();
    away = AwayLocked(now, next);
    if (std::exchange(tell_there_, false)) there = welcome_.learner_epoch;
    if (rollout_ == nullptr) {
      if (now >= rollout_retry_at_) {
        rollout_ = MakeLink();
        table_assembler_ = std::make_unique<TableAssembler>();
        hello_sent_ = false;
        hello_deadline_ = std::min(now + kHandshakeTimeout, lost_at_ + options_.reconnect_timeout);
        start_rollout = rollout_;
        wait_rollout = tries_++ > 0;
      } else {
        next = std::min(next, rollout_retry_at_ - now);
      }
    } else if (!joined_) {
      if (now >= hello_deadline_) {
        cancel = rollout_;
        hello_deadline_ = absl::InfiniteDuration();
      } else {
        next = std::min(next, hello_deadline_ - now);
      }
    } else {
      const absl::Duration idle = now - last_sent_at_;
      if (idle >= heartbeat_interval_) {
        heartbeat_due_ = true;
        kick = rollout_;
        next = std::min(next, heartbeat_interval_);
      } else {
        next = std::min(next, heartbeat_interval_ - idle);
      }
    }
    // Only a registered worker subscribes: a learner that refuses it would refuse this stream, too.
    if (policies_ != nullptr && weight_link_ == nullptr && joined_) {
      if (now >= weight_retry_at_) {
        weight_link_ = MakeLink();
        assembler_ = std::make_unique<WeightAssembler>(policies_);
        requests_ = 0;
        announced_number_ = 0;
        for (size_t slot = 0; slot < subscriptions_.size(); ++slot) {
          subscriptions_[slot].told = false;
          subscriptions_[slot].number = 0;
          if (subscriptions_[slot].wanted) NoteChangeLocked(static_cast<int32_t>(slot));
        }
        start_weights = weight_link_;
        wait_weights = weight_tries_++ > 0;
      } else {
        next = std::min(next, weight_retry_at_ - now);
      }
    }
  }
  if (there.has_value()) TROUPE_INFO("the learner is there learner_epoch={}", *there);
  if (away.has_value()) TROUPE_WARN("{}", *away);
  // The first try says quickly what is wrong. Later ones stay with the channel while it connects: gRPC 1.51 drives a
  // connection only while a call waits for it, and fails calls at once until it stands.
  if (start_rollout != nullptr) start_rollout->Start(rollout_channel_, kRolloutMethod, wait_rollout);
  if (start_weights != nullptr) start_weights->Start(weight_channel_, kWeightMethod, wait_weights);
  if (cancel != nullptr) cancel->Cancel();
  if (kick != nullptr) kick->Kick();
  return next;
}

void WorkerClient::Run() {
  while (true) {
    const absl::Duration wait = Step();
    base::MutexLock lock(&mutex_);
    if (ended_) return;
    // What came up since Step looked must not wait for the next notification.
    if (!step_due_) step_changed_.WaitFor(&mutex_, wait);
    step_due_ = false;
  }
}

absl::StatusOr<Welcome> WorkerClient::AwaitWelcome(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  base::MutexLock lock(&mutex_);
  while (joins_ == 0 && !ended_) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError(absl::StrCat("learner at ", options_.address, " is unreachable: ",
                                                 last_error_.ok() ? "no answer" : std::string(last_error_.message())));
    }
    changed_.WaitFor(&mutex_, left);
  }
  if (joins_ == 0) return end_status_;
  return welcome_;
}

void WorkerClient::SetPolicies(std::vector<policy::PolicySpec> policies, uint64_t spec_hash) {
  auto expected = std::make_shared<const SlotPolicies>(std::move(policies));
  base::MutexLock lock(&mutex_);
  TROUPE_CHECK(first_policies_ == nullptr);
  first_policies_ = std::move(expected);
  // A table may have come while the configuration was made sense of.
  policies_ = table_ == nullptr ? first_policies_ : std::make_shared<const SlotPolicies>(*table_);
  spec_hash_ = spec_hash;
  StepIsDueLocked();
}

absl::Status WorkerClient::Submit(sample::MultiAgentBatchPtr fragment) {
  base::MutexLock submit_lock(&submit_mutex_);
  bool over = false;
  uint64_t sequence;
  {
    base::MutexLock lock(&mutex_);
    if (ended_) return end_status_;
    sequence = next_sequence_;
  }
  TROUPE_ASSIGN_OR_RETURN(EncodedFragment encoded, EncodeFragment(sequence, fragment));
  const int64_t bytes = static_cast<int64_t>(encoded.payload_bytes);
  {
    const absl::Time begun = absl::Now();
    base::MutexLock lock(&mutex_);
    while (!ended_ && !FitsLocked(encoded)) {
      if (!WaitForLearnerLocked(begun)) {
        return absl::CancelledError(absl::StrCat("the learner has not acknowledged ", retained_.size(),
                                                 " fragments, and there is no time to wait for it"));
      }
    }
    if (ended_) return end_status_;
    ++next_sequence_;
    unacked_bytes_ += bytes;
    held_bytes_ += static_cast<int64_t>(encoded.message.Length());
    retained_.push_back({sequence, std::move(encoded)});
    over = over_.value() != 0 && fragment->grant == over_;
  }
  KickRollout();
  if (!over) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("grant ", fragment->grant.value(), " was out for too long, others have it"));
}

bool WorkerClient::FitsLocked(const EncodedFragment& encoded) const {
  if (retained_.empty()) return true;
  // Until the first welcome there is no credit, and nothing that could be sampled for.
  if (unacked_bytes_ + static_cast<int64_t>(encoded.payload_bytes) > welcome_.credit_bytes) return false;
  return retained_.size() < kMaxUnackedFragments &&
         held_bytes_ + static_cast<int64_t>(encoded.message.Length()) <= kMaxUnackedBytes;
}

bool WorkerClient::WaitForLearnerLocked(absl::Time begun) {
  if (hurry_until_ == absl::InfiniteFuture()) {
    ++await_acks_;
    changed_.Wait(&mutex_);
    --await_acks_;
    return true;
  }
  const absl::Duration left = std::max(hurry_until_, begun + kLastWait) - absl::Now();
  if (left <= absl::ZeroDuration()) return false;
  ++await_acks_;
  changed_.WaitFor(&mutex_, left);
  --await_acks_;
  return true;
}

void WorkerClient::ReportEnvs(const sample::EnvReport& report) {
  {
    base::MutexLock lock(&mutex_);
    std::vector<sample::EnvIncident>& incidents = env_report_.incidents;
    const bool news = report.counters != env_report_.counters || !report.incidents.empty();
    env_report_.counters = report.counters;
    env_report_.recent = report.recent;
    env_report_.fails_from_the_start = report.fails_from_the_start;
    if (!news) return;  // the next heartbeat is early enough
    incidents.insert(incidents.end(), report.incidents.begin(), report.incidents.end());
    env_report_due_ = true;
  }
  for (const sample::EnvIncident& incident : report.incidents) {
    TROUPE_INFO("told the learner of an environment: {}",
                base::LogSafeLines(incident.text, sample::EnvIncident::kMaxTextBytes));
  }
  KickRollout();
}

absl::StatusOr<std::optional<sample::Grant>> WorkerClient::AwaitGrant(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  base::MutexLock lock(&mutex_);
  while (true) {
    if (no_more_grants_) return absl::CancelledError(stop_reason_);
    if (ended_) return end_status_;
    if (!grants_.empty()) {
      std::optional<sample::Grant> grant(std::move(grants_.front()));
      grants_.pop_front();
      taken_ = grant->id;
      if (grant->policies == table_) {
        granted_ = policies_;
      } else {
        granted_ =
            grant->policies == nullptr ? first_policies_ : std::make_shared<const SlotPolicies>(*grant->policies);
      }
      return grant;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return std::optional<sample::Grant>();
    changed_.WaitFor(&mutex_, left);
  }
}

WorkerClient::Subscription& WorkerClient::SubscriptionOf(policy::PolicySlot policy) {
  TROUPE_CHECK(policy.value() >= 0 && static_cast<size_t>(policy.value()) < subscriptions_.size());
  return subscriptions_[static_cast<size_t>(policy.value())];
}

void WorkerClient::NoteChangeLocked(int32_t slot) {
  Subscription& subscription = subscriptions_[static_cast<size_t>(slot)];
  if (subscription.changed) return;
  subscription.changed = true;
  changed_slots_.push_back(slot);
}

void WorkerClient::SubscribeLocked(policy::PolicySlot policy) {
  Subscription& subscription = SubscriptionOf(policy);
  if (subscription.wanted) return;
  subscription.wanted = true;
  subscription.number = 0;
  NoteChangeLocked(policy.value());
}

void WorkerClient::Subscribe(policy::PolicySlot policy) {
  {
    base::MutexLock lock(&mutex_);
    if (SubscriptionOf(policy).wanted) return;
    SubscribeLocked(policy);
  }
  KickWeights();
}

void WorkerClient::Unsubscribe(policy::PolicySlot policy) {
  policy::WeightSnapshotPtr dropped;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    Subscription& subscription = SubscriptionOf(policy);
    if (!subscription.wanted) return;
    subscription.wanted = false;
    dropped = std::move(subscription.snapshot);
    subscription.snapshot = nullptr;
    NoteChangeLocked(policy.value());
  }
  KickWeights();
}

absl::StatusOr<rollout::CurrentWeights> WorkerClient::AwaitWeights(policy::PolicySlot policy,
                                                                   policy::WeightVersion min_version,
                                                                   absl::Duration timeout) {
  Subscribe(policy);
  const absl::Time deadline = absl::Now() + timeout;
  base::MutexLock lock(&mutex_);
  const Subscription& subscription = SubscriptionOf(policy);
  while (true) {
    if (ended_) return end_status_;
    if (over_.value() != 0 && taken_ == over_) {
      return absl::AbortedError(absl::StrCat("grant ", over_.value(), " was out for too long, others have it"));
    }
    if (granted_ != nullptr && policies_ != granted_ &&
        !policies_->SameIn(*granted_, static_cast<size_t>(policy.value()))) {
      return absl::AbortedError(absl::StrCat("the policy that slot ", policy.value(),
                                             " had by the grant's policies is gone: the grant is over"));
    }
    if (subscription.snapshot != nullptr) {
      rollout::CurrentWeights current{subscription.snapshot, subscription.snapshot->version};
      // An announcement follows the weights it speaks of, so they are here.
      const bool covered = subscription.number > 0 && subscription.number <= announced_number_;
      if (covered && current.version < announced_) current.version = announced_;
      if (!(current.version < min_version)) return current;
    }
    // A grant that was not begun before a drain need not be.
    if (no_more_grants_) return absl::CancelledError(stop_reason_);
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat("no weights of version {", min_version.learner_epoch, ", ",
                                                      min_version.n, "} of the policy in slot ", policy.value(),
                                                      " within ", absl::FormatDuration(timeout)));
    }
    ++await_weights_;
    changed_.WaitFor(&mutex_, left);
    --await_weights_;
  }
}

void WorkerClient::StopGrants(const std::string& reason) {
  std::deque<sample::Grant> dropped;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  if (no_more_grants_) return;
  no_more_grants_ = true;
  stop_reason_ = reason;
  dropped.swap(grants_);
  changed_.NotifyAll();
}

void WorkerClient::Hurry(absl::Duration patience) {
  base::MutexLock lock(&mutex_);
  hurry_until_ = std::min(hurry_until_, absl::Now() + patience);
  changed_.NotifyAll();
}

absl::Status WorkerClient::Drain(absl::Duration timeout) {
  StopGrants("drained");
  {
    base::MutexLock lock(&mutex_);
    goodbye_wanted_ = true;
  }
  KickRollout();
  absl::Status status;
  {
    const absl::Time begun = absl::Now();
    base::MutexLock lock(&mutex_);
    while (!ended_) {
      const absl::Time now = absl::Now();
      const absl::Time deadline = std::min(begun + timeout, std::max(hurry_until_, begun + kLastWait));
      if (now >= deadline) {
        if (!retained_.empty()) {
          status = absl::DeadlineExceededError(absl::StrCat(
              retained_.size(), " fragments were not acknowledged within ", absl::FormatDuration(now - begun)));
        }
        break;
      }
      changed_.WaitFor(&mutex_, deadline - now);
    }
  }
  Close();
  return status;
}

void WorkerClient::End() {
  std::shared_ptr<ClientLink> rollout, weights;
  {
    base::MutexLock lock(&mutex_);
    EndLocked(absl::CancelledError("closed"));
    rollout = rollout_;
    weights = weight_link_;
  }
  if (rollout != nullptr) rollout->Cancel();
  if (weights != nullptr) weights->Cancel();
}

void WorkerClient::Close() {
  End();
  AwaitLinksGone();
}

AckCounters WorkerClient::acks() const {
  base::MutexLock lock(&mutex_);
  return acks_;
}

int64_t WorkerClient::unacked_fragments() const {
  base::MutexLock lock(&mutex_);
  return static_cast<int64_t>(retained_.size());
}

int64_t WorkerClient::reconnects() const {
  base::MutexLock lock(&mutex_);
  return std::max<int64_t>(joins_ - 1, 0);
}

bool WorkerClient::ended() const {
  base::MutexLock lock(&mutex_);
  return ended_;
}

bool WorkerClient::joined() const {
  base::MutexLock lock(&mutex_);
  return joined_;
}

std::string WorkerClient::end_reason() const {
  base::MutexLock lock(&mutex_);
  return no_more_grants_ ? stop_reason_ : std::string(end_status_.message());
}

void WorkerClient::KickRollout() {
  std::shared_ptr<ClientLink> link;
  {
    base::MutexLock lock(&mutex_);
    link = rollout_;
  }
  if (link != nullptr) link->Kick();
}

void WorkerClient::KickWeights() {
  std::shared_ptr<ClientLink> link;
  {
    base::MutexLock lock(&mutex_);
    link = weight_link_;
  }
  if (link != nullptr) link->Kick();
}

void WorkerClient::EndLocked(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  end_status_ = status;
  changed_.NotifyAll();
  step_changed_.NotifyAll();
}

void WorkerClient::StepIsDueLocked() {
  step_due_ = true;
  step_changed_.NotifyAll();
}

std::optional<LinkOwner::Outgoing> WorkerClient::NextMessage(const ClientLink* link) {
  base::MutexLock lock(&mutex_);
  if (link == rollout_.get()) return NextRolloutMessageLocked();
  if (link == weight_link_.get()) return NextWeightMessageLocked();
  return std::nullopt;
}

std::optional<LinkOwner::Outgoing> WorkerClient::NextWeightMessageLocked() {
  if (requests_ > 0 && changed_slots_.empty()) return std::nullopt;
  v1::SubscribeRequest request;
  if (requests_ == 0) {
    *request.mutable_protocol() = OurProtocol();
    request.set_worker_id(welcome_.worker_id.value());
    request.set_spec_hash(spec_hash_);
  }
  request.set_number(++requests_);
  for (const int32_t slot : changed_slots_) {
    Subscription& subscription = subscriptions_[static_cast<size_t>(slot)];
    subscription.changed = false;
    if (subscription.wanted && subscription.number == 0) {
      request.add_add(slot);
      subscription.number = requests_;
      subscription.told = true;
    } else if (!subscription.wanted && subscription.told) {
      request.add_remove(slot);
      subscription.told = false;
    }
  }
  changed_slots_.clear();
  return Outgoing{Serialize(request)};
}

std::optional<LinkOwner::Outgoing> WorkerClient::NextRolloutMessageLocked() {
  v1::WorkerMessage message;
  if (!hello_sent_) {
    hello_sent_ = true;
    v1::Hello* hello = message.mutable_hello();
    *hello->mutable_protocol() = OurProtocol();
    hello->set_spec_hash(spec_hash_);
    hello->set_worker_id(welcome_.worker_id.value());
    hello->set_next_sequence(next_sequence_);
    hello->set_first_unacked(retained_.empty() ? next_sequence_ : retained_.front().sequence);
    hello->set_incarnation(options_.incarnation);
    hello->set_name(options_.name.substr(0, 128));
    hello->set_permits_digest(config::CombineDigests(options_.permits));
    hello->mutable_permits()->Assign(options_.permits.begin(), options_.permits.end());
    return Outgoing{Serialize(message)};
  }
  if (!joined_ || goodbye_sent_) return std::nullopt;
  if (heartbeat_due_ || env_report_due_) {
    heartbeat_due_ = env_report_due_ = false;
    last_sent_at_ = clock_->SteadyNow();
    sample::EnvReport untold = env_report_;
    untold.incidents.erase(untold.incidents.begin(),
                           untold.incidents.begin() + static_cast<ptrdiff_t>(told_incidents_));
    told_incidents_ = env_report_.incidents.size();
    FillHeartbeat(untold, message.mutable_heartbeat());
    return Outgoing{Serialize(message)};
  }
  if (next_to_send_ < retained_.size()) {
    last_sent_at_ = clock_->SteadyNow();
    return Outgoing{retained_[next_to_send_++].encoded.message};
  }
  if (goodbye_wanted_ && retained_.empty()) {
    goodbye_sent_ = true;
    message.mutable_goodbye()->set_reason(stop_reason_);
    return Outgoing{Serialize(message), /*last=*/true};
  }
  return std::nullopt;
}

void WorkerClient::OnMessage(const ClientLink* link, const grpc::ByteBuffer& message) {
  bool is_rollout, is_weights;
  {
    base::MutexLock lock(&mutex_);
    if (ended_) return;
    is_rollout = link == rollout_.get();
    is_weights = link == weight_link_.get();
  }
  if (is_weights) OnWeightMessage(message);
  if (!is_rollout) return;
  v1::LearnerMessage parsed;
  absl::Status valid = ParseBounded(message, kLearnerMessageLimit, &parsed);
  if (valid.ok()) valid = CheckOrder(parsed);
  if (valid.ok()) {
    OnLearnerMessage(parsed);
    TellFirstAccepted();
  } else {
    base::MutexLock lock(&mutex_);
    EndLocked(absl::InvalidArgumentError(absl::StrCat("the learner's words: ", valid.message())));
  }
  KickRollout();
}

void WorkerClient::ExpectLocked(SlotPoliciesPtr policies, std::vector<policy::WeightSnapshotPtr>& dropped) {
  if (policies_ == nullptr || policies == policies_) return;
  for (size_t slot = 0; slot < subscriptions_.size(); ++slot) {
    Subscription& subscription = subscriptions_[slot];
    if (policies->SameIn(*policies_, slot)) continue;
    if (subscription.snapshot != nullptr) dropped.push_back(std::move(subscription.snapshot));
    subscription.snapshot = nullptr;
    subscription.number = 0;
    if (subscription.wanted) NoteChangeLocked(static_cast<int32_t>(slot));
  }
  policies_ = std::move(policies);
}

void WorkerClient::OnTable(const v1::PolicyTable& chunk) {
  absl::StatusOr<policy::PolicyTablePtr> table = table_assembler_->Add(chunk);
  if (table.ok() && *table == nullptr) return;
  if (table.ok() && options_.check_table) {
    if (absl::Status refused = options_.check_table(**table); !refused.ok()) table = std::move(refused);
  }
  SlotPoliciesPtr policies;
  if (table.ok()) policies = std::make_shared<const SlotPolicies>(**table);
  std::vector<policy::WeightSnapshotPtr> dropped;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    if (table.ok() && table_ != nullptr && (*table)->revision() < table_->revision()) {
      table =
          absl::InvalidArgumentError(absl::StrCat("policy table: revision ", (*table)->revision(), " after ",
                                                  table_->revision(), " in learner epoch ", welcome_.learner_epoch));
    }
    if (!table.ok()) {
      EndLocked(table.status());
      return;
    }
    // After another stream to the same learner: the same table again.
    if (table_ != nullptr && (*table)->revision() == table_->revision()) return;
    table_ = *std::move(table);
    ExpectLocked(std::move(policies), dropped);
    if (await_weights_ > 0) changed_.NotifyAll();
  }
  KickWeights();
}

absl::Status WorkerClient::CheckOrder(const v1::LearnerMessage& message) const {
  bool joined;
  {
    base::MutexLock lock(&mutex_);
    joined = joined_;
  }
  switch (message.kind_case()) {
    case v1::LearnerMessage::kWelcome:
      if (joined) return absl::InvalidArgumentError("got a second Welcome on one stream, expected one");
      break;
    case v1::LearnerMessage::kGrant:
    case v1::LearnerMessage::kGrantOver:
    case v1::LearnerMessage::kAck:
    case v1::LearnerMessage::kPolicyTable:
      if (!joined) return absl::InvalidArgumentError("got another message first, expected Welcome or Refusal");
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

absl::Status WorkerClient::CheckRoomLocked(const sample::Grant& grant) const {
  size_t lanes = grant.lanes.size();
  std::set<const policy::PolicyTable*> tables = {table_.get()};
  for (const sample::Grant& waiting : grants_) {
    lanes += waiting.lanes.size();
    tables.insert(waiting.policies.get());
  }
  if (grants_.size() < kMaxWaitingGrants && lanes <= kMaxWaitingLanes && tables.size() <= kMaxWaitingTables) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("grant ", grant.id.value(), ": with it ", grants_.size() + 1,
                                                 " grants wait, of ", lanes, " environments and by ", tables.size(),
                                                 " policy tables, expected at most ", kMaxWaitingGrants, ", ",
                                                 kMaxWaitingLanes, " and ", kMaxWaitingTables));
}

absl::Status WorkerClient::CheckWelcome(const v1::Welcome& welcome) const {
  TROUPE_RETURN_IF_ERROR(CheckProtocol(welcome.protocol()));
  if (welcome.config_yaml().size() > config::kMaxConfigBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the learner's configuration has ", welcome.config_yaml().size(),
                                                   " bytes, expected at most ", config::kMaxConfigBytes));
  }
  {
    base::MutexLock lock(&mutex_);
    // The learner compares them, too; but it may be another one by now, that says what it likes.
    if (spec_hash_ != 0 && welcome.spec_hash() != spec_hash_) {
      return absl::FailedPreconditionError(
          absl::StrCat("the learner that answers now has spec ", absl::Hex(welcome.spec_hash()),
                       ", but this worker was built from ", absl::Hex(spec_hash_), ": start the worker again"));
    }
  }
  return options_.check_config ? options_.check_config(welcome.config_yaml()) : absl::OkStatus();
}

void WorkerClient::OnLearnerMessage(const v1::LearnerMessage& message) {
  if (message.has_policy_table()) return OnTable(message.policy_table());
  if (message.ack().disposition() == v1::DISPOSITION_INVALID && !std::exchange(invalid_told_, true)) {
    TROUPE_WARN("the learner refused a fragment as invalid, further ones are only counted reason=\"{}\"",
                base::LogSafe(message.ack().reason(), 1024));
  }
  if (message.has_welcome()) {
    if (const absl::Status checked = CheckWelcome(message.welcome()); !checked.ok()) {
      base::MutexLock lock(&mutex_);
      EndLocked(checked);
      return;
    }
  }
  std::vector<policy::WeightSnapshotPtr> weights;  // dropped, as what follows
  std::deque<Retained> freed;  // destroyed outside the lock: a fragment's buffer goes back to its pool
  std::deque<sample::Grant> dropped;
  base::MutexLock lock(&mutex_);
  switch (message.kind_case()) {
    case v1::LearnerMessage::kWelcome:
      dropped.swap(grants_);  // of the registration before
      FreeUpToLocked(message.welcome().watermark(), freed);
      if (message.welcome().learner_epoch() != welcome_.learner_epoch) {
        // Another life of the learner, perhaps of an earlier state: it sends its table again.
        table_ = nullptr;
        ExpectLocked(first_policies_, weights);
      }
      OnWelcomeLocked(message.welcome());
      break;
    case v1::LearnerMessage::kGrant: {
      absl::StatusOr<sample::Grant> grant = FromProto(message.grant());
      if (!grant.ok()) {
        EndLocked(grant.status());
      } else if (!no_more_grants_) {
        grant->policies = table_;
        if (const absl::Status room = CheckRoomLocked(*grant); !room.ok()) {
          EndLocked(room);
        } else {
          grants_.push_back(*std::move(grant));
        }
      }
      break;
    }
    case v1::LearnerMessage::kGrantOver: {
      const sample::GrantId over(message.grant_over().grant_id());
      const auto waiting =
          std::find_if(grants_.begin(), grants_.end(), [over](const sample::Grant& grant) { return grant.id == over; });
      if (waiting == grants_.end()) {
        over_ = over;
        break;
      }
      dropped.push_back(std::move(*waiting));
      grants_.erase(waiting);
      break;
    }
    case v1::LearnerMessage::kAck: {
      const absl::StatusOr<sample::FragmentAck> ack = FromProto(message.ack());
      if (ack.ok()) {
        OnAckLocked(*ack, freed);
      } else {
        EndLocked(ack.status());
      }
      break;
    }
    case v1::LearnerMessage::kDrain:
      no_more_grants_ = true;
      stop_reason_ = base::LogSafe(message.drain().reason());
      dropped.swap(grants_);
      break;
    case v1::LearnerMessage::kRefusal:
      last_error_ = absl::FailedPreconditionError(base::LogSafe(message.refusal().message(), 1024));
      if (message.refusal().reason() == v1::REFUSAL_REASON_DRAINING) {
        // As a Drain that comes at once. Any other refusal ends with a status that says whether to try again.
        no_more_grants_ = true;
        stop_reason_ = std::string(last_error_.message());
        EndLocked(absl::CancelledError(stop_reason_));
      }
      break;
    default:
      break;  // a newer learner may send kinds that this worker does not know
  }
  // Every wake-up costs the thread that samples some of its time.
  if (message.kind_case() != v1::LearnerMessage::kAck || await_acks_ > 0) changed_.NotifyAll();
}

void WorkerClient::TellFirstAccepted() {
  {
    base::MutexLock lock(&mutex_);
    if (first_accepted_told_ || acks_.accepted == 0) return;
    first_accepted_told_ = true;
  }
  if (options_.on_first_accepted) options_.on_first_accepted();
}

std::optional<std::string> WorkerClient::AwayLocked(absl::Duration now, absl::Duration& next) {
  if (joined_ || told_away_) return std::nullopt;
  const absl::Duration away = now - lost_at_;
  if (away < options_.tell_away_after) {
    next = std::min(next, options_.tell_away_after - away);
    return std::nullopt;
  }
  told_away_ = true;
  const std::string reason = last_error_.ok() ? "no answer" : std::string(last_error_.message());
  std::string line =
      absl::StrCat("no learner, trying again learner=", options_.address, " reason=\"", base::LogSafe(reason), "\"");
  // Who makes a client decides how long it waits for the first Welcome.
  if (joins_ > 0) {
    const absl::Duration left = std::max(absl::ZeroDuration(), options_.reconnect_timeout - away);
    absl::StrAppend(&line, " for_s=", absl::ToInt64Seconds(left));
  }
  return line;
}

void WorkerClient::OnWelcomeLocked(const v1::Welcome& welcome) {
  welcome_.worker_id = sample::WorkerId(welcome.worker_id());
  welcome_.worker_epoch = sample::WorkerEpoch(welcome.worker_epoch());
  welcome_.learner_epoch = welcome.learner_epoch();
  welcome_.spec_hash = welcome.spec_hash();
  welcome_.config_yaml = welcome.config_yaml();
  welcome_.credit_bytes = static_cast<int64_t>(std::min<uint64_t>(welcome.credit_bytes(), kMaxUnackedBytes));
  env_report_due_ = env_report_ != sample::EnvReport();  // it may be another learner process
  told_incidents_ = 0;
  if (welcome.heartbeat_interval_ms() > 0) {
    heartbeat_interval_ =
        std::clamp(absl::Milliseconds(welcome.heartbeat_interval_ms()), kMinHeartbeatInterval, kMaxHeartbeatInterval);
  }
  joined_ = true;
  ++joins_;
  tell_there_ = std::exchange(told_away_, false);
  last_error_ = absl::OkStatus();
  next_to_send_ = 0;
  last_sent_at_ = clock_->SteadyNow();
  tries_ = 0;
  weight_tries_ = 0;
  rollout_backoff_.Reset();
  weight_backoff_.Reset();
  weight_retry_at_ = absl::ZeroDuration();
  StepIsDueLocked();
}

void WorkerClient::OnAckLocked(const sample::FragmentAck& ack, std::deque<Retained>& freed) {
  switch (ack.disposition) {
    case sample::Disposition::kAccepted:
      ++acks_.accepted;
      break;
    case sample::Disposition::kDuplicate:
      ++acks_.duplicate;
      break;
    case sample::Disposition::kStale:
      ++acks_.stale;
      break;
    case sample::Disposition::kInvalid:
      ++acks_.invalid;
      break;
  }
  if (ack.disposition != sample::Disposition::kAccepted) acks_.last_reason = base::LogSafe(ack.reason);
  FreeUpToLocked(ack.watermark, freed);
  // A fragment with a disposition needs no watermark to be over.
  const auto it = std::find_if(retained_.begin(), retained_.end(),
                               [&ack](const Retained& retained) { return retained.sequence == ack.sequence; });
  if (it == retained_.end()) return;
  if (static_cast<size_t>(it - retained_.begin()) < next_to_send_) --next_to_send_;
  unacked_bytes_ -= static_cast<int64_t>(it->encoded.payload_bytes);
  held_bytes_ -= static_cast<int64_t>(it->encoded.message.Length());
  freed.push_back(std::move(*it));
  retained_.erase(it);
}

void WorkerClient::FreeUpToLocked(uint64_t watermark, std::deque<Retained>& freed) {
  while (!retained_.empty() && retained_.front().sequence <= watermark) {
    unacked_bytes_ -= static_cast<int64_t>(retained_.front().encoded.payload_bytes);
    held_bytes_ -= static_cast<int64_t>(retained_.front().encoded.message.Length());
    freed.push_back(std::move(retained_.front()));
    retained_.pop_front();
    if (next_to_send_ > 0) --next_to_send_;
  }
}

void WorkerClient::OnWeightMessage(const grpc::ByteBuffer& message) {
  SlotPoliciesPtr policies;
  {
    base::MutexLock lock(&mutex_);
    policies = policies_;
  }
  assembler_->SetPolicies(policies);
  absl::StatusOr<std::optional<WeightAssembler::Update>> update = assembler_->Add(message);
  std::shared_ptr<ClientLink> cancel;
  policy::WeightSnapshotPtr replaced;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    if (!update.ok()) {
      // The stream is of no use any more: a new one starts with the newest weights.
      last_error_ = update.status();
      cancel = weight_link_;
    } else if (update->has_value() && (*update)->snapshot == nullptr) {
      announced_ = (*update)->version;
      announced_number_ = (*update)->number;
      if (await_weights_ > 0) changed_.NotifyAll();
    } else if (update->has_value()) {
      const auto slot = static_cast<size_t>((*update)->slot.value());
      Subscription& subscription = subscriptions_[slot];
      policy::WeightSnapshotPtr& current = subscription.snapshot;
      // A table may have come meanwhile.
      const bool is_slots = policies == policies_ || policies->SameIn(*policies_, slot);
      if (is_slots && subscription.wanted && (current == nullptr || current->version < (*update)->snapshot->version)) {
        replaced = std::move(current);
        current = std::move((*update)->snapshot);
        if (await_weights_ > 0) changed_.NotifyAll();
      }
    }
  }
  if (cancel != nullptr) {
    TROUPE_WARN("weights refused, subscribing again status={}", base::LogSafe(update.status().ToString()));
    cancel->Cancel();
  }
}

void WorkerClient::OnLinkDone(const ClientLink* link, const absl::Status& status) {
  std::shared_ptr<ClientLink> ended;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  const bool is_rollout = link == rollout_.get();
  const absl::Duration now = clock_->SteadyNow();
  // What this end cancelled (a try that took too long) says less than what came before.
  if (!status.ok() && !absl::IsCancelled(status)) last_error_ = status;
  if (is_rollout) {
    ended = std::move(rollout_);
    rollout_ = nullptr;
    if (joined_) lost_at_ = now;
    joined_ = false;
    if (goodbye_sent_) EndLocked(absl::CancelledError("drained"));
  } else {
    ended = std::move(weight_link_);
    weight_link_ = nullptr;
  }
  StepIsDueLocked();
  if (ended_) return;
  if (Permanent(status)) {
    EndLocked(status);
    return;
  }
  if (is_rollout && now - lost_at_ >= options_.reconnect_timeout) {
    EndLocked(absl::UnavailableError(
        absl::StrCat("learner at ", options_.address,
                     " is gone: ", last_error_.ok() ? "no answer" : std::string(last_error_.message()))));
    return;
  }
  base::Backoff& backoff = is_rollout ? rollout_backoff_ : weight_backoff_;
  // Without a budget of its own it always has a delay.
  (is_rollout ? rollout_retry_at_ : weight_retry_at_) = now + backoff.NextDelay().value_or(options_.backoff.max);
}

}  // namespace troupe::rpc
