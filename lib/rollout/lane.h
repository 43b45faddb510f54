#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/ids.h"
#include "lib/env/checked_env.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_mapping.h"
#include "lib/space/space.h"

namespace troupe::rollout {

/// Where an agent stands in its episode: kUnseen -> kReady <-> kPending; kReady, kPending -> kDone -> kReady.
enum class AgentPhase : uint8_t {
  kUnseen,   ///< not observed yet
  kReady,    ///< observed, acts next
  kPending,  ///< acted, not observed since
  kDone,     ///< its trajectory is over; observed again it begins another
};

/// How an agent's trajectory ended in an environment's call.
enum class AgentEnd : uint8_t { kNone, kTerminated, kTruncated };

/// What a lane knows of one agent. Row and segment numbers are of the fragment being filled, -1: none.
struct AgentState {
  policy::PolicySlot policy = policy::kNoPolicy;  ///< none until the first observation or reward of the episode
  AgentPhase phase = AgentPhase::kUnseen;
  AgentEnd end = AgentEnd::kNone;  ///< in the current call
  bool active = true;              ///< agent mask of its next decision
  bool observed = false;           ///< in the current call
  bool acts = false;               ///< it decided in the current round
  bool carried = false;            ///< its open decision was made for an earlier fragment, or by older weights
  int64_t row = -1;       ///< its decision that is open: to be made (kReady) or waiting for its outcome (kPending)
  int64_t next_row = -1;  ///< the row of its observation in the current call
  int64_t last_row = -1;  ///< its last complete row in the segment
  int32_t segment = -1;
  int32_t decisions = 0;      ///< that it has made in its trajectory
  int32_t decided_at = 0;     ///< env steps that its episode had when it made the last of them
  int32_t trajectories = 1;   ///< of the episode, the present one included
  double episode_return = 0;  ///< of all of them
};

/// What an agent takes along from one fragment to the next.
struct CarriedAgent {
  bool has_row = false;
  bool active = true;
  // Of a pending decision:
  policy::WeightVersion version;
  bool of_client = false;  ///< a client made it by itself, with older weights
  int32_t env_step = 0;
  float action_logp = 0;
  float reward = 0;
};

/// One environment of a worker, with its episode in progress. Owned and used by the collector's thread.
struct Lane {
  base::EnvId env_id;
  uint32_t next_episode = 0;  ///< ordinal of the next episode
  bool known = false;         ///< next_episode is ours, not only the grant's
  std::unique_ptr<env::CheckedEnv> env;

  // The episode in progress.
  bool in_episode = false;
  uint32_t episode = 0;
  std::shared_ptr<const policy::PolicyMapping> mapping;  ///< what the episode's agents are mapped by
  int64_t revision = 0;                                  ///< ... and the revision of its table
  int64_t began = 0;                                     ///< since the last round: when, of those that did; else 0
  std::vector<policy::PolicySlot> upcoming;              ///< policies of the next episode, by agent slot
  int32_t step = 0;                                      ///< env steps taken
  std::vector<AgentState> agents;
  std::vector<double> info_sum;  ///< by info column
  std::vector<int64_t> info_count;
  int64_t consecutive_errors = 0;
  bool has_failed = false;  ///< an episode of it, ever

  // The grant in progress.
  int64_t steps_wanted = 0;
  int64_t steps_taken = 0;
  int group = 0;               ///< of those that step at the same time, see Collector::RunLanes
  bool in_flight = false;      ///< its environment computes elsewhere, and its call was started
  bool is_slow = false;        ///< of worlds outside: nobody waits for its answer any more
  int64_t episodes_begun = 0;  ///< in the grant; of worlds outside
  absl::Status start_status;   ///< what starting the call came to
  absl::Status act_status;     ///< an agent's policy could not act: the step is not taken

  // The fragment being filled.
  int32_t episode_index = -1;   ///< in its episode table
  int32_t unused_episode = -1;  ///< in it: of the lane's last episode, which could not begin
  int64_t fragment_steps = 0;   ///< taken in it; of worlds outside
  int32_t env_row = -1;         ///< in its env-step tables: the step at which the ready agents act next

  // The environment's call in progress.
  bool stepping = false;  ///< it is a Step, not a Reset
  bool all_terminated = false;
  bool all_truncated = false;
  bool agent_ended = false;
  std::vector<base::AgentSlot> observed;  ///< in the order of their rows
  int32_t final_env_row = -1;             ///< of the step just observed, when the episode ended with it
  /// Final rows written in the last call that point at env_row: (policy, final row).
  std::vector<std::pair<policy::PolicySlot, int32_t>> finals_at_env_row;

  /// [agents, 2, memory_size]: what policies remember. That of before an agent's decision d is at d % 2, so
  /// that a decision which waits for its outcome keeps what it was made from; nothing is there of what comes before d =
  /// 0 until it is made.
  std::vector<float> memory;
  size_t memory_size = 0;  ///< of the widest policy

  // Actions as the environment gets them, by agent slot.
  std::vector<const space::ActionWord*> actions;
  std::vector<space::ActionWord> bounded_actions;

  // Between two fragments.
  std::vector<CarriedAgent> carried;
  std::vector<std::byte> carried_obs;  ///< [agents, widest observation]
  std::vector<uint8_t> carried_mask;   ///< [agents, widest mask]
  /// [agents + 1, state]: of pending or ready agents; the last one the env's, which is also written there as it comes
  /// where no fragment has it.
  std::vector<float> carried_state;
  std::vector<space::ActionWord> carried_actions;  ///< [agents, most words]

  AgentState& agent(base::AgentSlot slot) { return agents[static_cast<size_t>(slot.value())]; }
};

}  // namespace troupe::rollout
