#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/policy/ids.h"
#include "lib/rollout/ports.h"
#include "lib/rpc/transport/client_link.h"
#include "lib/rpc/transport/reconnecting_link.h"
#include "lib/rpc/worker/learner_presence.h"
#include "lib/rpc/worker/rollout_session.h"
#include "lib/rpc/worker/weight_subscriber.h"
#include "proto/troupe/v1/rollout.pb.h"

namespace troupe::rpc {

/// All that a worker's client decides: its rooms, and what concerns several of them. A session says and hears on one
/// link, a subscriber on the other, the presence has what people are told. Makes no call and waits for nobody. Made and
/// owned by WorkerClient.
///
/// Not thread-safe: WorkerClient holds its mutex, one for all rooms, as what they know is one thing: a Welcome of
/// another learner epoch drops weights, a table orders grants and slots, a grant that is over ends a wait for weights.
/// Never blocks; times are of the steady clock. What is dropped is given back, so that it can be destroyed outside the
/// lock. States: connecting -> joined -> (lost -> connecting ->)* -> ended. Invariants: 1. presence().there() is
/// session().joined(). 2. Only a joined worker opens the Weights stream, and not before its policies are known.
class WorkerProtocol {
 public:
  WorkerProtocol(WorkerIdentity identity, LearnerPresence::Options presence, ReconnectingLink rollout_link,
                 ReconnectingLink weight_link, absl::Duration now);

  RolloutSession& session() { return session_; }
  const RolloutSession& session() const { return session_; }
  WeightSubscriber& weights() { return weights_; }
  const WeightSubscriber& weights() const { return weights_; }
  LearnerPresence& presence() { return presence_; }
  const LearnerPresence& presence() const { return presence_; }
  const ReconnectingLink& rollout_link() const { return rollout_link_; }
  const ReconnectingLink& weight_link() const { return weight_link_; }

  /// Nothing is said or heard any more. The first error, which is one, counts.
  void End(const absl::Status& error);
  bool ended() const { return !end_status_.ok(); }
  /// OK while it has not ended.
  const absl::Status& end_status() const { return end_status_; }
  /// The learner has said that its run is over.
  bool run_ended() const { return run_ended_; }

  /// What is due, to be done outside the lock.
  struct Due {
    std::optional<std::string> away;  ///< to be told: the learner is away
    std::optional<uint64_t> there;    ///< ... or is back, in this epoch
    ReconnectingLink::Try rollout, weights;
    std::shared_ptr<ClientLink> cancel, kick;
    absl::Duration next = absl::InfiniteDuration();  ///< until something else is due
  };
  Due TakeDue(absl::Duration now, const std::function<std::shared_ptr<ClientLink>()>& make_link);
  /// What to say next over `link`; nullopt: nothing.
  std::optional<LinkOwner::Outgoing> NextMessage(const ClientLink* link, absl::Duration now);

  /// FAILED_PRECONDITION: of another spec than ours.
  absl::Status CheckSpec(const v1::Welcome& welcome) const;
  /// What a message of the Rollout stream has come to.
  struct Heard {
    bool first_accepted = false;  ///< of all fragments, the first was accepted
    bool first_invalid = false;   ///< ... or refused as invalid
    RetainedFragments::Freed fragments;
    GrantQueue::Dropped grants;
    WeightSubscriber::Dropped weights;
  };
  /// One that is in order, and of a Welcome one that passed; not a table. Ends by a grant or an ack that is none, by
  /// more grants than may wait, and by a refusal because the run is over.
  Heard OnMessage(const v1::LearnerMessage& message, absl::Duration now);
  /// Ends, or has the next try due in a while. Gives the link that it was.
  std::shared_ptr<ClientLink> OnLinkDone(const ClientLink* link, const absl::Status& status, absl::Duration now);

  /// Weights that AwaitWeights can give; nullopt: not there yet. Errors: AwaitWeights'.
  absl::StatusOr<std::optional<rollout::CurrentWeights>> FindWeights(policy::PolicySlot policy,
                                                                     policy::WeightVersion min_version) const;

 private:
  Heard OnWelcome(const v1::Welcome& welcome, absl::Duration now);
  absl::Status OnGrant(const v1::Grant& message);
  absl::StatusOr<Heard> OnAck(const v1::Ack& message);
  /// A refusal because the run is over is as a Drain that comes at once. Any other ends the stream with a status that
  /// says whether to try again.
  GrantQueue::Dropped OnRefusal(const v1::Refusal& refusal);

  LearnerPresence presence_;
  RolloutSession session_;
  ReconnectingLink rollout_link_;
  WeightSubscriber weights_;
  ReconnectingLink weight_link_;
  absl::Status end_status_;
  bool run_ended_ = false;
};

}  // namespace troupe::rpc
