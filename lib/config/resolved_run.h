#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/config/make_env.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/registry.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/score.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/rollout_options.h"
#include "lib/sample/batch_schema.h"
#include "lib/training/device_options.h"
#include "lib/training/policy_store_options.h"

namespace troupe::config {

/// Where results go and how often; `experiment` of the configuration with `auto` worked out.
struct ExperimentOptions {
  std::string directory = "runs";        ///< the run folder is made inside it
  std::string experiment_name;           ///< empty: MakeExperimentName
  int64_t write_interval_env_steps = 0;  ///< between lines of progress.jsonl and event files; 0: never
  absl::Duration longest_write_pause = absl::InfiniteDuration();  ///< a line is due after it, whatever was trained
  std::optional<learner::Score> best_by;      ///< nullopt: LearnerConfig::best_by says what that means
  int64_t checkpoint_interval_env_steps = 0;  ///< 0: never
  /// One is due, too, this long after training began without one, and this long after the one before it.
  absl::Duration first_checkpoint_after = absl::InfiniteDuration();
  absl::Duration longest_checkpoint_pause = absl::InfiniteDuration();
  bool final_checkpoint = true;   ///< one at the end, however the run ends
  int64_t keep_checkpoints = 3;   ///< besides `best`
  bool store_separately = false;  ///< a file per module in a checkpoint
  bool wandb = false;
  env::ArgMap wandb_kwargs;
};

/// `evaluation`: episodes on separate environments with frozen policies.
struct EvaluationOptions {
  int64_t interval_env_steps = 0;       ///< between evaluations during training; 0: none
  int64_t episodes = 100;               ///< exactly so many, each from its own seed
  int32_t num_workers = 1;              ///< threads that play them
  bool deterministic = false;           ///< the distribution's mode instead of a sample
  uint64_t seed = 0;                    ///< of the episodes (stream kEvaluation)
  bool parallel = false;                ///< training goes on while those of interval_env_steps are played
  bool at_end = true;                   ///< one more evaluation when training ended
  int64_t video_interval = 0;           ///< evaluations from one that is filmed to the next; 0: none is
  int64_t max_episode_steps = 100'000;  ///< env steps after which an episode is cut; 0: no bound
  absl::Duration time_limit = absl::InfiniteDuration();     ///< of one evaluation
  absl::Duration longest_pause = absl::InfiniteDuration();  ///< in which no episode of one ends
};

/// A configuration that has met its environment: what every process of a run is built from. The same RunConfig and
/// registry give the same ResolvedRun in every process. Plain value.
struct ResolvedRun {
  // Defined in the .cc, so that who includes this header needs no policy_spec.h.
  ResolvedRun();
  ResolvedRun(const ResolvedRun& other);
  ResolvedRun(ResolvedRun&& other) noexcept;
  ResolvedRun& operator=(const ResolvedRun& other);
  ResolvedRun& operator=(ResolvedRun&& other) noexcept;
  ~ResolvedRun();

  RunConfig config;
  uint64_t seed = 1;

  EnvSettings env;
  env::EnvSpec env_spec;      ///< of the environment as policies see it, made once to see it
  std::string recognized_as;  ///< what an environment in Python was taken for, for people; empty: it is none

  std::string algorithm = "mappo";                 ///< algorithm.name; policies may have others
  std::vector<policy::PolicySpec> policies;        ///< by policy slot, each validated
  std::vector<policy::MappingRule> mapping_rules;  ///< for policy::MakeRuleMapping with agent_ids() and policy_ids()
  std::vector<std::vector<MappedPolicy>> policies_of_agent;  ///< by agent slot, as the rules say
  std::vector<SettingsOf> settings;                          ///< by policy slot, for AlgorithmOf and ModelOf
  sample::BatchSchema schema;

  int32_t num_workers = 2;  ///< worker processes; 0: the learner samples
  int32_t num_envs_per_worker =
      16;  ///< learner.num_envs is max(1, num_workers) x this many unless the configuration says num_envs
  rollout::BatchMode batch_mode = rollout::BatchMode::kTruncateEpisodes;
  rollout::RolloutOptions rollout;
  learner::LearnerOptions learner;
  sample::BatchLimits limits;  ///< of what workers hand in
  learner::StopOptions stop;
  /// By policy slot, how it is trained, or would be if its class were: what training::MakeTrainer takes.
  std::vector<policy::AlgorithmSpec> algorithms;
  training::PolicyStoreOptions policy_map;
  std::string policy_map_cache;  ///< folder; empty: inside the run folder
  training::DeviceOptions device;
  ExperimentOptions experiment;
  EvaluationOptions evaluation;
  std::string train_function;          ///< python:MODULE:NAME, asked who trains on a batch; empty: none
  std::vector<std::string> callbacks;  ///< python:MODULE:CLASS, in the order of their calls

  std::vector<std::string> agent_ids() const { return schema.agent_ids; }  ///< by agent slot
  policy::BySlot<policy::PolicyId> policy_ids() const;
  /// PolicyTable::Make of its policies; `trains` by slot.
  absl::StatusOr<policy::PolicyTablePtr> FirstTable(std::vector<bool> trains) const;
};

/// Makes the environment, infers what the configuration leaves open (policies, spaces, critic inputs, intervals) and
/// checks keys against each other. INVALID_ARGUMENT (NOT_FOUND: unknown environment) with the place of the key that is
/// wrong. The run's configuration is pinned (PinModules). Modules have tensors where the program has LibTorch.
absl::StatusOr<ResolvedRun> ResolveRun(const RunConfig& config, const env::EnvRegistry& registry);

/// env.args of a configuration, for those who need an environment and no run.
env::EnvArgs EnvArgsOf(const RunConfig& config);

/// The environment that the configuration describes, not made yet.
absl::StatusOr<EnvSettings> EnvSettingsOf(const RunConfig& config);

/// Environments of the whole run.
int32_t TotalEnvs(const RunConfig& config);

/// The configuration with which a run that was started with `old_config` goes on as `new_config` wants it: the same,
/// with the number of environments as it was where only the number of workers changed, because environments have their
/// place in their sequences of episodes. FAILED_PRECONDITION names the first key that differs and may not.
absl::StatusOr<RunConfig> ResumeConfig(const RunConfig& old_config, const RunConfig& new_config);
/// The same for the name of the run's algorithm alone, before the overrides of a resume meet the run's file: whose keys
/// are another algorithm's then.
absl::Status CheckAlgorithmStays(const RunConfig& old_config, const std::vector<std::string>& overrides);
/// The keys (or sections) that may differ.
const std::vector<std::string>& ResumableKeys();

/// Whether an evaluation of a run that was started with `old_config` may be as `new_config` says. FAILED_PRECONDITION
/// names the first key that differs and may not: what the policies were trained with stays.
absl::Status CheckEvaluationConfig(const RunConfig& old_config, const RunConfig& new_config);

/// skrl's default name of a run: YY-MM-DD_HH-MM-SS-SSSSSS_<ALGORITHM>, local time.
std::string MakeExperimentName(std::string_view algorithm, absl::Time now);

}  // namespace troupe::config
