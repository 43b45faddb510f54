#include "lib/rpc/worker/worker_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/run_config.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::rpc {
namespace {

constexpr char kRolloutMethod[] = "/troupe.v1.Rollout/Stream";
constexpr char kWeightMethod[] = "/troupe.v1.Weights/Subscribe";
// How long Step may sleep when nothing is due: wakes come by notification, this only bounds a bug.
constexpr absl::Duration kIdleStep = absl::Seconds(1);
// Once no wait is to be long any more, one that begins late still has so much.
constexpr absl::Duration kLastWait = absl::Milliseconds(250);

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
      protocol_({options_.name, options_.incarnation, options_.permits},
                {options_.address, options_.reconnect_timeout, options_.tell_away_after},
                {std::move(rollout_channel), kRolloutMethod, options_.backoff, options_.incarnation},
                {std::move(weight_channel), kWeightMethod, options_.backoff, options_.incarnation + 1},
                clock->SteadyNow()) {}

WorkerClient::~WorkerClient() { Close(); }

absl::Duration WorkerClient::Step() {
  WorkerProtocol::Due due;
  {
    base::MutexLock lock(&mutex_);
    if (protocol_.ended()) return absl::ZeroDuration();
    due = protocol_.TakeDue(clock_->SteadyNow(), [this] { return MakeLink(); });
  }
  if (due.there.has_value()) TROUPE_INFO("the learner is there learner_epoch={}", *due.there);
  if (due.away.has_value()) TROUPE_WARN("{}", *due.away);
  due.rollout.Start();
  due.weights.Start();
  if (due.cancel != nullptr) due.cancel->Cancel();
  if (due.kick != nullptr) due.kick->Kick();
  return std::min(kIdleStep, due.next);
}

void WorkerClient::Run() {
  while (true) {
    const absl::Duration wait = Step();
    base::MutexLock lock(&mutex_);
    if (protocol_.ended()) return;
    // What came up since Step looked must not wait for the next notification.
    if (!step_due_) step_changed_.WaitFor(&mutex_, wait);
    step_due_ = false;
  }
}

absl::StatusOr<Welcome> WorkerClient::AwaitWelcome(absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::After(timeout, *clock_);
  base::MutexLock lock(&mutex_);
  const auto answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return protocol_.session().joins() > 0 || protocol_.ended();
  };
  if (!base::Await(changed_, &mutex_, deadline, answered)) return protocol_.presence().Unavailable("is unreachable");
  if (protocol_.session().joins() == 0) return protocol_.end_status();
  return protocol_.session().welcome();
}

void WorkerClient::SetPolicies(const policy::BySlot<policy::PolicySpec>& policies, uint64_t spec_hash) {
  auto expected = std::make_shared<const SlotPolicies>(policies);
  base::MutexLock lock(&mutex_);
  protocol_.weights().SetFirstPolicies(std::move(expected));
  protocol_.session().SetSpecHash(spec_hash);
  StepIsDueLocked();
}

template <typename Condition>
bool WorkerClient::AwaitLearnerLocked(absl::Duration patience, Condition condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (condition()) return true;
  const absl::Duration begun = clock_->SteadyNow();
  while (true) {
    const absl::Duration hurry = hurry_until_;
    const absl::Duration end = begun + std::min(patience, std::max(hurry - begun, kLastWait));
    const auto holds_or_hurry = [this, hurry, &condition]()
                                    ABSL_NO_THREAD_SAFETY_ANALYSIS { return condition() || hurry_until_ != hurry; };
    const base::Deadline deadline = base::Deadline::After(end - clock_->SteadyNow(), *clock_);
    const bool woken = base::Await(changed_, &mutex_, deadline, holds_or_hurry);
    if (!woken || condition()) return woken;
  }
}

absl::Status WorkerClient::Submit(sample::MultiAgentBatchPtr fragment) {
  base::MutexLock submit_lock(&submit_mutex_);
  uint64_t sequence;
  {
    base::MutexLock lock(&mutex_);
    if (protocol_.ended()) return protocol_.end_status();
    sequence = protocol_.session().fragments().next_sequence();
  }
  TROUPE_ASSIGN_OR_RETURN(const EncodedFragment encoded, EncodeFragment(sequence, fragment));
  bool over = false;
  {
    base::MutexLock lock(&mutex_);
    ++await_acks_;
    const bool in_time =
        AwaitLearnerLocked(absl::InfiniteDuration(), [this, &encoded]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return protocol_.ended() || protocol_.session().fragments().Fits(encoded);
        });
    --await_acks_;
    if (!in_time) {
      return absl::CancelledError(absl::StrCat("the learner has not acknowledged ",
                                               protocol_.session().fragments().size(),
                                               " fragments, and there is no time to wait for it"));
    }
    if (protocol_.ended()) return protocol_.end_status();
    protocol_.session().fragments().Add(encoded);
    over = protocol_.session().grants().IsOver(fragment->grant);
  }
  KickRollout();
  return over ? GrantIsOver(fragment->grant) : absl::OkStatus();
}

void WorkerClient::ReportEnvs(const sample::EnvReport& report) {
  {
    base::MutexLock lock(&mutex_);
    if (!protocol_.session().ReportEnvs(report)) return;  // the next heartbeat is early enough
  }
  for (const sample::EnvIncident& incident : report.incidents) {
    TROUPE_INFO("told the learner of an environment: {}",
                base::LogSafeLines(incident.text, sample::EnvIncident::kMaxTextBytes));
  }
  KickRollout();
}

absl::StatusOr<std::optional<sample::Grant>> WorkerClient::AwaitGrant(absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::After(timeout, *clock_);
  base::MutexLock lock(&mutex_);
  GrantQueue& grants = protocol_.session().grants();
  base::Await(changed_, &mutex_, deadline, [this, &grants]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return grants.closed() || protocol_.ended() || !grants.empty();
  });
  if (grants.closed()) return absl::CancelledError(grants.close_reason());
  if (protocol_.ended()) return protocol_.end_status();
  if (grants.empty()) return std::optional<sample::Grant>();
  std::optional<sample::Grant> grant(grants.Take());
  protocol_.weights().OnGrantTaken(grant->policies);
  return grant;
}

void WorkerClient::Subscribe(policy::PolicySlot policy) {
  {
    base::MutexLock lock(&mutex_);
    if (!protocol_.weights().Subscribe(policy)) return;
  }
  KickWeights();
}

void WorkerClient::Unsubscribe(policy::PolicySlot policy) {
  std::optional<policy::WeightSnapshotPtr> dropped;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    dropped = protocol_.weights().Unsubscribe(policy);
  }
  if (dropped.has_value()) KickWeights();
}

absl::StatusOr<rollout::CurrentWeights> WorkerClient::AwaitWeights(policy::PolicySlot policy,
                                                                   policy::WeightVersion min_version,
                                                                   absl::Duration timeout) {
  Subscribe(policy);
  const base::Deadline deadline = base::Deadline::After(timeout, *clock_);
  absl::StatusOr<std::optional<rollout::CurrentWeights>> found = std::optional<rollout::CurrentWeights>();
  {
    base::MutexLock lock(&mutex_);
    ++await_weights_;
    base::Await(changed_, &mutex_, deadline,
                [this, policy, min_version, &found]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                  found = protocol_.FindWeights(policy, min_version);
                  return !found.ok() || found->has_value();
                });
    --await_weights_;
  }
  TROUPE_RETURN_IF_ERROR(found.status());
  if (found->has_value()) return **std::move(found);
  return absl::DeadlineExceededError(absl::StrCat("no weights of version {", min_version.learner_epoch, ", ",
                                                  min_version.n, "} of the policy in slot ", policy.value(), " within ",
                                                  absl::FormatDuration(timeout)));
}

void WorkerClient::StopGrants(const std::string& reason) {
  GrantQueue::Dropped dropped;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  if (protocol_.session().grants().closed()) return;
  dropped = protocol_.session().grants().Close(reason);
  changed_.NotifyAll();
}

void WorkerClient::Hurry(absl::Duration patience) {
  base::MutexLock lock(&mutex_);
  hurry_until_ = std::min(hurry_until_, clock_->SteadyNow() + patience);
  changed_.NotifyAll();
}

absl::Status WorkerClient::Drain(absl::Duration timeout) {
  StopGrants("drained");
  {
    base::MutexLock lock(&mutex_);
    protocol_.session().WantGoodbye();
  }
  KickRollout();
  absl::Status status;
  {
    const absl::Duration begun = clock_->SteadyNow();
    base::MutexLock lock(&mutex_);
    const bool ended =
        AwaitLearnerLocked(timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return protocol_.ended(); });
    if (!ended && !protocol_.session().fragments().empty()) {
      status = absl::DeadlineExceededError(absl::StrCat(protocol_.session().fragments().size(),
                                                        " fragments were not acknowledged within ",
                                                        absl::FormatDuration(clock_->SteadyNow() - begun)));
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
    rollout = protocol_.rollout_link().link();
    weights = protocol_.weight_link().link();
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
  return protocol_.session().fragments().acks();
}

int64_t WorkerClient::unacked_fragments() const {
  base::MutexLock lock(&mutex_);
  return static_cast<int64_t>(protocol_.session().fragments().size());
}

int64_t WorkerClient::reconnects() const {
  base::MutexLock lock(&mutex_);
  return std::max<int64_t>(protocol_.session().joins() - 1, 0);
}

bool WorkerClient::ended() const {
  base::MutexLock lock(&mutex_);
  return protocol_.ended();
}

bool WorkerClient::joined() const {
  base::MutexLock lock(&mutex_);
  return protocol_.session().joined();
}

bool WorkerClient::run_ended() const {
  base::MutexLock lock(&mutex_);
  return protocol_.run_ended();
}

std::string WorkerClient::end_reason() const {
  base::MutexLock lock(&mutex_);
  return protocol_.session().grants().closed() ? protocol_.session().grants().close_reason()
                                               : std::string(protocol_.end_status().message());
}

void WorkerClient::KickRollout() {
  std::shared_ptr<ClientLink> link;
  {
    base::MutexLock lock(&mutex_);
    link = protocol_.rollout_link().link();
  }
  if (link != nullptr) link->Kick();
}

void WorkerClient::KickWeights() {
  std::shared_ptr<ClientLink> link;
  {
    base::MutexLock lock(&mutex_);
    link = protocol_.weight_link().link();
  }
  if (link != nullptr) link->Kick();
}

void WorkerClient::EndWith(const absl::Status& error) {
  base::MutexLock lock(&mutex_);
  EndLocked(error);
}

void WorkerClient::EndLocked(const absl::Status& error) {
  if (protocol_.ended()) return;
  protocol_.End(error);
  WakeLocked();
}

void WorkerClient::WakeLocked() {
  changed_.NotifyAll();
  if (protocol_.ended()) step_changed_.NotifyAll();
}

void WorkerClient::StepIsDueLocked() {
  step_due_ = true;
  step_changed_.NotifyAll();
}

std::optional<LinkOwner::Outgoing> WorkerClient::NextMessage(const ClientLink* link) {
  base::MutexLock lock(&mutex_);
  return protocol_.NextMessage(link, clock_->SteadyNow());
}

void WorkerClient::OnLinkDone(const ClientLink* link, const absl::Status& status) {
  std::shared_ptr<ClientLink> done;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  done = protocol_.OnLinkDone(link, status, clock_->SteadyNow());
  StepIsDueLocked();
  if (protocol_.ended()) WakeLocked();
}

void WorkerClient::OnMessage(const ClientLink* link, const grpc::ByteBuffer& message) {
  bool is_rollout, is_weights;
  {
    base::MutexLock lock(&mutex_);
    if (protocol_.ended()) return;
    is_rollout = protocol_.rollout_link().Is(link);
    is_weights = protocol_.weight_link().Is(link);
  }
  if (is_weights) OnWeightMessage(message);
  if (is_rollout) OnRolloutMessage(message);
}

void WorkerClient::OnWeightMessage(const grpc::ByteBuffer& message) {
  WeightSubscriber::Reception reception;
  {
    base::MutexLock lock(&mutex_);
    reception = protocol_.weights().reception();
  }
  reception.assembler->SetPolicies(reception.policies);
  const absl::StatusOr<std::optional<WeightAssembler::Update>> update = reception.assembler->Add(message);
  std::shared_ptr<ClientLink> cancel;
  WeightSubscriber::Received received;  // what was replaced is destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    if (!update.ok()) {
      // The stream is of no use any more: a new one starts with the newest weights.
      protocol_.presence().NoteError(update.status());
      cancel = protocol_.weight_link().link();
    } else if (update->has_value()) {
      received = protocol_.weights().OnUpdate(**update, *reception.policies);
      if (received.news && await_weights_ > 0) changed_.NotifyAll();
    }
  }
  if (cancel != nullptr) {
    TROUPE_WARN("weights refused, subscribing again status={}", base::LogSafe(update.status().ToString()));
    cancel->Cancel();
  }
}

void WorkerClient::OnRolloutMessage(const grpc::ByteBuffer& message) {
  v1::LearnerMessage parsed;
  absl::Status valid = ParseBounded(message, kLearnerMessageLimit, &parsed);
  if (valid.ok()) {
    base::MutexLock lock(&mutex_);
    valid = protocol_.session().CheckOrder(parsed);
  }
  if (!valid.ok()) {
    EndWith(absl::InvalidArgumentError(absl::StrCat("the learner's words: ", valid.message())));
  } else if (parsed.has_policy_table()) {
    OnTable(parsed.policy_table());
  } else {
    OnLearnerMessage(parsed);
  }
  KickRollout();
}

void WorkerClient::OnLearnerMessage(const v1::LearnerMessage& message) {
  if (message.has_welcome()) {
    if (const absl::Status checked = CheckWelcome(message.welcome()); !checked.ok()) return EndWith(checked);
  }
  WorkerProtocol::Heard heard;  // what was dropped is destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    heard = protocol_.OnMessage(message, clock_->SteadyNow());
    // Every wake-up costs the thread that samples some of its time.
    if (!message.has_ack() || await_acks_ > 0 || protocol_.ended()) WakeLocked();
    if (message.has_welcome()) StepIsDueLocked();
  }
  if (heard.first_invalid) {
    TROUPE_WARN("the learner refused a fragment as invalid, further ones are only counted reason=\"{}\"",
                base::LogSafe(message.ack().reason(), 1024));
  }
  if (heard.first_accepted && options_.on_first_accepted) options_.on_first_accepted();
}

absl::Status WorkerClient::CheckWelcome(const v1::Welcome& welcome) const {
  TROUPE_RETURN_IF_ERROR(CheckProtocol(welcome.protocol()));
  if (welcome.config_yaml().size() > config::kMaxConfigBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the learner's configuration has ", welcome.config_yaml().size(),
                                                   " bytes, expected at most ", config::kMaxConfigBytes));
  }
  {
    base::MutexLock lock(&mutex_);
    TROUPE_RETURN_IF_ERROR(protocol_.CheckSpec(welcome));
  }
  return options_.check_config ? options_.check_config(welcome.config_yaml()) : absl::OkStatus();
}

void WorkerClient::OnTable(const v1::PolicyTable& chunk) {
  std::shared_ptr<TableAssembler> tables;
  {
    base::MutexLock lock(&mutex_);
    tables = protocol_.session().tables();
  }
  absl::StatusOr<policy::PolicyTablePtr> table = tables->Add(chunk);
  if (table.ok() && *table == nullptr) return;
  if (table.ok() && options_.check_table) {
    if (absl::Status refused = options_.check_table(**table); !refused.ok()) table = std::move(refused);
  }
  if (!table.ok()) return EndWith(table.status());
  const auto policies = std::make_shared<const SlotPolicies>(**table);
  WeightSubscriber::Dropped dropped;  // destroyed outside the lock
  {
    base::MutexLock lock(&mutex_);
    const absl::Status in_order = protocol_.weights().CheckTable(**table, protocol_.session().welcome().learner_epoch);
    if (!in_order.ok()) return EndLocked(in_order);
    dropped = protocol_.weights().OnTable(*table, policies);
    if (await_weights_ > 0) changed_.NotifyAll();
  }
  KickWeights();
}

}  // namespace troupe::rpc
