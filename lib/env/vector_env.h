#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {

/// K environments of one spec, stepped one after another (at the same time where they run elsewhere), with dense arrays
/// and automatic reset: for evaluation, random play and people who want arrays. Owns the environments. Not thread-safe.
///
/// When an episode ends in a Step, the next episode of that environment starts in the same Step: rewards and the flags
/// of the end are those of the episode that ended, observations, masks, states and readiness those of the new one. What
/// the ended one gave last is kept in final_buffers() when asked for.
class VectorEnv {
 public:
  struct Options {
    uint64_t seed = 0;
    base::EnvId first_env_id;          ///< global ids are first_env_id, first_env_id + 1, ...
    std::vector<base::EnvId> env_ids;  ///< or these, one an environment
    uint32_t first_episode = 0;        ///< ordinal of every environment's first episode
    bool keep_final = false;           ///< keep what an episode's last Step wrote
  };

  /// An episode that ended in the last Step.
  struct EpisodeEnd {
    int env = 0;  ///< index, not id
    EpisodeSeed seed;
    int64_t length = 0;           ///< env steps
    bool truncated = false;       ///< by TruncateAll
    std::vector<double> returns;  ///< one an agent slot, 0 for those that never appeared
  };

  /// INVALID_ARGUMENT without environments, for different specs, or a wrong number of env_ids.
  static absl::StatusOr<std::unique_ptr<VectorEnv>> Make(std::vector<std::unique_ptr<MultiAgentEnv>> envs,
                                                         Options options);

  /// Starts every environment's next episode.
  absl::Status Reset();
  /// `actions` is [K, agents, action_stride()]; only the rows of ready agents are read. After an error: Reset.
  absl::Status Step(absl::Span<const space::ActionWord> actions);
  /// A uniform action for every ready agent, masks honoured; other rows stay. Draws follow (seed, env id, episode, env
  /// step).
  void SampleActions(absl::Span<space::ActionWord> actions) const;

  const SlotBuffers& buffers() const { return *buffers_; }
  /// What the last Step of an ended episode wrote; only for environments in finished(), only with keep_final.
  const SlotBuffers& final_buffers() const { return *final_buffers_; }
  absl::Span<const EpisodeEnd> finished() const { return absl::MakeConstSpan(finished_.data(), num_finished_); }

  const EnvSpec& spec() const { return envs_[0]->spec(); }
  int num_envs() const { return static_cast<int>(envs_.size()); }
  int64_t action_stride() const { return action_stride_; }  ///< words an agent: the widest action row
  size_t action_size() const {
    return envs_.size() * spec().possible_agents.size() * static_cast<size_t>(action_stride_);
  }
  /// Steps of environments and actions of agents since it was made.
  int64_t env_steps() const { return env_steps_; }
  int64_t agent_steps() const { return agent_steps_; }

 private:
  struct Lane {
    EpisodeSeed seed;
    int64_t length = 0;
    std::vector<double> returns;
  };

  VectorEnv(std::vector<std::unique_ptr<MultiAgentEnv>> envs, Options options);
  void FillActionRows(int env, absl::Span<const space::ActionWord> actions);
  /// After an environment's step: counts it and, where the episode ended, starts the next one.
  absl::Status CountStep(int env);

  const std::vector<std::unique_ptr<MultiAgentEnv>> envs_;
  const Options options_;
  int64_t action_stride_ = 0;
  std::unique_ptr<SlotBuffers> buffers_;
  std::unique_ptr<SlotBuffers> final_buffers_;
  std::vector<Lane> lanes_;
  std::vector<const space::ActionWord*> action_rows_;
  std::vector<EpisodeEnd> finished_;  ///< the first num_finished_ count: their memory is reused
  size_t num_finished_ = 0;
  bool started_ = false;
  int64_t env_steps_ = 0;
  int64_t agent_steps_ = 0;
};

}  // namespace troupe::env
