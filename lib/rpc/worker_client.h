#pragma once

#include <cstdint>
#include <deque>
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
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/ports.h"
#include "lib/rpc/client_link.h"
#include "lib/rpc/fragment_codec.h"
#include "lib/rpc/table_codec.h"
#include "lib/rpc/transport.h"
#include "lib/rpc/weight_codec.h"
#include "lib/sample/ids.h"
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

/// What the learner said at the (last) registration.
struct Welcome {
  sample::WorkerId worker_id;
  sample::WorkerEpoch worker_epoch;
  uint64_t learner_epoch = 0;
  uint64_t spec_hash = 0;
  std::string config_yaml;
  int64_t credit_bytes = 0;
};

/// What the learner answered, since the start. Fragments.
struct AckCounters {
  int64_t accepted = 0;
  int64_t duplicate = 0;
  int64_t stale = 0;
  int64_t invalid = 0;
  std::string last_reason;  ///< of the newest that was not accepted
};

/// A worker's side of the Rollout and Weights streams: where its fragments go, where its orders and weights come from.
/// Survives the loss of the learner: comes back, says which fragments it still holds, sends them again under their
/// numbers.
///
/// Made and owned by services/worker (and tests), which runs Run in its I/O thread; starts gRPC's threads, none of its
/// own. Thread-safe. Submit, the Await… methods and Close block. States: connecting -> joined -> (lost -> connecting
/// ->)* -> ended; ended by Drain, Close, a refusal, a learner gone for good, or one whose words are no protocol (what,
/// got, expected). Capacity: fragments without an ack take at most Welcome's credit in bytes, and whatever that says
/// kMaxUnackedBytes and kMaxUnackedFragments (one always fits); Submit waits then. Grants that wait: kMaxWaitingGrants
/// and its kind; a learner that sends more ends the client.
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
  /// What the welcome's configuration means: the policies as of the run's start, by slot. `spec_hash` is stated from
  /// now on. Once.
  void SetPolicies(std::vector<policy::PolicySpec> policies, uint64_t spec_hash);

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

 private:
  struct Retained {
    uint64_t sequence;
    EncodedFragment encoded;
  };
  /// What is known of the weights in one slot.
  struct Subscription {
    bool wanted = false;
    bool told = false;     ///< the learner thinks that it is wanted, on this stream
    bool changed = false;  ///< stands in changed_slots_
    uint64_t number = 0;   ///< of the request that asked for it; 0: not asked yet
    policy::WeightSnapshotPtr snapshot;
  };

  WorkerClient(WorkerClientOptions options, base::Clock* clock, std::shared_ptr<grpc::Channel> rollout_channel,
               std::shared_ptr<grpc::Channel> weight_channel);

  // LinkOwner
  std::optional<Outgoing> NextMessage(const ClientLink* link) override;
  void OnMessage(const ClientLink* link, const grpc::ByteBuffer& message) override;
  void OnLinkDone(const ClientLink* link, const absl::Status& status) override;

  void OnLearnerMessage(const v1::LearnerMessage& message);
  /// Calls on_first_accepted when it is due.
  void TellFirstAccepted();
  /// INVALID_ARGUMENT for a message that a learner does not send at this point.
  absl::Status CheckOrder(const v1::LearnerMessage& message) const;
  /// INVALID_ARGUMENT: with `grant` more would wait than may.
  absl::Status CheckRoomLocked(const sample::Grant& grant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Whether there is credit and room for one fragment more.
  bool FitsLocked(const EncodedFragment& encoded) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Waits for a change; false when somebody is in a hurry and what has been waited since `begun` is enough.
  bool WaitForLearnerLocked(absl::Time begun) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Why this Welcome ends the client; OK to go on with it.
  absl::Status CheckWelcome(const v1::Welcome& welcome) const;
  void OnWeightMessage(const grpc::ByteBuffer& message);
  /// What is to be said of a learner that is away, once it has been away for long enough; nullopt: nothing yet, and
  /// `next` becomes the time until then where that is less.
  std::optional<std::string> AwayLocked(absl::Duration now, absl::Duration& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnWelcomeLocked(const v1::Welcome& welcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Moves what the ack frees to `freed`, to be destroyed outside the lock.
  void OnAckLocked(const sample::FragmentAck& ack, std::deque<Retained>& freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeUpToLocked(uint64_t watermark, std::deque<Retained>& freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Outgoing> NextRolloutMessageLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Outgoing> NextWeightMessageLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Subscription& SubscriptionOf(policy::PolicySlot policy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The learner must hear of it with the next request.
  void NoteChangeLocked(int32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SubscribeLocked(policy::PolicySlot policy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Another policy may be in some slots: their weights go to `dropped` and are asked for again.
  void ExpectLocked(SlotPoliciesPtr policies, std::vector<policy::WeightSnapshotPtr>& dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTable(const v1::PolicyTable& chunk);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StepIsDueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KickRollout();
  void KickWeights();

  const WorkerClientOptions options_;
  base::Clock* const clock_;
  const std::shared_ptr<grpc::Channel> rollout_channel_;
  const std::shared_ptr<grpc::Channel> weight_channel_;

  base::Mutex submit_mutex_;  ///< numbers and order of fragments; taken before mutex_

  mutable base::Mutex mutex_;
  base::CondVar changed_;       ///< for callers
  base::CondVar step_changed_;  ///< for Run
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  bool no_more_grants_ ABSL_GUARDED_BY(mutex_) = false;
  std::string stop_reason_ ABSL_GUARDED_BY(mutex_);
  int await_acks_ ABSL_GUARDED_BY(mutex_) = 0;     ///< callers that wait for an acknowledgement
  int await_weights_ ABSL_GUARDED_BY(mutex_) = 0;  ///< callers that wait for weights or an announcement
  bool step_due_ ABSL_GUARDED_BY(mutex_) = false;  ///< something came up since Run's last Step
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);

  // The Rollout stream.
  std::shared_ptr<ClientLink> rollout_ ABSL_GUARDED_BY(mutex_);
  base::Backoff rollout_backoff_ ABSL_GUARDED_BY(mutex_);
  absl::Duration rollout_retry_at_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  absl::Duration lost_at_ ABSL_GUARDED_BY(mutex_);  ///< while not joined
  bool told_away_ ABSL_GUARDED_BY(mutex_) = false;
  bool tell_there_ ABSL_GUARDED_BY(mutex_) = false;  ///< it is back, and was said to be away
  int tries_ ABSL_GUARDED_BY(mutex_) = 0;            ///< since then
  int weight_tries_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration hello_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  bool hello_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  bool heartbeat_due_ ABSL_GUARDED_BY(mutex_) = false;
  sample::EnvReport env_report_ ABSL_GUARDED_BY(mutex_);  ///< as reported last, with all incidents
  size_t told_incidents_ ABSL_GUARDED_BY(mutex_) = 0;     ///< how many of them the learner knows
  bool env_report_due_ ABSL_GUARDED_BY(mutex_) = false;   ///< the learner may not know it
  bool goodbye_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool goodbye_sent_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration last_sent_at_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  absl::Duration heartbeat_interval_ ABSL_GUARDED_BY(mutex_);
  int64_t joins_ ABSL_GUARDED_BY(mutex_) = 0;
  Welcome welcome_ ABSL_GUARDED_BY(mutex_);
  std::deque<sample::Grant> grants_ ABSL_GUARDED_BY(mutex_);
  sample::GrantId taken_ ABSL_GUARDED_BY(mutex_);  ///< by the last AwaitGrant that gave one
  sample::GrantId over_ ABSL_GUARDED_BY(mutex_);   ///< the last that was out for too long, of those taken
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Retained> retained_ ABSL_GUARDED_BY(mutex_);  ///< without an ack, ascending
  size_t next_to_send_ ABSL_GUARDED_BY(mutex_) = 0;        ///< in retained_
  int64_t unacked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;      ///< of payload: what credit counts
  int64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;         ///< of all of retained_
  absl::Time hurry_until_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  AckCounters acks_ ABSL_GUARDED_BY(mutex_);
  bool first_accepted_told_ ABSL_GUARDED_BY(mutex_) = false;

  // The Weights stream.
  std::shared_ptr<ClientLink> weight_link_ ABSL_GUARDED_BY(mutex_);
  base::Backoff weight_backoff_ ABSL_GUARDED_BY(mutex_);
  absl::Duration weight_retry_at_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  SlotPoliciesPtr first_policies_ ABSL_GUARDED_BY(mutex_);  ///< as of the run's start; nullptr before SetPolicies
  SlotPoliciesPtr policies_ ABSL_GUARDED_BY(mutex_);        ///< as of table_
  SlotPoliciesPtr granted_ ABSL_GUARDED_BY(mutex_);         ///< as of the grant that was taken last
  policy::PolicyTablePtr table_ ABSL_GUARDED_BY(mutex_);    ///< the newest of this learner epoch; nullptr: the start's
  uint64_t spec_hash_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Subscription> subscriptions_ ABSL_GUARDED_BY(mutex_);  ///< by policy slot
  std::vector<int32_t> changed_slots_ ABSL_GUARDED_BY(mutex_);
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;          ///< sent on this stream
  uint64_t announced_number_ ABSL_GUARDED_BY(mutex_) = 0;  ///< 0: no announcement yet, on this stream
  policy::WeightVersion announced_ ABSL_GUARDED_BY(mutex_);
  /// Of the current weight stream; used by its read reaction alone once it is set.
  std::unique_ptr<WeightAssembler> assembler_;
  /// Of the current Rollout stream; likewise.
  std::unique_ptr<TableAssembler> table_assembler_;
  bool invalid_told_ = false;  ///< that a fragment was refused; likewise
};

}  // namespace troupe::rpc
