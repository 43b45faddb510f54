#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/learner/learner.h"
#include "lib/learner/ports.h"
#include "lib/policy/ids.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/ports.h"

namespace troupe::run {

/// A worker in the learner's own process (`num_workers: 0`): the same collector and the same learner, joined by plain
/// calls instead of streams. It is the learner's WorkerPort and WeightPublisher, and the collector's three ports.
///
/// Made by the learner's process before the learner starts, and joined to it after. Run is the body of a thread that
/// the process owns; the other methods are thread-safe.
class LocalSampler final : public learner::WorkerPort,
                           public learner::WeightPublisher,
                           public rollout::SampleSink,
                           public rollout::GrantSource,
                           public rollout::WeightSource,
                           public std::enable_shared_from_this<LocalSampler> {
 public:
  explicit LocalSampler(size_t num_policies) : weights_(num_policies) {}

  /// Joins `learner`, which must outlive Run, where it is not over already. Errors are the collector's and the
  /// learner's.
  absl::Status Join(const rollout::RolloutConfig& config, learner::Learner* learner);
  /// Samples until Stop, a drain or an error; once, and at once over unless Join has joined a learner.
  void Run();
  /// Run ends after the environment steps in progress. Idempotent; does not wait for it.
  void Stop();
  /// A sign of life from Join to the end of Run, however long an environment takes: what a worker's I/O thread gives.
  /// Called now and then.
  void KeepAlive();
  /// Why sampling ended by itself; OK while it goes on or after a drain.
  absl::Status status() const;

  // learner::WorkerPort. The ack that matters is Submit's result: nothing is retained here.
  void SendGrant(const sample::Grant& grant) override;
  void SendGrantOver(sample::GrantId grant) override;
  void SendAck(const sample::FragmentAck& /*ack*/) override {}
  void SendDrain(const std::string& reason) override;
  // learner::WeightPublisher
  void SetPolicies(policy::PolicyTablePtr policies) override;
  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override;
  void AnnounceVersion(policy::WeightVersion version) override;
  // rollout ports
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override;
  void ReportEnvs(const sample::EnvReport& report) override;
  absl::StatusOr<std::optional<sample::Grant>> AwaitGrant(absl::Duration timeout) override;
  absl::StatusOr<rollout::CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion min_version,
                                                       absl::Duration timeout) override;

 private:
  /// What AwaitWeights answers; nullopt: not yet.
  std::optional<absl::StatusOr<rollout::CurrentWeights>> TryWeightsLocked(policy::PolicySlot policy,
                                                                          policy::WeightVersion min_version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  learner::Learner* learner_ = nullptr;
  learner::WorkerTicket ticket_;
  std::unique_ptr<rollout::Collector> collector_;  ///< from Join to Run
  uint64_t next_sequence_ = 1;                     ///< stepping thread only

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<sample::Grant> grants_ ABSL_GUARDED_BY(mutex_);
  /// The weights in one slot; all are at hand, so subscriptions mean nothing here.
  struct Weights {
    int64_t since = 0;  ///< revision that brought the policy
    policy::WeightSnapshotPtr newest;
  };
  policy::BySlot<Weights> weights_ ABSL_GUARDED_BY(mutex_);
  policy::WeightVersion announced_ ABSL_GUARDED_BY(mutex_);
  policy::PolicyTablePtr granted_ ABSL_GUARDED_BY(mutex_);  ///< of the grant that was taken last
  sample::GrantId over_ ABSL_GUARDED_BY(mutex_);            ///< the last that was out for too long, of those taken
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::run
