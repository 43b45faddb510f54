#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/env_report.h"
#include "lib/sample/grant.h"
#include "lib/space/space.h"

namespace troupe::rollout {

/// Where fragments go: a gRPC stream, or the learner in the same process. Thread-safe.
class SampleSink {
 public:
  virtual ~SampleSink() = default;
  /// Hands a fragment on and keeps it alive until its ack. Blocks while the byte credit is used up (back-pressure).
  /// CANCELLED when the sink is closing, UNAVAILABLE when the learner is gone for good; the fragment is lost then.
  /// ABORTED: the fragment is handed on, but its grant is over; the rest of it need not be sampled.
  virtual absl::Status Submit(sample::MultiAgentBatchPtr fragment) = 0;
  /// How the environments do so far: what it says is known before the fragment of the next Submit. Each incident is
  /// reported once. Never blocks.
  virtual void ReportEnvs(const sample::EnvReport& /*report*/) {}
};

/// Where orders come from. Thread-safe.
class GrantSource {
 public:
  virtual ~GrantSource() = default;
  /// The next grant; nullopt after `timeout`. CANCELLED after a drain or shutdown: nothing more will come.
  virtual absl::StatusOr<std::optional<sample::Grant>> AwaitGrant(absl::Duration timeout) = 0;
};

/// Weights of a policy.
struct CurrentWeights {
  policy::WeightSnapshotPtr snapshot;
  /// As of which they are known to be the newest: the snapshot's, or a later one that left the policy as it was.
  policy::WeightVersion version;
};

/// Who watches the episodes of a worker. Used by the collector's thread, which it may hold up.
class EpisodeListener {
 public:
  virtual ~EpisodeListener() = default;
  /// True if environments are told who plays and when an episode is over (MultiAgentEnv::NoteDecision, NoteEnd).
  virtual bool TellsEnvs() const { return false; }
  /// Episodes that ended, in the order in which they did; `policies`: those that the run has now.
  virtual void OnEnded(absl::Span<const sample::FinishedEpisode> episodes,
                       const policy::BySlot<policy::PolicySpec>& policies) = 0;
  /// Adds what it has found to what the worker says.
  virtual void AddTo(sample::EnvReport* report) const = 0;
};

/// Where weights come from: the newest of the policies that are subscribed to. Thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// AwaitWeights will be asked for `policy`: it is fetched ahead and kept up to date, until Unsubscribe, after which
  /// its memory is free. Idempotent; never blocks. Nothing to do where all weights are at hand.
  virtual void Subscribe(policy::PolicySlot /*policy*/) {}
  virtual void Unsubscribe(policy::PolicySlot /*policy*/) {}
  /// The newest weights of `policy` that are current as of `min_version`, waiting for them up to `timeout`:
  /// DEADLINE_EXCEEDED, or CANCELLED when closing. Subscribes to it. ABORTED: the slot no longer has the policy that it
  /// had by the policies of the grant that was taken last, which is over therefore; or that grant was out for too long.
  virtual absl::StatusOr<CurrentWeights> AwaitWeights(policy::PolicySlot policy, policy::WeightVersion min_version,
                                                      absl::Duration timeout) = 0;
};

/// An action that was decided outside, by whatever policy. Valid until its step is started.
struct LoggedAction {
  const space::ActionWord* words = nullptr;  ///< as the policy gives them
  float logp = 0;
  uint64_t weights = 0;  ///< which decided, as OutsideWorlds numbers them; 0: nobody said
};

/// Episodes that are played outside of this process, which the environments of lanes pass on: see outside::EpisodeBook.
/// Such an environment runs elsewhere, begins an episode only when one is there (Reset then never waits) and finishes a
/// step only when it was answered. Thread-safe.
class OutsideWorlds {
 public:
  virtual ~OutsideWorlds() = default;
  /// An episode waits for a lane.
  virtual bool HasEpisode() const = 0;
  /// Finish of the lane's step returns at once: the world has taken the step, or its episode is lost (CANCELLED).
  virtual bool Answered(base::EnvId env_id) const = 0;
  /// Nothing more will come: grants end.
  virtual bool closed() const = 0;
  /// Waits up to `timeout` for what one of these tells since the last call.
  virtual void Await(absl::Duration timeout) = 0;
  /// What the agent, which acts now, does by its own decision; nullptr: what its policy says.
  virtual const LoggedAction* Logged(base::EnvId env_id, base::AgentSlot agent) const = 0;
  /// Before the step is started: the log-probability of the agent's action.
  virtual void SetLogp(base::EnvId env_id, base::AgentSlot agent, float logp) = 0;
  /// The lane's episode, if there is one, is over for everybody; its client hears `reason`.
  virtual void Drop(base::EnvId env_id, const absl::Status& reason) = 0;

  // For clients that act by themselves, with the weights that the lanes' policies act with.

  /// Episodes that begin from now on are played by these policies; nullptr: by those that the run began with.
  virtual void SetPolicies(policy::PolicyTablePtr policies) = 0;
  /// The policy in `slot` acts with these weights from now on, and its rows say `version`.
  virtual void SetWeights(policy::PolicySlot slot, policy::WeightSnapshotPtr weights,
                          policy::WeightVersion version) = 0;
  /// What the agent's rows say that the weights of that number decided, where the policy in `slot` plays it; nullopt:
  /// they are too old, or another policy played it then.
  virtual std::optional<policy::WeightVersion> VersionOf(uint64_t weights, base::AgentSlot agent,
                                                         policy::PolicySlot slot) const = 0;
};

}  // namespace troupe::rollout
