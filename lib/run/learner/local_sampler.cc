#include "lib/run/learner/local_sampler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/rollout/rollout_worker.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::run {
namespace {

// The learner refuses a fragment only while its budget is full, and an update makes room.
constexpr absl::Duration kRetryInterval = absl::Milliseconds(5);

}  // namespace

absl::Status LocalSampler::Join(const rollout::RolloutConfig& config, learner::Learner* learner) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<rollout::Collector> collector, rollout::Collector::Create(config));
  learner_ = learner;
  absl::StatusOr<learner::WorkerTicket> ticket =
      learner->Join(learner::WorkerHello{.name = "the learner's own"}, shared_from_this());
  if (absl::IsCancelled(ticket.status())) return absl::OkStatus();  // the run is over already
  TROUPE_RETURN_IF_ERROR(ticket.status());
  ticket_ = *ticket;
  collector_ = std::move(collector);
  base::MutexLock lock(&mutex_);
  runs_ = true;
  return absl::OkStatus();
}

void LocalSampler::Run() {
  if (collector_ == nullptr) return;
  rollout::RolloutWorker worker(std::move(collector_), *this, *this, *this);
  const absl::Status status = worker.Run();
  if (!status.ok()) {
    TROUPE_ERROR("sampling ended error=\"{}\"", base::LogSafe(std::string(status.message())));
    learner_->RequestDrain("sampling failed");
  }
  base::MutexLock lock(&mutex_);
  runs_ = false;
  status_ = status;
}

void LocalSampler::Stop() {
  base::MutexLock lock(&mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

void LocalSampler::KeepAlive() {
  {
    base::MutexLock lock(&mutex_);
    if (!runs_) return;
  }
  learner_->Heartbeat(ticket_).IgnoreError();  // who was given up hears of it when it submits
}

absl::Status LocalSampler::status() const {
  base::MutexLock lock(&mutex_);
  return status_;
}

void LocalSampler::SendGrant(const sample::Grant& grant) {
  base::MutexLock lock(&mutex_);
  grants_.push_back(grant);
  changed_.NotifyAll();
}

void LocalSampler::SendGrantOver(sample::GrantId grant) {
  base::MutexLock lock(&mutex_);
  const auto waiting =
      std::find_if(grants_.begin(), grants_.end(), [grant](const sample::Grant& other) { return other.id == grant; });
  if (waiting == grants_.end()) {
    over_ = grant;
  } else {
    grants_.erase(waiting);
  }
}

void LocalSampler::SendDrain(const std::string& /*reason*/) {
  base::MutexLock lock(&mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

void LocalSampler::SetPolicies(policy::PolicyTablePtr policies) {
  std::vector<Weights> dropped;  // destroyed after the lock
  base::MutexLock lock(&mutex_);
  weights_.resize(std::max(weights_.size(), policies->num_slots()));
  for (const policy::PolicySlot slot : weights_.ids()) {
    const policy::PolicyEntry* entry = policies->Find(slot);
    const int64_t since = entry == nullptr ? -1 : entry->since;
    if (since == weights_[slot].since) continue;
    dropped.push_back(std::exchange(weights_[slot], Weights{since, nullptr}));
  }
}

void LocalSampler::Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) {
  base::MutexLock lock(&mutex_);
  weights_[slot].newest.swap(snapshot);  // the old one is destroyed after the lock
  changed_.NotifyAll();
}

void LocalSampler::AnnounceVersion(policy::WeightVersion version) {
  base::MutexLock lock(&mutex_);
  announced_ = version;
  changed_.NotifyAll();
}

absl::Status LocalSampler::Submit(sample::MultiAgentBatchPtr fragment) {
  const uint64_t sequence = next_sequence_++;
  while (true) {
    TROUPE_RETURN_IF_ERROR(learner_->Heartbeat(ticket_));
    const absl::StatusOr<sample::FragmentAck> ack = learner_->Submit(ticket_, sequence, fragment);
    base::MutexLock lock(&mutex_);
    if (ack.status().code() != absl::StatusCode::kResourceExhausted) {
      if (!ack.ok() || over_.value() == 0 || fragment->grant != over_) return ack.status();
      return absl::AbortedError(absl::StrCat("grant ", over_.value(), " was out for too long"));
    }
    if (closed_) return absl::CancelledError("sampling ends");
    changed_.WaitFor(&mutex_, kRetryInterval);
  }
}

void LocalSampler::ReportEnvs(const sample::EnvReport& report) {
  learner_->Heartbeat(ticket_, report).IgnoreError();  // as in KeepAlive
}

absl::StatusOr<std::optional<sample::Grant>> LocalSampler::AwaitGrant(absl::Duration timeout) {
  // Waiting is a sign of life, too.
  learner_->Heartbeat(ticket_).IgnoreError();
  base::MutexLock lock(&mutex_);
  const bool came = base::Await(changed_, &mutex_, base::Deadline::After(timeout),
                                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !grants_.empty() || closed_; });
  if (!came) return std::optional<sample::Grant>();
  if (closed_) return absl::CancelledError("sampling ends");
  std::optional<sample::Grant> grant(std::move(grants_.front()));
  grants_.pop_front();
  granted_ = grant->policies;
  return grant;
}

absl::StatusOr<rollout::CurrentWeights> LocalSampler::AwaitWeights(policy::PolicySlot policy,
                                                                   policy::WeightVersion min_version,
                                                                   absl::Duration timeout) {
  std::optional<absl::StatusOr<rollout::CurrentWeights>> answer;
  base::MutexLock lock(&mutex_);
  base::Await(changed_, &mutex_, base::Deadline::After(timeout), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!closed_) answer = TryWeightsLocked(policy, min_version);
    return closed_ || answer.has_value();
  });
  if (closed_) return absl::CancelledError("sampling ends");
  if (!answer.has_value()) return absl::DeadlineExceededError("no weights that are new enough");
  return *std::move(answer);
}

std::optional<absl::StatusOr<rollout::CurrentWeights>> LocalSampler::TryWeightsLocked(
    policy::PolicySlot policy, policy::WeightVersion min_version) const {
  const policy::PolicyEntry* const entry = granted_ == nullptr ? nullptr : granted_->Find(policy);
  if (entry != nullptr && weights_.Contains(policy) && weights_[policy].since != entry->since) {
    return absl::AbortedError(
        absl::StrCat("the policy that slot ", policy.value(), " had by the grant's policies is gone"));
  }
  if (!weights_.Contains(policy) || weights_[policy].newest == nullptr) return std::nullopt;
  const policy::WeightSnapshotPtr& newest = weights_[policy].newest;
  const policy::WeightVersion version = newest->version < announced_ ? announced_ : newest->version;
  if (version < min_version) return std::nullopt;
  return rollout::CurrentWeights{newest, version};
}

}  // namespace troupe::run
