#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/caller.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"
#include "lib/outside/acting_policies.h"
#include "lib/outside/check_step.h"
#include "lib/outside/episode_step.h"
#include "lib/outside/limits.h"
#include "lib/rollout/ports.h"

namespace troupe::outside {

/// Why no episode goes on.
enum class Closing : uint8_t {
  kWorkerEnds,  ///< the process ends, or its learner is lost: another may take its place
  kRunEnded,    ///< in order: there is nothing to come back to
};
/// True if an error of a book says that the run has ended (Closing::kRunEnded).
bool SaysRunEnded(const absl::Status& status);

/// The episodes that clients play in worlds of their own, between the clients' calls and the lanes of a Collector, to
/// which each is an environment (LaneEnv). It decides nothing about actions; it is no server.
///
/// Made by a process that samples, which outlives its lanes and the service that calls it. Thread-safe. Clients' calls
/// never block: an Answer is called once, by the call itself, by the thread that steps lanes, or by Tick or Close, and
/// never under the lock. Await blocks its lane's thread.
///
/// States of an episode: kClient (its client's turn) -> kWaits (its first step waits for a lane) -> kLane (a step waits
/// for the lane) -> kActed (the answer is out: its client's turn again) -> kLane ...; kClient, kActed -> kEnded (the
/// lane has yet to hear of it); any -> over. Invariants: 1. one step of an episode waits, or none; 2. a lane has one
/// episode, or none; 3. what a call that is refused brings is forgotten. Capacity: EpisodeLimits. Close: every call
/// gets UNAVAILABLE, which tells whether the run has ended.
class EpisodeBook final : public rollout::OutsideWorlds {
 public:
  using Answer = std::function<void(absl::StatusOr<std::vector<AgentAction>>)>;
  /// Since it was made.
  struct Counters {
    int64_t begun = 0;
    int64_t ended = 0;    ///< by EndEpisode
    int64_t lost = 0;     ///< their clients fell silent or went away
    int64_t dropped = 0;  ///< by the worker: given away, truncated by a limit of the configuration
  };

  EpisodeBook(env::EnvSpec spec, const EpisodeLimits& limits, const base::Clock* clock);
  ~EpisodeBook() override;

  // Of clients. Errors are those of proto/troupe/v1/episodes.proto.

  /// The new episode's id: `wanted`, or one that is drawn.
  absl::StatusOr<std::string> Start(const base::Caller& caller, const std::string& wanted);
  /// A step, of kGetActions or kLogActions. What stands for the call: 0 where it was answered at once.
  uint64_t Act(const std::string& id, StepKind kind, const StepReport& report, Answer answer);
  /// The client of an Act has gone: where it was not answered yet, its episode is lost.
  void GiveUp(const std::string& id, uint64_t call);
  /// All of the rewards are added, or none.
  absl::Status LogReturns(const std::string& id, const std::vector<std::pair<std::string, double>>& returns);
  absl::Status EndEpisode(const std::string& id, End end, const StepReport& report);

  /// Loses episodes that were idle for too long. Now and then.
  void Tick();
  /// No episode goes on, and no other begins. Idempotent; the first one counts.
  void Close(Closing why = Closing::kWorkerEnds);
  /// After Close(kRunEnded): waits, up to `timeout`, until a call of each episode that was open then has been told. A
  /// client that does something else than wait for an answer finds nobody there otherwise, as after a crash.
  void AwaitTold(absl::Duration timeout);

  /// The answer to calls after Close; OK: it is open.
  absl::Status closing() const;
  const env::EnvSpec& spec() const { return spec_; }
  /// For clients that act by themselves.
  ActingPolicies& acting() { return acting_; }
  Counters counters() const;
  size_t num_open() const;

  // Of lanes: rollout::OutsideWorlds.
  bool HasEpisode() const override;
  bool Answered(base::EnvId env_id) const override;
  bool closed() const override;
  void Await(absl::Duration timeout) override;
  const rollout::LoggedAction* Logged(base::EnvId env_id, base::AgentSlot agent) const override;
  void SetLogp(base::EnvId env_id, base::AgentSlot agent, float logp) override;
  void Drop(base::EnvId env_id, const absl::Status& reason) override;
  void SetPolicies(policy::PolicyTablePtr policies) override { acting_.SetPolicies(std::move(policies)); }
  void SetWeights(policy::PolicySlot slot, policy::WeightSnapshotPtr weights, policy::WeightVersion version) override {
    acting_.SetWeights(slot, std::move(weights), version);
  }
  std::optional<policy::WeightVersion> VersionOf(uint64_t weights, base::AgentSlot agent,
                                                 policy::PolicySlot slot) const override {
    return acting_.VersionOf(weights, agent, slot);
  }

  // Of LaneEnv.

  /// The episode that has waited longest is this lane's, in the place of one that it has. CANCELLED: none waits.
  absl::Status Take(base::EnvId env_id);
  /// The lane's agents act: its client hears what they do.
  void Play(base::EnvId env_id, env::ActionRows actions);
  /// Writes the step that waits for the lane. CANCELLED: there is none, or the episode is lost; it is to be dropped
  /// then.
  absl::Status Write(base::EnvId env_id, env::StepWriter& out);

 private:
  enum class Phase : uint8_t { kClient, kWaits, kLane, kActed, kEnded, kLost };
  enum class AgentPhase : uint8_t { kUnseen, kActed, kDone };
  struct Episode;
  using EpisodePtr = std::shared_ptr<Episode>;
  using Answers = std::vector<std::pair<Answer, absl::Status>>;  ///< to be called without the lock

  static void Call(Answers answers);
  absl::StatusOr<EpisodePtr> FindLocked(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The episode, where it is its client's turn.
  absl::StatusOr<EpisodePtr> FindIdleLocked(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Episode* OfLaneLocked(base::EnvId env_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// A fragment with another return would be refused, whoever else is in it.
  absl::Status CheckReturn(const std::string& agent, double value) const;
  /// What can be said of a step only where the episode stands. FAILED_PRECONDITION.
  absl::Status CheckTurnsLocked(const Episode& episode, const CheckedStep& step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// What the step brings is the lane's to write.
  void PostLocked(Episode& episode, CheckedStep step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TryActLocked(const std::string& id, CheckedStep step, Answer& answer, uint64_t& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The episode is over for its client, who hears `reason`; a lane that has it hears of that when it looks.
  void LoseLocked(const EpisodePtr& episode, const absl::Status& reason, Answers& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Its id is nobody's any more.
  void ForgetLocked(const Episode& episode, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t NumOfLocked(const std::string& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Which of those that wait is the next in a lane: of the hosts that have fewest lanes the one that came first.
  std::deque<EpisodePtr>::iterator NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const env::EnvSpec spec_;
  const EpisodeLimits limits_;
  const base::Clock* const clock_;
  ActingPolicies acting_;

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status closing_ ABSL_GUARDED_BY(mutex_);          ///< what calls get then
  std::set<std::string> untold_ ABSL_GUARDED_BY(mutex_);  ///< ids of episodes that ended with the run, see AwaitTold
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::string, EpisodePtr> episodes_ ABSL_GUARDED_BY(mutex_);  ///< by id
  std::map<base::EnvId, EpisodePtr> lanes_ ABSL_GUARDED_BY(mutex_);
  std::deque<EpisodePtr> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> over_ ABSL_GUARDED_BY(mutex_);  ///< id -> what became of the episode
  std::deque<std::string> over_ids_ ABSL_GUARDED_BY(mutex_);         ///< oldest first
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::outside
