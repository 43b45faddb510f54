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

/// The episode in progress of a lane.
struct LaneEpisode {
  /// Another one begins, before its first step.
  void Begin(uint32_t number, std::shared_ptr<const policy::PolicyMapping> mapped_by, int64_t at_revision);

  bool running = false;
  uint32_t ordinal = 0;
  std::shared_ptr<const policy::PolicyMapping> mapping;  ///< maps its agents
  int64_t revision = 0;                                  ///< ... and the revision of its table
  int64_t began = 0;                                     ///< since the last round: when, of those that did; else 0
  int32_t step = 0;                                      ///< env steps taken
  std::vector<double> info_sum;                          ///< by info column
  std::vector<int64_t> info_count;
};

/// The share of a lane in the grant in progress.
struct LaneGrant {
  int64_t steps_wanted = 0;
  int64_t steps_taken = 0;
  int group = 0;               ///< of those that step at the same time, see Collector::RunLanes
  int64_t episodes_begun = 0;  ///< in the grant; of worlds outside
};

/// The place of a lane in the fragment being filled.
struct LaneFragment {
  int32_t episode_index = -1;   ///< in its episode table
  int32_t unused_episode = -1;  ///< in it: of the lane's last episode, which could not begin
  int64_t steps = 0;            ///< taken in it; of worlds outside
  int32_t env_row = -1;         ///< in its env-step tables: the step at which the ready agents act next
  /// Final rows written in the last call that point at env_row: (policy, final row).
  std::vector<std::pair<policy::PolicySlot, int32_t>> finals_at_env_row;
};

/// The environment's call in progress, and the one that is to come.
struct LaneCall {
  /// A call is about to write; what started it stays.
  void Begin(bool is_step);
  /// The episode is over for all agents.
  bool ended() const { return all_terminated || all_truncated; }

  bool in_flight = false;     ///< the environment computes elsewhere, and its call was started
  bool is_slow = false;       ///< of worlds outside: nobody waits for its answer any more
  absl::Status start_status;  ///< the status of starting the call
  absl::Status act_status;    ///< an agent's policy could not act: the step is not taken
  bool stepping = false;      ///< it is a Step, not a Reset
  bool all_terminated = false;
  bool all_truncated = false;
  bool agent_ended = false;
  std::vector<base::AgentSlot> observed;  ///< in the order of their rows
  int32_t final_env_row = -1;             ///< of the step just observed, when the episode ended with it
};

/// The memories that the policies of a lane have of its agents.
struct LaneMemory {
  /// Makes room for so many numbers of each agent. What is in it stays.
  void Fit(size_t num_agents, size_t widest);
  /// The memory of the policy of the agent in `slot` before its decision of that number.
  float* Of(size_t slot, int32_t decision) {
    return values.data() + (slot * 2 + static_cast<size_t>(decision % 2)) * size;
  }

  /// [agents, 2, size]. That of before an agent's decision d is at d % 2, so that a decision which waits for its
  /// outcome keeps what it was made from; nothing is there of what comes before d = 0 until it is made.
  std::vector<float> values;
  size_t size = 0;  ///< of the widest policy
};

/// The actions of a lane as its environment gets them, by agent slot.
struct LaneActions {
  std::vector<const space::ActionWord*> rows;
  std::vector<space::ActionWord> bounded;
};

/// The rows that a lane takes along from one fragment to the next.
struct LaneCarried {
  std::vector<CarriedAgent> agents;
  std::vector<std::byte> obs;  ///< [agents, widest observation]
  std::vector<uint8_t> mask;   ///< [agents, widest mask]
  /// [agents + 1, state]: of pending or ready agents; the last one the env's, which is also written there as it comes
  /// where no fragment has it.
  std::vector<float> state;
  std::vector<space::ActionWord> actions;  ///< [agents, most words]
};

/// One environment of a worker, with its episode in progress. Owned and used by the collector's thread.
struct Lane {
  base::EnvId env_id;
  std::unique_ptr<env::CheckedEnv> env;
  uint32_t next_episode = 0;                 ///< ordinal of the next episode
  bool known = false;                        ///< next_episode is ours, not only the grant's
  std::vector<policy::PolicySlot> upcoming;  ///< policies of the next episode, by agent slot
  int64_t consecutive_errors = 0;
  bool has_failed = false;  ///< an episode of it, ever
  std::vector<AgentState> agents;

  LaneEpisode episode;
  LaneGrant grant;
  LaneFragment fragment;
  LaneCall call;
  LaneMemory memory;
  LaneActions actions;
  LaneCarried carried;

  AgentState& agent(base::AgentSlot slot) { return agents[static_cast<size_t>(slot.value())]; }
};

}  // namespace troupe::rollout
