#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/inference/action_bounds.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/policy_mapping.h"
#include "lib/rollout/fragment_builder.h"
#include "lib/rollout/ports.h"
#include "lib/rollout/rollout_options.h"
#include "lib/sample/grant.h"

namespace troupe::rollout {

/// Makes an environment of the run. Called once for every lane, on the collector's thread.
using EnvFactory = std::function<absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>>()>;

/// What sampling needs to know of a run. Plain value.
struct RolloutConfig {
  env::EnvSpec env_spec;                     ///< every environment's; a factory that gives another is an error
  std::vector<policy::PolicySpec> policies;  ///< by policy slot
  std::shared_ptr<const policy::PolicyMapping> mapping;  ///< asked once per agent and episode
  EnvFactory env_factory;
  RolloutOptions options;
  inference::Backend backend = inference::Backend::kAuto;
};

/// Totals since the collector was made.
struct RolloutStats {
  int64_t env_steps = 0;
  int64_t agent_steps = 0;  ///< rows handed on with agent_mask 1
  int64_t episodes = 0;     ///< that ended by themselves
  int64_t fragments = 0;
  int64_t env_errors = 0;    ///< Resets and Steps that failed; each ended its episode
  int64_t carried_rows = 0;  ///< decisions whose outcome went into a later fragment
  int64_t dropped_rows = 0;  ///< decisions given up after an environment error or a restart of the learner
  int64_t missing_all = 0;   ///< episodes that ended because all agents were done, without `__all__`
};

/// Executes grants: steps the environments of a worker, acts for all agents and hands fragments to a sink. One lane per
/// granted environment, made at its first grant; an episode goes on from grant to grant until a grant says `fresh`.
///
/// An environment that fails ends its episode: what was complete is kept and cut as truncated, the failure is counted,
/// and the lane begins its next episode; that step is taken again. kMaxConsecutiveErrors of one environment in a row
/// end the grant with its error.
///
/// Made and used by one thread (the stepping thread) but for RequestStop. Blocks in the sink's Submit only, and as long
/// as environments do. No heap allocation in the steady state but two or three per fragment.
class Collector {
 public:
  static constexpr int64_t kMaxConsecutiveErrors = 100;

  /// INVALID_ARGUMENT for policies or a spec that do not fit, or when one env step of one environment may not fit a
  /// fragment.
  static absl::StatusOr<std::unique_ptr<Collector>> Create(RolloutConfig config);

  /// Samples what `grant` says with `weights` (by policy slot; nullptr for a class without) and submits the fragments;
  /// the last one says so, and there is at least one. INVALID_ARGUMENT: a grant without lanes in ascending order, or
  /// weights that do not fit. FAILED_PRECONDITION: weights of a policy that trains, older than the grant allows.
  /// CANCELLED after RequestStop (what was sampled has been submitted) or from the sink. Other codes are those of the
  /// sink or of environments; lanes stay usable.
  absl::Status RunGrant(const sample::Grant& grant, absl::Span<const policy::WeightSnapshotPtr> weights,
                        SampleSink& sink);

  /// Makes RunGrant return after the round in progress. Thread-safe; stays requested.
  void RequestStop() { stop_.store(true, std::memory_order_relaxed); }

  RolloutStats stats() const;
  const RolloutConfig& config() const { return config_; }

 private:
  Collector(RolloutConfig config, std::vector<std::unique_ptr<inference::PolicyActor>> actors);

  absl::Status PrepareLanes(const sample::Grant& grant);
  absl::StatusOr<Lane*> FindLane(uint32_t env_id);
  absl::Status AdoptWeights(const sample::Grant& grant, absl::Span<const policy::WeightSnapshotPtr> weights);
  /// Samples `lanes` (a group whose rounds fit a fragment) to the end of the grant.
  absl::Status RunLanes(const sample::Grant& grant, absl::Span<Lane* const> lanes, bool last_group, SampleSink& sink);
  absl::Status StartEpisode(Lane& lane);
  absl::Status ActForAll();
  /// False when the environment failed and the step must be taken again.
  absl::StatusOr<bool> StepLane(Lane& lane);
  absl::Status CountError(Lane& lane, const absl::Status& status);
  bool FragmentFull(int64_t rounds) const;
  /// Cuts the lanes that still run, finishes the fragment and submits it.
  absl::Status Submit(bool last_of_grant, SampleSink& sink);

  const RolloutConfig config_;
  std::vector<std::unique_ptr<inference::PolicyActor>> actors_;  // by policy slot
  std::vector<inference::ActionBounds> bounds_;
  FragmentBuilder builder_;
  std::map<uint32_t, std::unique_ptr<Lane>> lanes_;  // by global env id
  std::vector<Lane*> granted_;                       // of the current grant
  std::vector<Lane*> active_;                        // of the current group, with steps left
  std::vector<policy::WeightVersion> versions_;
  size_t action_words_ = 0;  // most of any agent: the stride of Lane::bounded_actions
  RolloutStats stats_;
  std::atomic<bool> stop_{false};
};

}  // namespace troupe::rollout
