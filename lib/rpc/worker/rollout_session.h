#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/rpc/codec/table_codec.h"
#include "lib/rpc/transport/client_link.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/worker/grant_queue.h"
#include "lib/rpc/worker/retained_fragments.h"
#include "lib/sample/env_report.h"
#include "lib/sample/ids.h"
#include "proto/troupe/v1/rollout.pb.h"

namespace troupe::rpc {

/// What the learner said at the (last) registration.
struct Welcome {
  sample::WorkerId worker_id;
  sample::WorkerEpoch worker_epoch;
  uint64_t learner_epoch = 0;
  uint64_t spec_hash = 0;
  std::string config_yaml;
  int64_t credit_bytes = 0;
};

/// Who says Hello. Plain value.
struct WorkerIdentity {
  std::string name;               ///< for people: host and process; what is beyond kMaxWorkerNameBytes is not said
  uint64_t incarnation = 1;       ///< random number of this process, > 0
  std::vector<uint64_t> permits;  ///< config::Permits::Digests
};

/// A worker's registration with a learner, over one Rollout stream after the other: what it says next (Hello, news of
/// its environments, heartbeats, fragments, Goodbye), and what it has heard (Welcome, grants, acks). Decides; makes no
/// call. Made by WorkerClient, of which it is a passive part.
///
/// Not thread-safe: WorkerClient holds its mutex. Never blocks; times are of the steady clock. Two halves go on by
/// themselves on each stream: said: nothing -> Hello -> Goodbye; heard: nothing -> Welcome (joined). Invariants: 1.
/// Hello is the first message up, Goodbye the last, with no fragment left. 2. Nothing but Hello is said before the
/// Welcome. 3. News of environments comes before the next fragment. Capacity: RetainedFragments' and GrantQueue's.
class RolloutSession {
 public:
  explicit RolloutSession(WorkerIdentity identity) : identity_(std::move(identity)) {}

  /// Stated in every Hello from now on; 0: not known yet.
  void SetSpecHash(uint64_t spec_hash) { spec_hash_ = spec_hash; }
  uint64_t spec_hash() const { return spec_hash_; }
  const Welcome& welcome() const { return welcome_; }
  /// Whether the learner is there: welcomed, and the stream stands.
  bool joined() const { return joined_; }
  /// Registrations so far.
  int64_t joins() const { return joins_; }
  RetainedFragments& fragments() { return fragments_; }
  const RetainedFragments& fragments() const { return fragments_; }
  GrantQueue& grants() { return grants_; }
  const GrantQueue& grants() const { return grants_; }

  /// Another stream begins, over which nothing has been said yet.
  void BeginStream();
  /// The stream is lost.
  void EndStream() { joined_ = false; }
  /// Of the tables of the stream that goes on. Used by its read reaction alone, without the lock.
  const std::shared_ptr<TableAssembler>& tables() const { return tables_; }

  /// INVALID_ARGUMENT for a message that a learner does not send at this point.
  absl::Status CheckOrder(const v1::LearnerMessage& message) const;
  struct Dropped {
    RetainedFragments::Freed fragments;
    GrantQueue::Dropped grants;
  };
  /// Registered. Gives what the learner has of the fragments, and the grants of the registration before.
  Dropped OnWelcome(const v1::Welcome& welcome, absl::Duration now);
  /// Whether a fragment has been accepted, the first time that it has.
  bool TakeFirstAccepted();

  /// What the environments report is to be said before the next fragment, and again to another learner. Whether that
  /// is news; what is none waits for the next heartbeat.
  bool ReportEnvs(const sample::EnvReport& report);
  /// Goodbye is to be said once no fragment is left.
  void WantGoodbye() { goodbye_wanted_ = true; }
  bool said_goodbye() const { return said_ == Said::kGoodbye; }

  /// Whether a heartbeat is due; it is the next message then. While joined.
  bool MaybeBeat(absl::Duration now);
  /// How long until the next heartbeat may be due. While joined.
  absl::Duration UntilBeat(absl::Duration now) const;
  /// What to say next; nullopt: nothing.
  std::optional<LinkOwner::Outgoing> NextMessage(absl::Duration now);

 private:
  /// The last of the messages below that went up on this stream.
  enum class Said : uint8_t {
    kNothing,  ///< Hello is due
    kHello,    ///< anything may follow, once welcomed
    kGoodbye,  ///< nothing follows
  };

  v1::WorkerMessage MakeHello() const;
  v1::WorkerMessage MakeHeartbeat();

  const WorkerIdentity identity_;
  uint64_t spec_hash_ = 0;
  Welcome welcome_;
  int64_t joins_ = 0;

  // Of the stream.
  Said said_ = Said::kNothing;
  bool joined_ = false;
  std::shared_ptr<TableAssembler> tables_;
  absl::Duration last_sent_at_ = absl::ZeroDuration();
  absl::Duration heartbeat_interval_ = kHeartbeatInterval;
  bool heartbeat_due_ = false;

  sample::EnvReport env_report_;  ///< as reported last, with all incidents
  size_t told_incidents_ = 0;     ///< how many of them the learner knows
  bool env_report_due_ = false;   ///< the learner may not know it
  bool goodbye_wanted_ = false;
  bool first_accepted_told_ = false;
  RetainedFragments fragments_;
  GrantQueue grants_;
};

}  // namespace troupe::rpc
