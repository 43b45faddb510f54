#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/prepared_batch.h"

namespace troupe::training {

/// What a critic remembers of the trajectories in progress: a state for each agent that the run's
/// environments have, from the end of one batch to the next (ADR 32). What an update makes holds from Commit on. Owned
/// by a policy's learn group; used by one thread at a time.
class CriticCarry {
 public:
  /// Copies the state before `decision` of the trajectory that `segment` is a part of: zeros at its start, and where
  /// nothing is known of it. False where a decision is not the next one after those that the state is of, so that the
  /// critic does not remember all of the trajectory.
  bool Load(const learner::TrainSegment& segment, int64_t decision, absl::Span<float> state) const;
  /// `decision` of a trajectory that has ended: none follows, and one of a later trajectory of the agent is none of it.
  static constexpr int64_t kEnded = std::numeric_limits<int64_t>::max();
  /// `state` is of the trajectory's decisions before `decision`.
  void Store(const learner::TrainSegment& segment, int64_t decision, absl::Span<const float> state);
  /// Forgets what was stored since the last Commit.
  void Rollback() { stored_.clear(); }
  void Commit();

  size_t size() const { return states_.size(); }

 private:
  using Key = uint64_t;  // environment and agent slot: of the episodes of one, only the last can go on
  struct Entry {
    uint32_t episode = 0;
    int64_t decision = 0;
    std::vector<float> state;
  };

  static Key KeyOf(const learner::TrainSegment& segment);

  std::unordered_map<Key, Entry> states_;
  std::vector<std::pair<Key, Entry>> stored_;
};

/// What the critic says of a batch, in its own units.
struct CriticValues {
  std::vector<float> rows;     ///< [rows]
  std::vector<float> finals;   ///< [final_rows]
  int64_t broken_streams = 0;  ///< trajectories of which a critic did not remember all (CriticCarry)
};

/// Asks the policy's back end, between Begin and End. Of a critic that remembers each trajectory is run in time order
/// from what `carry` has of it; what it remembered before each sequence goes to prepared->targets.critic_memory, and
/// after the last row to `carry`. Of a critic behind the actor's core each sequence is run from what the actor
/// remembered before it when it acted, and a final row from what is remembered after the last row of its segment.
absl::StatusOr<CriticValues> ValuesOf(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                                      NetworkBackend* backend, PreparedBatch* prepared, CriticCarry* carry);

}  // namespace troupe::training
