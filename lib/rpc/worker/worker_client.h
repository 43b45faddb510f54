#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/backoff.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/ports.h"
#include "lib/rpc/transport/client_link.h"
#include "lib/rpc/transport/transport.h"
#include "lib/rpc/worker/rollout_session.h"
#include "lib/rpc/worker/worker_protocol.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/channel.h>

namespace troupe::rpc {

struct WorkerClientOptions {
  std::string address;
  TransportSecurity security;
  std::string name;                ///< for people: host and process
  uint64_t incarnation = 1;        ///< random number of this process, > 0
  base::Backoff::Options backoff;  ///< between tries
  /// From the start, or the loss of the learner, until it is taken to be gone for good.
  absl::Duration reconnect_timeout = absl::Minutes(5);
  /// Without the learner for so long, a line says so and why; another one that it is back.
  absl::Duration tell_away_after = absl::Seconds(5);
  /// Called once, when the learner has accepted a fragment, by a thread of gRPC's; must not block. May be empty.
  std::function<void()> on_first_accepted;

  /// What the worker permits (config::Permits::Digests), for Hello.
  std::vector<uint64_t> permits;
  /// Whether what a learner says may be made use of: asked with the text of every Welcome, also of those that come
  /// after a reconnect, perhaps of another learner, and with every table of policies, before anything else sees them.
  /// An error ends the client with it. Called by gRPC's threads, one at a time; must not block. Empty: all may.
  std::function<absl::Status(const std::string& config_yaml)> check_config;
  std::function<absl::Status(const policy::PolicyTable& table)> check_table;
};

/// A worker's side of the Rollout and Weights streams: where its fragments go, where its orders and weights come from.
/// Survives the loss of the learner: comes back, says which fragments it still holds, sends them again under their
/// numbers.
///
/// The front: what is said, what is made of what is heard, and when to connect, decides a WorkerProtocol, which is
/// passive. This class steps it under one mutex, makes its calls after that is released, and waits.
///
/// Made and owned by services/worker (and tests), which runs Run in its I/O thread; starts gRPC's threads, none of its
/// own. Thread-safe. Submit, the Await… methods, Drain and Close block. States: connecting -> joined -> (lost ->
/// connecting ->)* -> ended; ended by Drain, Close, a refusal, a learner gone for good, or one whose words are no
/// protocol (what, got, expected). Capacity: fragments without an ack take at most Welcome's credit in bytes, and
/// whatever that says kMaxUnackedBytes and kMaxUnackedFragments (one always fits); Submit waits then. Grants that wait:
/// kMaxWaitingGrants and its kind; a learner that sends more ends the client.
class WorkerClient final : public rollout::SampleSink,
                           public rollout::GrantSource,
                           public rollout::WeightSource,
                           private LinkOwner {
 public:
  /// INVALID_ARGUMENT or FAILED_PRECONDITION for an address that cannot be used; connects with Run. `clock` outlives
  /// the client.
  static absl::StatusOr<std::unique_ptr<WorkerClient>> Create(WorkerClientOptions options, base::Clock* clock);
  ~WorkerClient() override;

  /// Does what is due (connect, heartbeat) and says how long until something else is; never blocks.
  absl::Duration Step();
  /// Steps until the client has ended. For the I/O thread.
  void Run();

  /// Blocks until the learner has welcomed us. UNAVAILABLE with the last error when it could not be reached within
  /// `timeout`; the refusal when it does not want us.
  absl::StatusOr<Welcome> AwaitWelcome(absl::Duration timeout);
  /// What the welcome's configuration means: the policies as of the run's start. `spec_hash` is stated from
  /// now on. Once.
  void SetPolicies(const policy::BySlot<policy::PolicySpec>& policies, uint64_t spec_hash);

  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override;
  void ReportEnvs(const sample::EnvReport& report) override;
  absl::StatusOr<std::optional<sample::Grant>> AwaitGrant(absl::Duration timeout) override;
  void Subscribe(policy::PolicySlot policy) override;
  void Unsubscribe(policy::PolicySlot policy) override;
  absl::StatusOr<rollout::CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion min_version,
                                                       absl::Duration timeout) override;

  /// No more grants: AwaitGrant gives CANCELLED. Also what a Drain of the learner does.
  void StopGrants(const std::string& reason);
  /// Somebody is in a hurry: from now on Submit and Drain wait for the learner for `patience` in all, or a quarter of a
  /// second where they begin later. Submit then gives CANCELLED, and its fragment is lost.
  void Hurry(absl::Duration patience);
  /// After the last Submit: blocks until everything has its ack, says goodbye and ends. DEADLINE_EXCEEDED: something
  /// was not acknowledged within `timeout`; it is ended all the same.
  absl::Status Drain(absl::Duration timeout);
  /// Ends at once and waits until the streams are gone. Idempotent.
  void Close();
  /// Ends without waiting: whoever waits here for the learner returns. Never blocks. Idempotent.
  void End();

  AckCounters acks() const;
  int64_t unacked_fragments() const;
  int64_t reconnects() const;
  bool ended() const;
  /// Whether the learner is there: welcomed, and the stream stands.
  bool joined() const;
  /// Why grants stopped or the client ended; empty while it goes on.
  std::string end_reason() const;
  /// True if the learner has said that its run is over: no other worker is needed.
  bool run_ended() const;

 private:
  WorkerClient(WorkerClientOptions options, base::Clock* clock, std::shared_ptr<grpc::Channel> rollout_channel,
               std::shared_ptr<grpc::Channel> weight_channel);

  // LinkOwner
  std::optional<Outgoing> NextMessage(const ClientLink* link) override;
  void OnMessage(const ClientLink* link, const grpc::ByteBuffer& message) override;
  void OnLinkDone(const ClientLink* link, const absl::Status& status) override;

  // What the learner says.
  void OnRolloutMessage(const grpc::ByteBuffer& message);
  void OnWeightMessage(const grpc::ByteBuffer& message);
  /// One that is in order, and no table.
  void OnLearnerMessage(const v1::LearnerMessage& message);
  void OnTable(const v1::PolicyTable& chunk);
  /// Why this Welcome ends the client; OK to go on with it.
  absl::Status CheckWelcome(const v1::Welcome& welcome) const;

  void EndWith(const absl::Status& error);
  void EndLocked(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Something has changed that callers and, where it has ended, Run wait for.
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StepIsDueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Waits for what only the learner brings: until `condition` holds, at most for `patience`, and where somebody is in
  /// a hurry no longer than Hurry says. What the condition is then.
  template <typename Condition>
  bool AwaitLearnerLocked(absl::Duration patience, Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KickRollout();
  void KickWeights();

  const WorkerClientOptions options_;
  base::Clock* const clock_;

  base::Mutex submit_mutex_;  ///< numbers and order of fragments; taken before mutex_

  mutable base::Mutex mutex_;
  base::CondVar changed_;                          ///< for callers
  base::CondVar step_changed_;                     ///< for Run
  bool step_due_ ABSL_GUARDED_BY(mutex_) = false;  ///< something came up since Run's last Step
  int await_acks_ ABSL_GUARDED_BY(mutex_) = 0;     ///< callers that wait for an acknowledgement
  int await_weights_ ABSL_GUARDED_BY(mutex_) = 0;  ///< callers that wait for weights or an announcement
  /// When waits for the learner end, on the steady clock.
  absl::Duration hurry_until_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();

  WorkerProtocol protocol_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
