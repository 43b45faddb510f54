#include "lib/run/learner/run_setup.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/local_path.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/frozen_weights.h"
#include "lib/config/image_networks.h"
#include "lib/config/key_effects.h"
#include "lib/config/sampling_ahead.h"
#include "lib/config/torch_modules.h"
#include "lib/learner/episode_window.h"
#include "lib/learner/stop_conditions.h"
#include "lib/policy/policy_spec.h"
#include "lib/run/learner/policy_trial.h"
#include "lib/run/run_checkpoint.h"
#include "lib/run/run_modules.h"
#include "lib/storage/start_over.h"
#include <nlohmann/json.hpp>

namespace troupe::run {
namespace {

constexpr int64_t kMaxSummaryBytes = 16 << 20;

bool HoldsRun(const std::string& directory) { return std::filesystem::exists(directory + "/config.yaml"); }

/// The overrides that flags stand for, behind those of --set.
std::vector<std::string> AllOverrides(const RunRequest& request) {
  std::vector<std::string> overrides = request.overrides;
  if (request.num_workers >= 0) overrides.push_back(absl::StrCat("num_workers=", request.num_workers));
  if (!request.name.empty()) overrides.push_back(config::TextOverride("experiment.experiment_name", request.name));
  if (!request.directory.empty()) overrides.push_back(config::TextOverride("experiment.directory", request.directory));
  if (!request.python.empty()) overrides.push_back(config::TextOverride("env.python.interpreter", request.python));
  return overrides;
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// --start-over says once more which run it means: by name or by folder.
absl::Status CheckStartOver(const std::string& given, const std::string& name, const std::string& directory) {
  const auto normal = [](const std::string& path) {
    return WithoutSlash(std::filesystem::path(path).lexically_normal().string());
  };
  if (given == name || normal(given) == normal(directory)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--start-over: got \"", given, "\", expected \"", name,
                                                 "\" once more, the run that --name or --resume names"));
}

/// The run folder that --resume names.
absl::StatusOr<std::string> FindRun(const RunRequest& request) {
  TROUPE_RETURN_IF_ERROR(base::CheckIsPath(request.resume));
  if (HoldsRun(request.resume)) return WithoutSlash(request.resume);
  // A name: inside experiment.directory of the configuration, or of the defaults.
  absl::StatusOr<config::RunConfig> config =
      request.config_path.empty() ? config::RunConfig::FromYaml("{seed: 1}", "defaults", AllOverrides(request))
                                  : config::RunConfig::FromFile(request.config_path, AllOverrides(request));
  TROUPE_RETURN_IF_ERROR(config.status());
  // A whole path is no name inside another folder.
  const bool is_name = !std::filesystem::path(request.resume).is_absolute();
  const std::string inside = config->experiment_directory() + "/" + request.resume;
  if (is_name && HoldsRun(inside)) return WithoutSlash(inside);
  return absl::NotFoundError(absl::StrCat("--resume: there is no run in \"", request.resume,
                                          is_name ? absl::StrCat("\" nor in \"", inside) : std::string(),
                                          "\" (a run has a config.yaml)"));
}

/// What a run is to go on as. Without a configuration file its own is the base.
absl::StatusOr<config::RunConfig> ConfigOfResumed(const RunRequest& request, const std::string& directory,
                                                  const std::vector<std::string>& overrides) {
  if (!request.config_path.empty()) return config::RunConfig::FromFile(request.config_path, overrides);
  const std::string own = directory + "/config.yaml";
  if (request.start_over.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const config::RunConfig started_with, config::RunConfig::FromRun(own));
    TROUPE_RETURN_IF_ERROR(config::CheckAlgorithmStays(started_with, overrides));
  }
  return config::RunConfig::FromRun(own, overrides);
}

/// The run's folder is a program to whom it goes on for: says what it executes, before it does.
void SayWhatIsResumed(const std::string& directory, const config::RunConfig& old_config,
                      const config::RunConfig& config) {
  std::vector<config::ForeignCode> code = config::TrainingCodeOf(old_config);
  config::AddForeignCode(config::TrainingCodeOf(config), &code);
  storage::FileSystem& fs = storage::FileSystem::Posix();
  const absl::StatusOr<std::string> latest = storage::FindCheckpoint(fs, directory, "latest");
  if (latest.ok()) {
    // One that cannot be read is found out by who needs it.
    const absl::StatusOr<storage::CheckpointManifest> manifest =
        storage::ReadManifest(fs, *latest, storage::ManifestPart::kPolicies);
    const policy::PolicyTablePtr table = manifest.ok() ? manifest->state.table : nullptr;
    if (table != nullptr) config::AddForeignCode(config::ForeignCodeOf(*table), &code);
  }
  SayForeignCode(code);
}

/// Where a run begins without a checkpoint of its own; the runs that weights come from are data.
absl::Status LoadInitial(const RunRequest& request, RunSetup* setup) {
  TROUPE_ASSIGN_OR_RETURN(setup->initial, config::LoadFrozenWeights(setup->run));
  TROUPE_RETURN_IF_ERROR(config::LoadGivenWeights(setup->run, &setup->initial));
  if (request.warm_start.empty()) return config::CheckNoWarmStart(setup->run);
  return config::LoadWarmStart(request.warm_start, setup->run, &setup->initial);
}

/// All but where the folder is, and whether it is there already.
storage::RunFolder::Options FolderOptionsOf(const RunSetup& setup, const config::RunConfig& config) {
  storage::RunFolder::Options options;
  options.started_over = setup.moved_to;
  options.keep = static_cast<int>(setup.run.experiment.keep_checkpoints);
  options.config_yaml = config.ToYaml();
  // Checkpoints are copied and shared.
  options.checkpoint.config_yaml = config.WithoutSecrets().ToYaml();
  options.checkpoint.spec_hash = setup.run.schema.Hash();
  options.checkpoint.policy_map_capacity = setup.run.policy_map.capacity;
  options.checkpoint.store_separately = setup.run.experiment.store_separately;
  options.specs = setup.run.policies;
  return options;
}

/// Who trains stands in the checkpoint's table; where the configuration says something else than it said before, for a
/// policy that is still there, that holds from now on.
absl::Status ApplyPoliciesToTrain(const config::ResolvedRun& run, const std::vector<bool>& trained_before,
                                  learner::LearnerState* state) {
  for (size_t i = 0; i < run.policies.size() && state->table != nullptr; ++i) {
    const policy::PolicyId& id = run.policies[i].id;
    if (run.learner.trains[i] == trained_before[i] || !state->table->FindSlot(id).has_value()) continue;
    TROUPE_ASSIGN_OR_RETURN(state->table, state->table->SetTrains(id, run.learner.trains[i]));
  }
  return absl::OkStatus();
}

/// The wall-clock seconds of which summary.json tells, if that is of the end at `env_steps`: who was killed before the
/// end has none, and evaluates yet. The checkpoint of that moment may be some updates' time younger.
std::optional<double> EndOfSummary(const std::string& directory, int64_t env_steps) {
  const absl::StatusOr<std::string> text =
      storage::FileSystem::Posix().ReadFile(directory + "/summary.json", kMaxSummaryBytes);
  const nlohmann::json summary = nlohmann::json::parse(text.ok() ? *text : std::string(), nullptr, false);
  if (!summary.is_object() || summary.value("env_steps", nlohmann::json()) != env_steps) return std::nullopt;
  const nlohmann::json seconds = summary.value("wall_clock_s", nlohmann::json());
  return seconds.is_number() ? seconds.get<double>() : 0;
}

/// The stop of returns that the last 100 episodes before the checkpoint reach.
absl::StatusOr<std::optional<std::string>> ReturnsReached(const config::ResolvedRun& run,
                                                          const learner::LearnerState& state) {
  // By evaluations, the next one decides.
  if (run.stop.episode_return.empty() || run.evaluation.interval_env_steps > 0) return std::nullopt;
  policy::PolicyTablePtr table = state.table;
  if (table == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(table, run.FirstTable(run.learner.trains));
  }
  learner::EpisodeWindow window(static_cast<int32_t>(run.agent_ids().size()), /*num_infos=*/0);
  window.Restore(state);
  window.KeepPolicies([&table](policy::PolicySlot policy) { return table->Find(policy) != nullptr; });
  return learner::StopByReturns(run.stop, window.WithoutStrangers().Stats(table->num_slots()), *table);
}

/// What goes on after `reached`, which begins with the key: a number of stop.episode_return is the sum's.
std::string HowToRaise(const learner::StopOptions& stop, const std::string& reached) {
  const std::string key = reached.substr(0, reached.find(' '));
  const auto& targets = stop.episode_return;
  if (key != "stop.episode_return" || targets.empty() || targets[0].score.kind == learner::Score::Kind::kSum) {
    return absl::StrCat("--set ", key, "=N");
  }
  return absl::StrCat("--set '", key, "={",
                      absl::StrJoin(targets, ", ",
                                    [](std::string* out, const learner::ReturnTarget& target) {
                                      absl::StrAppend(out, target.score.Text(), ": N");
                                    }),
                      "}'");
}

/// RunSetup::nothing_left
absl::StatusOr<std::string> NothingLeft(const RunSetup& setup, const std::string& directory) {
  const learner::StopOptions& stop = setup.run.stop;
  const learner::LearnerState& state = *setup.resumed;
  const std::optional<double> end = EndOfSummary(directory, state.env_steps);
  if (!end) return "";
  std::optional<std::string> reached =
      learner::StopByCounts(stop, {state.env_steps, state.agent_steps, state.iteration});
  if (!reached) {
    const double seconds = std::max(state.wall_clock_s, *end);
    reached = learner::StopByTimeOrReturn(stop, absl::Seconds(seconds), learner::NoScore);
  }
  if (!reached) {
    TROUPE_ASSIGN_OR_RETURN(reached, ReturnsReached(setup.run, state));
  }
  if (!reached) return "";
  return absl::StrCat("nothing is left to do: ", *reached, "; to go on raise it (", HowToRaise(stop, *reached), ")");
}

/// What the run is to go on with in Python works, as far as agents play it.
absl::Status TryResumed(const RunSetup& setup, const env::EnvRegistry& registry, const std::string& directory,
                        StartWatch* watch) {
  if (setup.resumed->table == nullptr || !setup.nothing_left.empty()) return absl::OkStatus();
  const std::shared_ptr<PolicyTrial> trial = PolicyTrial::OfResume(setup.run, registry, setup.resumed->table);
  if (trial == nullptr) return absl::OkStatus();
  if (watch != nullptr) watch->SetStop([trial] { trial->Stop(); });
  const absl::Status tried = trial->Run();
  if (watch != nullptr) watch->SetStop(nullptr);
  if (tried.ok() || absl::IsCancelled(tried)) return tried;
  const std::string run = base::LogSafe(directory);
  return absl::Status(
      tried.code(),
      absl::StrCat("the run cannot go on with what it plays in Python: ", tried.message(),
                   "\n  Mend that, or change what the stopped run plays, and resume it again:",
                   "\n    troupe mapping set ", run, " MAPPING", "\n    troupe policy remove ", run, " ID"));
}

}  // namespace

absl::StatusOr<RunSetup> SetUpRun(const RunRequest& request, const env::EnvRegistry& registry, base::Clock& clock,
                                  StartWatch* watch) {
  RunSetup setup;
  const std::vector<std::string> overrides = AllOverrides(request);
  std::string directory;  // empty: a new run, whose folder follows from its configuration
  config::RunConfig config;
  if (!request.resume.empty()) {
    TROUPE_ASSIGN_OR_RETURN(directory, FindRun(request));
    TROUPE_ASSIGN_OR_RETURN(config, ConfigOfResumed(request, directory, overrides));
  } else {
    TROUPE_ASSIGN_OR_RETURN(config, config::RunConfig::FromFile(request.config_path, overrides));
    const std::string named = config.experiment_directory() + "/" + request.name;
    if (request.resume_or_start && HoldsRun(named)) directory = named;
  }
  const bool start_over = !request.start_over.empty();
  const bool resume = !directory.empty() && !start_over;
  std::vector<bool> trained_before;  // by policy slot of the configuration, before this resume
  if (resume) {
    TROUPE_ASSIGN_OR_RETURN(const config::RunConfig old_config, config::RunConfig::FromRun(directory + "/config.yaml"));
    TROUPE_ASSIGN_OR_RETURN(config, config::PinModules(config));
    TROUPE_ASSIGN_OR_RETURN(config, config::ResumeConfig(old_config, config));
    SayWhatIsResumed(directory, old_config, config);
    TROUPE_RETURN_IF_ERROR(ReadRunModules(directory, old_config, config::ModuleUse::kTraining));
    TROUPE_ASSIGN_OR_RETURN(const config::ResolvedRun old_run, config::ResolveRun(old_config, registry));
    trained_before = old_run.learner.trains;
  } else if (!request.resume.empty()) {
    SayForeignCode(config::TrainingCodeOf(config));
    TROUPE_RETURN_IF_ERROR(ReadRunModules(directory, config, config::ModuleUse::kTraining));
  }
  TROUPE_ASSIGN_OR_RETURN(setup.run, config::ResolveRun(config, registry));
  // A run's own file says what an older version took.
  const bool of_run = resume || (!request.resume.empty() && request.config_path.empty());
  TROUPE_ASSIGN_OR_RETURN(
      const std::vector<std::string> idle,
      config::CheckEffects(setup.run, registry, of_run ? config::FileOf::kRun : config::FileOf::kUser));
  for (const std::string& warning : idle) TROUPE_WARN("{}", warning);
  for (const std::string& warning : config::ImageWarnings(setup.run.policies)) TROUPE_WARN("{}", warning);
  for (const std::string& warning : config::LagWarnings(setup.run)) TROUPE_WARN("{}", warning);
  if (!directory.empty()) {
    setup.name = std::filesystem::path(directory).lexically_normal().filename().string();
  } else {
    const config::ExperimentOptions& experiment = setup.run.experiment;
    setup.name = experiment.experiment_name.empty() ? config::MakeExperimentName(setup.run.algorithm, clock.WallNow())
                                                    : experiment.experiment_name;
    directory = experiment.directory + "/" + setup.name;
  }

  setup.initial.resize(setup.run.policies.size());
  // Before there is a folder: a new run that cannot start leaves none.
  if (!resume) TROUPE_RETURN_IF_ERROR(LoadInitial(request, &setup));

  if (start_over) {
    TROUPE_RETURN_IF_ERROR(CheckStartOver(request.start_over, setup.name, directory));
    TROUPE_ASSIGN_OR_RETURN(setup.moved_to, storage::MoveRunAside(storage::FileSystem::Posix(), directory));
  }
  storage::RunFolder::Options options = FolderOptionsOf(setup, setup.run.config);
  options.directory = directory;
  options.resume = resume;
  TROUPE_ASSIGN_OR_RETURN(setup.folder, storage::RunFolder::Open(std::move(options)));
  TROUPE_RETURN_IF_ERROR(KeepRunModules(directory, setup.run.config));
  if (resume) {
    absl::StatusOr<learner::LearnerState> state = setup.folder->LoadLatest(&setup.quarantined);
    // A run that never had a checkpoint begins again, in the next epoch.
    if (state.ok()) {
      setup.resumed = *std::move(state);
      TROUPE_RETURN_IF_ERROR(ApplyPoliciesToTrain(setup.run, trained_before, &*setup.resumed));
      TROUPE_ASSIGN_OR_RETURN(setup.nothing_left, NothingLeft(setup, directory));
      TROUPE_RETURN_IF_ERROR(TryResumed(setup, registry, directory, watch));
    } else if (!absl::IsNotFound(state.status())) {
      return state.status();
    }
    // A checkpoint of the run holds them; what they came from may be gone or have changed.
    if (!setup.resumed) TROUPE_RETURN_IF_ERROR(LoadInitial(request, &setup));
  }
  return setup;
}

void LeaveAsItIs(config::ResolvedRun* run) {
  run->experiment.write_interval_env_steps = 0;
  run->experiment.wandb = false;
  run->evaluation.at_end = false;
  run->evaluation.interval_env_steps = 0;
}

std::string NothingLeftText(const RunSetup& setup) {
  return absl::StrCat(setup.name, ": ", setup.nothing_left, "\nresults in ", setup.folder->directory(), "\n");
}

}  // namespace troupe::run
