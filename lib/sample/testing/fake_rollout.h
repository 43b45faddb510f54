#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "lib/base/ids.h"
#include "lib/base/philox.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/grant.h"
#include "lib/sample/testing/batch_builder.h"

namespace troupe::sample {

/// What FakeRollout's made-up environments do.
struct FakeRolloutOptions {
  uint64_t seed = 1;
  int32_t min_episode_steps = 25;
  int32_t max_episode_steps = 25;
  bool agents_come_and_go = false;           ///< agents appear late and leave early
  double ready_probability = 1.0;            ///< below 1: agents miss turns, so that transitions stay pending over cuts
  double terminated_probability = 0.5;       ///< of an agent's end; else truncated
  double agent_mask_probability = 0.9;       ///< of a 1, when the schema has an agent mask
  int32_t max_ticks_per_fragment = 1 << 20;  ///< steps of every lane after which a fragment is cut
  /// By agent slot: the policies that may play it, one drawn per episode. Empty: the first whose observations fit.
  std::vector<std::vector<int32_t>> policies_of_slot;
};

/// A sampler for tests: takes grants and gives the fragments that a worker would, from environments in which everything
/// is a pure function of (seed, env id, episode, slot, step). Keeps running episodes between grants, as a worker does.
/// Follows the policies of its grants: episodes that begin are mapped by them, and one that a policy played which is no
/// longer in its slot is given up. Not thread-safe.
class FakeRollout {
 public:
  /// Observation spaces of policies are flat Boxes.
  FakeRollout(BatchSchema schema, FakeRolloutOptions options);

  /// Samples the grant with weights of `version`.
  std::vector<std::shared_ptr<MultiAgentBatch>> Play(const Grant& grant, policy::WeightVersion version);
  /// How often each (env id, episode) was begun here.
  const std::map<std::pair<base::EnvId, uint32_t>, int>& begun() const { return begun_; }

 private:
  struct Agent {
    int32_t policy = 0;
    int32_t appears = 0;
    int32_t leaves = 0;
    bool pending = false;
    int32_t pending_step = 0;
    int64_t pending_tick = 0;  ///< -1: acted in an earlier fragment
    int64_t pending_version = 0;
    int32_t decisions = 0;  ///< the pending one included
    float pending_reward = 0;
    float return_sum = 0;
  };
  struct Lane {
    bool running = false;
    bool carried = false;  ///< the running episode began in an earlier fragment
    uint32_t episode = 0;
    uint32_t next_episode = 0;
    int32_t step = 0;
    int32_t length = 0;
    int64_t revision = 0;  ///< of the policies that the running episode was mapped by
    std::vector<Agent> agents;
  };
  struct DoneRow;
  struct Draft;
  struct Places;

  double Draw(base::EnvId env_id, uint32_t episode, int32_t slot, int32_t step, uint32_t what) const;
  bool Ready(const Lane& lane, base::EnvId env_id, int32_t slot) const;
  int64_t revision() const { return table_ == nullptr ? 0 : table_->revision(); }
  void Adopt(policy::PolicyTablePtr table);
  int32_t PolicyOf(int32_t slot, base::EnvId env_id, uint32_t episode) const;
  void Begin(Lane& lane, base::EnvId env_id);
  void Step(Lane& lane, base::EnvId env_id, int64_t tick, int64_t version, Draft& draft);
  void Complete(Lane& lane, base::EnvId env_id, int32_t slot, bool terminated, bool truncated, Draft& draft);
  /// Agents that are observed now complete their transition; the others stay pending and travel in a later fragment.
  void CompleteObserved(const Grant& grant, Draft& draft);
  Places AddPlaces(const Draft& draft, BatchBuilder& builder) const;
  /// Where what followed a row is found: an env row, or a final one that is added for it.
  int FinalEnvRowAfter(const DoneRow& row, Places& places, BatchBuilder& builder) const;
  void AddRows(const Draft& draft, policy::WeightVersion version, Places& places, BatchBuilder& builder) const;
  std::shared_ptr<MultiAgentBatch> Cut(const Grant& grant, policy::WeightVersion version, bool last, Draft& draft);
  RowValues ValuesOf(const DoneRow& row) const;
  RowValues Values(base::EnvId env_id, uint32_t episode, int32_t slot, int32_t step, int32_t policy) const;
  std::vector<float> EnvState(base::EnvId env_id, uint32_t episode, int32_t step) const;

  BatchSchema schema_;  ///< with the policies of table_
  policy::PolicyTablePtr table_;
  const FakeRolloutOptions options_;
  std::map<base::EnvId, Lane> lanes_;
  std::map<std::pair<base::EnvId, uint32_t>, int> begun_;
};

}  // namespace troupe::sample
