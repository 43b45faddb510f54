#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"
#include "lib/inference/action_bounds.h"
#include "lib/policy/ids.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/incident_log.h"

namespace troupe::rollout {

/// What a watcher sees of an episode.
struct WatchedState {
  int64_t episode = 0;  ///< its number
  int64_t step = 0;     ///< env steps until now; 0: it begins, perhaps once more after a failure
  bool over = false;
  const env::MultiAgentEnv& env;
  absl::Span<const double> returns;               ///< until now, by agent slot
  absl::Span<const policy::PolicySlot> policies;  ///< likewise; kNoPolicy: not seen yet
};

/// Who watches episodes as they are played: told of each state before its agents act, and of the last one. Called by
/// the thread that plays; an error ends the evaluation.
class EpisodeWatcher {
 public:
  virtual ~EpisodeWatcher() = default;
  virtual absl::Status OnState(const WatchedState& state) = 0;
};

struct EvaluationRequest {
  int64_t episodes = 100;
  int64_t first_episode =
      0;  ///< number of the first one, so that several evaluators can share the episodes of one evaluation
  bool deterministic = false;         ///< the distribution's mode instead of a sample
  uint64_t seed = 0;                  ///< mixed with stream kEvaluation, so that no episode is one of training
  EpisodeWatcher* watcher = nullptr;  ///< nullptr: nobody
  int64_t max_episode_steps = 0;      ///< env steps after which an episode is cut; 0: no bound
  const std::atomic<bool>* cancelled = nullptr;  ///< true: the evaluation ends with CANCELLED; nullptr: never
  std::atomic<int64_t>* ended = nullptr;         ///< counts the episodes that have ended; nullptr: nobody asks
};

struct MeanStd {
  double mean = 0;
  double std = 0;  ///< of the episodes as a population
};

struct EvaluatedEpisode {
  int64_t length = 0;  ///< env steps
  /// By agent slot, undiscounted; the mean of its trajectories where the agent ended and returned; NaN for agents that
  /// never appeared.
  std::vector<double> returns;
  /// By agent slot: who played it; kNoPolicy for agents that never appeared.
  std::vector<policy::PolicySlot> policies;
  std::vector<double> infos;               ///< by info column: mean over agents and steps; NaN when never set
  uint64_t seed = 0;                       ///< its env::EpisodeSeed::ResetSeed
  bool cut = false;                        ///< it had not ended after EvaluationRequest::max_episode_steps
  std::vector<int32_t> trajectories = {};  ///< by agent slot; empty: one each, no agent has returned

  /// Over the agents that appeared, all trajectories of each; 0 when none did.
  double return_sum() const;
  /// Over the agents that appeared, by what `returns` has; 0 when none did.
  double return_mean() const;
};

struct EvaluatedAgent {
  std::string id;
  MeanStd episode_return;  ///< over the episodes in which it appeared; NaN when there is none
};

struct EvaluatedInfo {
  std::string column;
  MeanStd value;  ///< over the episodes that set it
};

/// Outcome of an evaluation; sum and mean are over the agents that appeared in an episode.
struct EvaluationResult {
  int64_t episodes = 0;
  int64_t cut = 0;  ///< of these
  MeanStd return_sum;
  MeanStd return_mean;
  std::vector<EvaluatedAgent> agents;  ///< by agent slot
  std::vector<std::string> info_columns;
  std::vector<EvaluatedInfo> infos;  ///< of the columns that any episode set
  double episode_length_mean = 0;
  std::vector<EvaluatedEpisode> each;  ///< in the order of their numbers
};

/// The aggregates of `episodes`.
EvaluationResult Aggregate(const env::EnvSpec& spec, std::vector<EvaluatedEpisode> episodes);

/// Plays whole episodes with fixed weights and sends nothing anywhere: its own environments, no samples, no counters,
/// normalizers as the weights bring them.
///
/// Episode i has the random numbers of (seed, env id i, ordinal 0) whatever is played beside it, and every episode that
/// is begun is finished, or cut after max_episode_steps, and counted: exactly `episodes` of them, without a bias to
/// short ones. The numbers of parallel environments and their order change nothing but the speed. What policies
/// remember of its agents begins at zero with each episode. A listener of the configuration whose environments are to
/// be told (EpisodeListener::TellsEnvs) is not used otherwise: whoever asks for the evaluation has its episodes.
///
/// Made and used by one thread; blocks as long as the environments do.
class Evaluator {
 public:
  /// So often an episode is begun in all when its environment, or a policy in another process, fails.
  static constexpr int kMaxTries = 3;

  /// `num_envs` environments step side by side. Errors as Collector::Create, or of the factory.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(RolloutConfig config, int num_envs = 64);

  ~Evaluator();

  /// `weights` by policy slot; those of a class without are not looked at. INVALID_ARGUMENT for weights that do not fit
  /// or no episodes; CANCELLED as the request says, before the next call of an environment; an error that an
  /// environment gives in each of an episode's kMaxTries tries ends the evaluation.
  absl::StatusOr<EvaluationResult> Run(const EvaluationRequest& request,
                                       absl::Span<const policy::WeightSnapshotPtr> weights);

 private:
  struct Place;  // of one environment
  struct Rows;   // of one policy, in one round
  Evaluator(RolloutConfig config, std::vector<std::unique_ptr<env::CheckedEnv>> envs);

  /// CANCELLED once the request says so.
  absl::Status CheckCancelled() const;
  /// Tells the watcher, where there is one.
  absl::Status Show(size_t place, bool over) const;
  absl::Status StartEpisode(size_t place, int64_t number, uint64_t seed);
  absl::Status Gather(size_t place);
  /// One more of an agent that had ended: it remembers nothing.
  void BeginTrajectory(Place& place, size_t slot) const;
  absl::Status ResetPlace(size_t place, uint64_t seed);
  /// Those that agents were given in a reset or step.
  void CountInfos(size_t place);
  /// After a Reset or Step that failed with `status`: plays the episode once more from its beginning, kMaxTries times
  /// in all. OK at once for an OK `status`.
  absl::Status BeginAgain(size_t place, absl::Status status, uint64_t seed);
  /// A policy that runs elsewhere could not act: the episodes that it plays in begin again.
  void FailToAct(policy::PolicySlot policy, const absl::Status& status);
  /// What the ready agents of the environment do, and what their policies remember from now on.
  void GatherActions(size_t place);
  absl::Status StepAll(std::vector<EvaluatedEpisode>& episodes, uint64_t seed);
  absl::Status StepPlace(size_t place, std::vector<EvaluatedEpisode>& episodes, uint64_t seed);
  /// Asks for the agent's policy in the episode.
  absl::Status MapAgent(Place& place, size_t slot);

  /// The env id that stands for the `index`-th episode of this Run.
  base::EnvId EnvIdOf(int64_t index) const {
    return base::EnvId(static_cast<uint32_t>(request_.first_episode + index));
  }

  const RolloutConfig config_;
  EvaluationRequest request_;  ///< of this Run
  IncidentLog incidents_;      ///< what was said of episodes that failed
  std::vector<std::unique_ptr<env::CheckedEnv>> envs_;
  env::SlotBuffers buffers_;
  std::vector<policy::MappedAgent> mapped_;  // of the episode whose agent is being mapped
  std::vector<std::unique_ptr<Place>> places_;
  policy::BySlot<std::unique_ptr<Rows>> rows_;
  policy::BySlot<inference::ActionBounds> bounds_;
  size_t memory_size_ = 0;  ///< of the widest policy
};

}  // namespace troupe::rollout
