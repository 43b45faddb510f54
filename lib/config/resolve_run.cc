#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/exit_code.h"
#include "lib/base/local_path.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/external.h"
#include "lib/config/ingest_budget.h"
#include "lib/config/resolve_algorithms.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/resolved_run.h"
#include "lib/config/schema.h"
#include "lib/config/torch_modules.h"
#include "lib/config/value_hint.h"
#include "lib/learner/score.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/python_callable.h"
#include "lib/rollout/round_bytes.h"
#include "lib/training/algorithm_options.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

// The schema's enums have our values, so that they are cast.
static_assert(static_cast<int>(training::Precision::kFloat32) == v1::PRECISION_FLOAT32);
static_assert(static_cast<int>(training::Precision::kTf32) == v1::PRECISION_TF32);
static_assert(static_cast<int>(training::Precision::kBfloat16) == v1::PRECISION_BFLOAT16);
static_assert(static_cast<int>(learner::CommonReward::kNone) == v1::COMMON_REWARD_NONE);
static_assert(static_cast<int>(learner::CommonReward::kSum) == v1::COMMON_REWARD_SUM);
static_assert(static_cast<int>(learner::CountStepsBy::kEnvSteps) == v1::COUNT_STEPS_BY_ENV_STEPS);
static_assert(static_cast<int>(learner::CountStepsBy::kAgentSteps) == v1::COUNT_STEPS_BY_AGENT_STEPS);
static_assert(static_cast<int>(learner::TrainTimeAggregator::kMin) == v1::TRAIN_TIME_AGGREGATOR_MIN);
static_assert(static_cast<int>(learner::TrainTimeAggregator::kMax) == v1::TRAIN_TIME_AGGREGATOR_MAX);
static_assert(static_cast<int>(learner::TrainTimeAggregator::kMean) == v1::TRAIN_TIME_AGGREGATOR_MEAN);

constexpr int64_t kDefaultStopEnvSteps = 1000000;
constexpr int64_t kWritesPerRun = 100;  // skrl's meaning of auto
constexpr absl::Duration kLongestWritePause = absl::Seconds(5);
constexpr int64_t kCheckpointsPerRun = 10;
constexpr absl::Duration kFirstCheckpointAfter = absl::Seconds(10);
constexpr absl::Duration kLongestCheckpointPause = absl::Minutes(1);
constexpr absl::Duration kLongestEvaluationPause = absl::Hours(1);
constexpr int64_t kUpdatesPerCheckpoint = 50;  // where nothing says how long the run is
constexpr int64_t kMaxSteps = int64_t{1} << 60;
constexpr absl::Duration kPatienceWithClients = absl::Hours(24 * 365);

env::ArgValue ToArgValue(const v1::Argument& argument);

template <typename Arguments>
env::ArgMap ToArgValues(const Arguments& arguments) {
  env::ArgMap values;
  for (const v1::Argument& argument : arguments) values.emplace_back(argument.name(), ToArgValue(argument));
  return values;
}

env::ArgValue ToArgValue(const v1::Argument& argument) {
  switch (argument.value_case()) {
    case v1::Argument::kBoolValue:
      return argument.bool_value();
    case v1::Argument::kIntValue:
      return argument.int_value();
    case v1::Argument::kDoubleValue:
      return argument.double_value();
    case v1::Argument::kStringValue:
      return argument.string_value();
    case v1::Argument::kListValue: {
      env::ArgList list;
      for (const v1::Argument& value : argument.list_value().values()) list.push_back(ToArgValue(value));
      return list;
    }
    case v1::Argument::kMapValue:
      return ToArgValues(argument.map_value().entries());
    default:
      return std::monostate();
  }
}

/// Whether a critic of the run may use the global state.
bool UsesGlobalState(const v1::RunConfig& config) {
  const auto uses = [](const auto& settings) { return settings.algorithm().use_global_state(); };
  const v1::MultiAgentConfig& multi_agent = config.multi_agent();
  return config.algorithm().use_global_state() ||
         std::any_of(multi_agent.policies().begin(), multi_agent.policies().end(), uses) ||
         std::any_of(multi_agent.agents().begin(), multi_agent.agents().end(), uses);
}

absl::Status MakeEnvironment(const env::EnvRegistry& registry, ResolvedRun* run) {
  const v1::EnvConfig& env = run->config.proto().env();
  if (env.name().empty() && !IsExternal(run->config)) {
    return run->config.KeyError("env.name",
                                "is missing, got none, expected an environment; `troupe envs ls` shows them");
  }
  TROUPE_ASSIGN_OR_RETURN(run->env, EnvSettingsOf(run->config));
  if (!env.python().has_global_state()) run->env.python.global_state = UsesGlobalState(run->config.proto());
  std::string key;
  EnvSettings alone = run->env;
  alone.python.processes = 1;
  const absl::StatusOr<std::shared_ptr<envhost::HostPool>> pool = MakeHostPool(alone, &key);
  const absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> made =
      pool.ok() ? MakeEnv(alone, registry, &key, *pool) : pool.status();
  if (!made.ok()) {
    return absl::Status(made.status().code(),
                        absl::StrCat(run->config.Where(key), ": ", key, ": ", std::string(made.status().message())));
  }
  run->env_spec = (*made)->spec();
  if (*pool != nullptr) run->recognized_as = (*pool)->recognized_as();
  return absl::OkStatus();
}

absl::Status FillPolicyMap(ResolvedRun* run) {
  const v1::MultiAgentConfig& multi_agent = run->config.proto().multi_agent();
  run->policy_map.capacity = multi_agent.policy_map_capacity();
  run->rollout.policy_map_capacity = multi_agent.policy_map_capacity();
  run->policy_map.host_budget_bytes = multi_agent.policy_map_host_budget_bytes();
  run->policy_map.states_are_swappable = multi_agent.policy_states_are_swappable();
  run->policy_map_cache = multi_agent.policy_map_cache();
  if (!run->policy_map.states_are_swappable) return absl::OkStatus();
  const absl::Status swappable = training::CheckSwappable(run->policies, run->algorithms);
  if (swappable.ok()) return swappable;
  return run->config.KeyError("multi_agent.policy_states_are_swappable",
                              absl::StrCat("got true, but ", std::string(swappable.message())));
}

void FillSchema(ResolvedRun* run) {
  const env::EnvSpec& env = run->env_spec;
  sample::BatchSchema& schema = run->schema;
  for (const env::AgentSpec& agent : env.possible_agents) {
    schema.agent_ids.push_back(agent.id.value());
    schema.agent_observation_sizes.push_back(agent.observation_space.flat_size());
  }
  schema.policies = policy::BySlot<policy::PolicySpec>(run->policies);
  if (env.state_kind == env::StateKind::kPerEnv) schema.env_state_size = env.state_space.flat_size();
  if (env.state_kind == env::StateKind::kPerAgent) schema.agent_state_size = env.state_space.flat_size();
  schema.has_agent_mask = env.has_agent_mask;
  schema.always_sends_state = run->config.proto().env().send_state() == v1::SEND_STATE_ALWAYS;
  run->rollout.always_sends_state = schema.always_sends_state;
  schema.num_info_columns = static_cast<int64_t>(env.info_columns.size());
  schema.num_envs = static_cast<uint32_t>(run->learner.num_envs);
}

/// What the time-outs of its environments allow a grant, where they have some.
learner::GrantTimeout GrantTimeoutOf(const ResolvedRun& run) {
  learner::GrantTimeout timeout;
  const v1::LearnerConfig& config = run.config.proto().learner();
  if (config.has_grant_timeout_s()) timeout.fixed = absl::Seconds(config.grant_timeout_s());
  // Nobody knows when a client comes; of a worker that is gone its connection tells.
  if (IsExternal(run.config) && !config.has_grant_timeout_s()) timeout.fixed = kPatienceWithClients;
  if (policy::IsPythonName(run.env.name)) {
    timeout.first = run.env.python.start_timeout;
    timeout.first_per_env_step = run.env.python.step_timeout;
  }
  return timeout;
}

absl::Status FillLearner(ResolvedRun* run) {
  const v1::RunConfig& config = run->config.proto();
  const v1::AlgorithmConfig& algorithm = config.algorithm();
  run->num_workers = config.num_workers();
  run->num_envs_per_worker = config.num_envs_per_worker();
  learner::LearnerOptions& learner = run->learner;
  learner.seed = run->seed;
  learner.train_batch_size = algorithm.train_batch_size();
  learner.count_steps_by = static_cast<learner::CountStepsBy>(config.multi_agent().count_steps_by());
  learner.train_time_aggregator =
      static_cast<learner::TrainTimeAggregator>(config.multi_agent().train_time_aggregator());
  learner.complete_episodes = config.batch_mode() == v1::BATCH_MODE_COMPLETE_EPISODES;
  learner.common_reward = static_cast<learner::CommonReward>(algorithm.common_reward());
  learner.num_workers = run->num_workers;
  learner.num_envs = TotalEnvs(run->config);
  learner.join_timeout = absl::Seconds(config.learner().join_timeout_s());
  learner.worker_timeout = absl::Seconds(config.learner().worker_timeout_s());
  learner.grant_timeout = GrantTimeoutOf(*run);
  run->limits.max_abs_return = config.env().max_abs_return();
  run->learner.max_failed_share = config.env().max_failed_share();
  run->rollout.max_failed_share = config.env().max_failed_share();
  const int64_t num_agents = run->env_spec.num_agents();
  if (EnvStepsOfBatch(*run) < learner.num_envs) {
    return run->config.KeyError(
        "algorithm.train_batch_size",
        absl::StrCat("got ", learner.train_batch_size, ", expected at least one env step ",
                     CountsAgentSteps(*run) ? absl::StrCat("of ", num_agents, " agents ") : "", "for each of the ",
                     learner.num_envs, " environments; raise it, or lower num_workers or num_envs_per_worker"));
  }
  run->batch_mode =
      learner.complete_episodes ? rollout::BatchMode::kCompleteEpisodes : rollout::BatchMode::kTruncateEpisodes;
  run->rollout.seed = run->seed;
  run->rollout.explore = config.explore();
  run->rollout.max_fragment_env_steps = config.rollout_fragment_length();  // 0 when auto
  if (config.has_rollout_fragment_length() && CountsAgentSteps(*run)) {
    if (config.rollout_fragment_length() < num_agents) {
      return run->config.KeyError(
          "rollout_fragment_length",
          absl::StrCat("got ", config.rollout_fragment_length(), ", expected at least the ", num_agents,
                       " agent steps that an env step may have (multi_agent.count_steps_by: agent_steps)"));
    }
    run->rollout.max_fragment_env_steps = config.rollout_fragment_length() / num_agents;
  }
  if (const absl::Status device = training::ParseDevice(config.device()).status(); !device.ok()) {
    return run->config.KeyError("device", std::string(device.message()));
  }
  run->device.device = config.device();
  run->device.num_threads = config.learner_threads();
  run->device.precision = static_cast<training::Precision>(config.precision());
  if (run->device.precision != training::Precision::kFloat32 && config.device() == "cpu") {
    return run->config.KeyError(
        "precision", absl::StrCat("got ", EnumWord(*v1::Precision_descriptor()->FindValueByNumber(config.precision())),
                                  ", but device is cpu, expected float32: the CPU trains in nothing else"));
  }
  return absl::OkStatus();
}

/// A return that the run can have: of a policy that plays some agent, of agents that there are.
absl::StatusOr<learner::Score> ResolveScore(const std::string& key, const std::string& text, const ResolvedRun& run) {
  std::optional<learner::Score> score = learner::ParseScore(text);
  if (!score.has_value()) {
    return run.config.KeyError(key, NoReturn(text));
  }
  const auto unknown = [&](const char* what, const std::vector<std::string>& known) {
    const std::string nearest = base::NearestName(score->name, known);
    const std::vector<std::string> some(known.begin(),
                                        known.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(known.size(), 8)));
    return run.config.KeyError(
        key, absl::StrCat("got ", what, " \"", base::LogSafe(score->name, 128), "\", expected one of ",
                          base::LogSafe(absl::StrJoin(some, ", "), 400), some.size() < known.size() ? ", …" : "",
                          nearest.empty() ? "" : absl::StrCat("; the nearest is \"", base::LogSafe(nearest), "\"")));
  };
  if (score->kind == learner::Score::Kind::kPolicy) {
    std::vector<std::string> playing;
    for (size_t slot = 0; slot < run.policies.size(); ++slot) {
      const policy::PolicySlot policy(static_cast<int32_t>(slot));
      const bool plays = std::any_of(run.policies_of_agent.begin(), run.policies_of_agent.end(), [&](const auto& may) {
        return std::any_of(may.begin(), may.end(), [&](const MappedPolicy& one) { return one.policy == policy; });
      });
      if (plays) playing.push_back(run.policies[slot].id.value());
    }
    if (std::find(playing.begin(), playing.end(), score->name) == playing.end()) {
      return unknown("the policy", playing);
    }
  } else if (score->kind == learner::Score::Kind::kAgents) {
    const std::vector<std::string> agents = run.agent_ids();
    const bool any = std::any_of(agents.begin(), agents.end(), [&score](const std::string& agent) {
      return policy::GlobMatches(score->name, agent);
    });
    if (!any) return unknown("the agents", agents);
  }
  return *std::move(score);
}

absl::Status FillStop(ResolvedRun* run) {
  const v1::StopConfig& config = run->config.proto().stop();
  learner::StopOptions& stop = run->stop;
  stop.agent_steps = config.agent_steps();
  stop.updates = config.updates();
  stop.wall_clock = absl::Seconds(config.wall_clock());
  for (const v1::ReturnTarget& target : config.episode_return().targets()) {
    TROUPE_ASSIGN_OR_RETURN(const learner::Score score, ResolveScore("stop.episode_return", target.score(), *run));
    stop.episode_return.push_back({score, target.at_least()});
  }
  const bool other = stop.agent_steps > 0 || stop.updates > 0 || stop.wall_clock > absl::ZeroDuration() ||
                     !stop.episode_return.empty();
  stop.env_steps = config.has_env_steps() ? config.env_steps() : (other ? 0 : kDefaultStopEnvSteps);
  return absl::OkStatus();
}

/// How many env steps the run will have, as far as the stop conditions say; 0: unknown.
int64_t PlannedEnvSteps(const ResolvedRun& run) {
  int64_t planned = 0;
  const auto consider = [&planned](int64_t env_steps) {
    if (env_steps > 0 && (planned == 0 || env_steps < planned)) planned = env_steps;
  };
  consider(run.stop.env_steps);
  consider(run.stop.agent_steps / run.env_spec.num_agents());
  const int64_t batch = EnvStepsOfBatch(run);
  consider(std::min(run.stop.updates, kMaxSteps / batch) * batch);
  return planned;
}

absl::Status FillResults(ResolvedRun* run) {
  const v1::ExperimentConfig& config = run->config.proto().experiment();
  ExperimentOptions& experiment = run->experiment;
  experiment.directory = config.directory();
  experiment.experiment_name = config.experiment_name();
  const int64_t planned = PlannedEnvSteps(*run);
  const int64_t batch = EnvStepsOfBatch(*run);
  experiment.write_interval_env_steps = config.has_write_interval()
                                            ? std::max<int64_t>(0, config.write_interval())
                                            : std::max<int64_t>(1, planned > 0 ? planned / kWritesPerRun : batch);
  if (!config.has_write_interval()) experiment.longest_write_pause = kLongestWritePause;
  experiment.checkpoint_interval_env_steps =
      config.has_checkpoint_interval()
          ? std::max<int64_t>(0, config.checkpoint_interval())
          : std::max<int64_t>(1, planned > 0 ? planned / kCheckpointsPerRun : batch * kUpdatesPerCheckpoint);
  if (!config.has_checkpoint_interval()) {
    experiment.first_checkpoint_after = kFirstCheckpointAfter;
    experiment.longest_checkpoint_pause = kLongestCheckpointPause;
  }
  experiment.final_checkpoint = config.final_checkpoint();
  experiment.keep_checkpoints = config.keep_checkpoints();
  experiment.store_separately = config.store_separately();
  experiment.wandb = config.wandb();
  experiment.wandb_kwargs = ToArgValues(config.wandb_kwargs());

  const v1::EvaluationConfig& evaluation = run->config.proto().evaluation();
  run->evaluation.interval_env_steps = evaluation.interval();
  run->evaluation.episodes = evaluation.episodes();
  run->evaluation.num_workers = evaluation.num_workers();
  run->evaluation.deterministic = evaluation.deterministic();
  run->evaluation.seed = static_cast<uint64_t>(evaluation.seed());
  run->evaluation.at_end = evaluation.at_end();
  run->evaluation.parallel = evaluation.parallel();
  run->evaluation.video_interval = evaluation.video_interval();
  run->evaluation.max_episode_steps = evaluation.max_episode_steps();
  if (!evaluation.has_time_limit_s()) {
    run->evaluation.longest_pause = kLongestEvaluationPause;
  } else if (evaluation.time_limit_s() > 0) {
    run->evaluation.time_limit = absl::Seconds(evaluation.time_limit_s());
  }
  if (IsExternal(run->config)) {
    run->evaluation.at_end = false;
    if (evaluation.interval() > 0) {
      return run->config.KeyError(
          "evaluation.interval",
          absl::StrCat("got ", evaluation.interval(), ", expected 0: nobody but its clients plays a world outside"));
    }
  }

  if (!config.has_best_by()) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(experiment.best_by, ResolveScore("experiment.best_by", config.best_by(), *run));
  return absl::OkStatus();
}

/// Whether Python finds them is seen by who makes them.
absl::Status FillCallbacks(ResolvedRun* run) {
  for (const std::string& name : run->config.proto().callbacks().values()) {
    const absl::Status named = policy::ValidatePythonName(name);
    if (!named.ok()) return run->config.KeyError("callbacks", std::string(named.message()));
    run->callbacks.push_back(name);
  }
  return absl::OkStatus();
}

/// A name that stays one folder inside experiment.directory; folders of this machine.
absl::Status CheckExperimentFolders(const ResolvedRun& run) {
  const std::string& name = run.experiment.experiment_name;
  const bool bad =
      name == "." || name == ".." || name.size() > 200 ||
      std::any_of(name.begin(), name.end(), [](char c) { return c == '/' || static_cast<unsigned char>(c) < 0x20; });
  if (bad)
    return run.config.KeyError("experiment.experiment_name",
                               "expected a folder's name of at most 200 characters without \"/\"");
  if (run.experiment.directory.empty())
    return run.config.KeyError("experiment.directory", "is empty, expected a folder");
  for (const auto& [key, path] : {std::pair("experiment.directory", run.experiment.directory),
                                  std::pair("multi_agent.policy_map_cache", run.policy_map_cache)}) {
    const absl::Status is_path = base::CheckIsPath(path);
    if (!is_path.ok()) return run.config.KeyError(key, std::string(is_path.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<ResolvedRun> Resolve(const RunConfig& unpinned, const env::EnvRegistry& registry) {
  ResolvedRun run;
  TROUPE_ASSIGN_OR_RETURN(run.config, PinModules(unpinned));
  const RunConfig& config = run.config;
  run.seed = static_cast<uint64_t>(config.proto().seed());
  run.algorithm = AlgorithmWord(config.proto().algorithm().name());
  TROUPE_RETURN_IF_ERROR(MakeEnvironment(registry, &run));
  TROUPE_ASSIGN_OR_RETURN(ResolvedPolicies policies, ResolvePolicies(config, run.env_spec));
  run.policies = std::move(policies.specs);
  run.mapping_rules = std::move(policies.rules);
  run.policies_of_agent = std::move(policies.policies_of_agent);
  TROUPE_RETURN_IF_ERROR(FillLearner(&run));
  run.learner.trains = std::move(policies.trains);
  run.learner.train_rules = std::move(policies.train_rules);
  run.train_function = std::move(policies.train_function);
  FillSchema(&run);
  // Else every worker says it, and starts again.
  TROUPE_RETURN_IF_ERROR(rollout::CheckRoundFits({run.env_spec, run.schema.policies, run.rollout.always_sends_state},
                                                 run.rollout.max_fragment_bytes));
  run.settings = std::move(policies.settings);
  TROUPE_RETURN_IF_ERROR(FillAlgorithms(run.settings, &run));
  run.learner.max_policy_lag = config.proto().algorithm().has_max_policy_lag()
                                   ? config.proto().algorithm().max_policy_lag()
                                   : training::DefaultPolicyLag(run.algorithms);
  TROUPE_RETURN_IF_ERROR(FillPolicyMap(&run));
  TROUPE_ASSIGN_OR_RETURN(run.learner.ingest_budget_bytes, IngestBudget(run));
  TROUPE_RETURN_IF_ERROR(FillStop(&run));
  TROUPE_RETURN_IF_ERROR(FillResults(&run));
  TROUPE_RETURN_IF_ERROR(FillCallbacks(&run));
  TROUPE_RETURN_IF_ERROR(CheckExperimentFolders(run));
  return run;
}

}  // namespace

ResolvedRun::ResolvedRun() = default;
ResolvedRun::ResolvedRun(const ResolvedRun& other) = default;
ResolvedRun::ResolvedRun(ResolvedRun&& other) noexcept = default;
ResolvedRun& ResolvedRun::operator=(const ResolvedRun& other) = default;
ResolvedRun& ResolvedRun::operator=(ResolvedRun&& other) noexcept = default;
ResolvedRun::~ResolvedRun() = default;

policy::BySlot<policy::PolicyId> ResolvedRun::policy_ids() const {
  policy::BySlot<policy::PolicyId> ids;
  for (const policy::PolicySpec& spec : policies) ids.push_back(spec.id);
  return ids;
}

absl::StatusOr<policy::PolicyTablePtr> ResolvedRun::FirstTable(std::vector<bool> trains) const {
  return policy::PolicyTable::Make(policies, std::move(trains), mapping_rules, agent_ids());
}

absl::StatusOr<ResolvedRun> ResolveRun(const RunConfig& config, const env::EnvRegistry& registry) {
  return base::RefusedIfFinal(Resolve(config, registry));
}

int32_t TotalEnvs(const RunConfig& config) {
  const v1::RunConfig& proto = config.proto();
  return proto.has_num_envs() ? proto.num_envs()
                              : std::max(1, proto.num_workers()) * proto.num_envs_per_worker();  // at most 1024 * 65536
}

env::EnvArgs EnvArgsOf(const RunConfig& config) { return env::EnvArgs(ToArgValues(config.proto().env().args())); }

std::string MakeExperimentName(std::string_view algorithm, absl::Time now) {
  const absl::TimeZone zone = absl::LocalTimeZone();
  const int64_t microseconds = (absl::ToUnixMicros(now) % 1000000 + 1000000) % 1000000;
  char fraction[8];
  std::snprintf(fraction, sizeof(fraction), "%06d", static_cast<int>(microseconds));
  return absl::StrCat(absl::FormatTime("%y-%m-%d_%H-%M-%S", now, zone), "-", fraction, "_",
                      absl::AsciiStrToUpper(std::string(algorithm)));
}

}  // namespace troupe::config
