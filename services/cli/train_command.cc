// troupe train: a learner and local workers over a Unix socket.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/base/terminal_block.h"
#include "lib/cli/next_commands.h"
#include "lib/cli/output.h"
#include "lib/cli/programs.h"
#include "lib/cli/run_path.h"
#include "lib/cli/socket_folder.h"
#include "lib/cli/supervisor.h"
#include "lib/config/external.h"
#include "lib/config/key_effects.h"
#include "lib/config/permits.h"
#include "lib/config/resolved_run.h"
#include "lib/config/torch_modules.h"
#include "lib/config/worker_yaml.h"
#include "lib/envs/register_all.h"
#include "lib/policy/module_files.h"
#include "lib/rpc/door/address.h"
#include "lib/run/episode_door.h"
#include "lib/run/memory_limit.h"
#include "lib/run/run_modules.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/run_folder.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include "services/cli/train_flags.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

/// A user's network, by its SHA-256.
struct Module {
  std::string sha256;
  policy::ModuleFilePtr file;
};

/// What the parent must know of the run. The learner reads and checks the configuration itself, too.
struct Plan {
  std::string folder;
  std::string name;  ///< empty on a resume: the folder has one
  int num_workers = 0;
  std::string worker_yaml;                ///< what the workers permit: what the configuration asks for, without secrets
  std::vector<std::string> allow_python;  ///< names besides
  std::vector<Module> modules;            ///< that the workers may run
  std::string clients_come_to;            ///< of a world outside, else empty
};

std::vector<std::string> AllOverrides(const TrainFlags& flags) {
  std::vector<std::string> overrides = flags.overrides;
  if (flags.workers >= 0) overrides.push_back(absl::StrCat("num_workers=", flags.workers));
  if (!flags.name.empty()) overrides.push_back(config::TextOverride("experiment.experiment_name", flags.name));
  if (!flags.directory.empty()) overrides.push_back(config::TextOverride("experiment.directory", flags.directory));
  if (!flags.python.empty()) overrides.push_back(config::TextOverride("env.python.interpreter", flags.python));
  return overrides;
}

/// Names of Python that the newest checkpoint's policies and mapping have, and the configuration has not: they came
/// while the run trained. To whoever resumes it a run folder is a program. What is wrong with it the learner says.
std::vector<std::string> NamesThatCame(const std::string& folder, const config::RunConfig& config) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  std::vector<std::string> names;
  const absl::StatusOr<std::string> newest = storage::FindCheckpoint(fs, folder, "latest");
  if (!newest.ok()) return names;
  const absl::StatusOr<storage::CheckpointManifest> manifest = storage::ReadManifest(fs, *newest);
  if (!manifest.ok() || manifest->state.table == nullptr) return names;
  const std::set<config::Statement> begun = config::StatementsOf(config);
  for (const config::Statement& statement : config::StatementsOf(*manifest->state.table)) {
    if (statement.kind == config::Statement::Kind::kModule) continue;  // no name: those are the configuration's
    if (begun.count(statement) == 0) names.push_back(statement.name);
  }
  return names;
}

/// The TorchScript files of the pinned configuration that workers run. All that it names have to be there.
absl::StatusOr<std::vector<Module>> Modules(const config::RunConfig& config) {
  std::vector<Module> modules;
  for (const config::NamedModule& named : config::ModulesOf(config, config::ModuleUse::kTraining)) {
    const std::string sha256 = named.text.substr(policy::kModuleHashPrefix.size());
    const absl::StatusOr<policy::ModuleFilePtr> file = policy::ModuleFiles::OfProcess().Find(sha256);
    if (!file.ok()) return config.KeyError(named.key, std::string(file.status().message()));
    const bool known =
        std::any_of(modules.begin(), modules.end(), [&](const Module& module) { return module.sha256 == sha256; });
    if (!known && named.acts) modules.push_back({sha256, *file});
  }
  return modules;
}

/// Where clients of a world outside come to the run in `folder`.
absl::StatusOr<std::string> DoorOf(const config::RunConfig& config, const std::string& folder) {
  const std::string own = config::ExternalOptionsOf(config).address;
  if (own.empty())
    return absl::StrCat("unix:", std::filesystem::absolute(folder).string(), "/", run::EpisodeDoor::kPlace);
  if (config.num_workers() > 1 && !absl::StartsWith(own, "unix")) {
    return config.KeyError("env.external.address",
                           absl::StrCat("got \"", base::LogSafe(own, 128), "\" for ", config.num_workers(),
                                        " workers, expected a Unix socket, or num_workers 1: a port is one worker's"));
  }
  const absl::StatusOr<rpc::Address> address = rpc::ParseAddress(own);
  if (!address.ok()) return config.KeyError("env.external.address", std::string(address.status().message()));
  if (!address->local()) {
    return config.KeyError(
        "env.external.address",
        absl::StrCat("got \"", own,
                     "\", which other machines reach, expected a Unix socket or a loopback address; for ",
                     "clients on other machines start troupe learner, and troupe worker with --config and ",
                     "--insecure-plaintext-network"));
  }
  return own;
}

absl::StatusOr<Plan> MakePlan(const TrainFlags& flags) {
  if (flags.config.empty() && flags.resume.empty()) {
    return base::WithExitCode(
        absl::InvalidArgumentError("needs a configuration file (examples/ has some), or --resume RUN"),
        base::ExitCode::kUsage);
  }
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  std::string file = flags.config;
  Plan plan;
  if (!flags.resume.empty()) {
    const absl::StatusOr<config::RunConfig> config =
        flags.config.empty() ? config::RunConfig::FromYaml("{}", "defaults", AllOverrides(flags))
                             : config::RunConfig::FromFile(flags.config, AllOverrides(flags));
    TROUPE_RETURN_IF_ERROR(config.status());
    absl::StatusOr<std::string> folder = cli::FindRunFolder(flags.resume, config->experiment_directory());
    if (!folder.ok()) {
      return absl::Status(folder.status().code(), absl::StrCat("--resume: ", std::string(folder.status().message())));
    }
    plan.folder = *std::move(folder);
    if (file.empty()) file = plan.folder + "/config.yaml";
  }
  const bool is_own = flags.config.empty();
  TROUPE_ASSIGN_OR_RETURN(config::RunConfig config, is_own ? config::RunConfig::FromRun(file, AllOverrides(flags))
                                                           : config::RunConfig::FromFile(file, AllOverrides(flags)));
  TROUPE_ASSIGN_OR_RETURN(config, config::PinModules(config));
  if (!plan.folder.empty() && flags.start_over.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const config::RunConfig old_config,
                            config::RunConfig::FromRun(plan.folder + "/config.yaml"));
    TROUPE_ASSIGN_OR_RETURN(config, config::ResumeConfig(old_config, config));
  }
  plan.num_workers = config.num_workers();
  if (!plan.folder.empty())
    TROUPE_RETURN_IF_ERROR(run::ReadRunModules(plan.folder, config, config::ModuleUse::kTraining));
  TROUPE_ASSIGN_OR_RETURN(plan.modules, Modules(config));
  // The environment of a run that goes on is not made here: the learner does, once it has said what that executes.
  if (flags.resume.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const config::ResolvedRun run, config::ResolveRun(config, registry));
    plan.name = run.experiment.experiment_name.empty() ? config::MakeExperimentName(run.algorithm, absl::Now())
                                                       : run.experiment.experiment_name;
    plan.folder = run.experiment.directory + "/" + plan.name;
    // The learner checks a run that is there already.
    const bool resumes = flags.resume_or_start && flags.start_over.empty() && cli::IsRunFolder(plan.folder);
    if (!resumes) TROUPE_RETURN_IF_ERROR(config::CheckEffects(run, registry, config::FileOf::kUser).status());
  }
  if (config::IsExternal(config)) {
    TROUPE_ASSIGN_OR_RETURN(plan.clients_come_to, DoorOf(config, plan.folder));
    config = config.WithExternalAddress(plan.clients_come_to);
  }
  plan.worker_yaml = config::WorkerFileYaml(config);
  plan.allow_python = flags.allow_python;
  if (!flags.resume.empty() || flags.resume_or_start) {
    for (std::string& name : NamesThatCame(plan.folder, config)) plan.allow_python.push_back(std::move(name));
  }
  // What is wrong with them each worker would say.
  TROUPE_RETURN_IF_ERROR(config::Permits::Make(config, plan.allow_python).status());
  return plan;
}

std::vector<std::string> LearnerCommand(const TrainFlags& flags, const Plan& plan, const std::string& program,
                                        const std::string& socket) {
  std::vector<std::string> command = {program};
  if (!flags.config.empty()) command.push_back(flags.config);
  const auto add = [&command](const char* flag, const std::string& value) {
    command.push_back(flag);
    command.push_back(value);
  };
  for (const std::string& text : flags.overrides) add("--set", text);
  if (flags.workers >= 0) add("--workers", absl::StrCat(flags.workers));
  if (!flags.resume.empty()) {
    add("--resume", flags.resume);
  } else {
    add("--name", plan.name);
  }
  if (!flags.directory.empty()) add("--directory", flags.directory);
  if (!flags.python.empty()) add("--python", flags.python);
  if (flags.resume_or_start) command.push_back("--resume-or-start");
  if (!flags.start_over.empty()) add("--start-over", flags.start_over);
  if (!flags.warm_start.empty()) add("--warm-start", flags.warm_start);
  add("--log-level", flags.log_level);
  add("--listen", "unix:" + socket);
  return command;
}

/// The run's summary.json as the last line of stdout.
absl::Status PrintSummary(const std::string& folder) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, cli::ReadTextFile(folder + "/summary.json"));
  const nlohmann::ordered_json summary = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!summary.is_object()) return absl::DataLossError(absl::StrCat(folder, "/summary.json holds no JSON object"));
  cli::PrintJson(summary);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> Train(const TrainFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const Plan plan, base::RefusedIfFinal(MakePlan(flags)));
  TROUPE_ASSIGN_OR_RETURN(const std::string program, cli::FindLearnerProgram());
  TROUPE_RETURN_IF_ERROR(run::FitIntoMemoryLimit(cli::kLearnerBytes));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<cli::SocketFolder> folder, cli::SocketFolder::Make());
  TROUPE_RETURN_IF_ERROR(cli::SocketFolder::Write(folder->worker_yaml(), plan.worker_yaml));
  cli::Supervisor::Options options;
  options.learner_command = LearnerCommand(flags, plan, program, folder->socket());
  // Only what a person must know: the learner tells who joined and left.
  options.worker_command = {cli::OwnPath(), "worker",
                            "--learner",    "unix:" + folder->socket(),
                            "--config",     folder->worker_yaml(),
                            "--log-level",  flags.log_level == "info" ? "warn" : flags.log_level};
  for (const std::string& name : plan.allow_python) {
    options.worker_command.push_back("--allow-python");
    options.worker_command.push_back(name);
  }
  // Workers that are started again find what the run began with, whatever became of the original.
  for (const Module& module : plan.modules) {
    TROUPE_RETURN_IF_ERROR(cli::SocketFolder::Write(folder->module(module.sha256), module.file->bytes));
    options.worker_command.push_back("--allow-torchscript");
    options.worker_command.push_back(folder->module(module.sha256));
  }
  if (!plan.clients_come_to.empty()) {
    TROUPE_INFO("clients play the episodes, who come to address=\"{}\"", plan.clients_come_to);
  }
  options.num_workers = plan.num_workers;
  options.socket_path = folder->socket();
  options.resume_command = cli::ResumeCommand(OwnSpelling(), plan.folder);
  options.lines_through_learner = base::IsSameTerminal(STDOUT_FILENO, STDERR_FILENO);
  int code = 0;
  bool in_order = false;
  {
    cli::Supervisor supervisor(std::move(options), &base::Clock::Real());
    TROUPE_ASSIGN_OR_RETURN(code, supervisor.Run());
    in_order = supervisor.ended_in_order();
  }
  // Of a run that failed the error is the last word, and says how it goes on.
  if (in_order && flags.says_next) {
    std::fputs(cli::NextCommandsText(OwnSpelling(), cli::ReadEndedRun(plan.folder)).c_str(), stdout);
    std::fflush(stdout);
  }
  if (in_order && flags.json) TROUPE_RETURN_IF_ERROR(PrintSummary(plan.folder));
  return code;
}

void AddTrainCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App* train = app.add_subcommand("train", "Train a run on this machine: a learner and rollout workers.");
  train->add_option("config", flags->config, "configuration (YAML); with --resume it may be left out");
  train->add_option("--workers", flags->workers, "worker processes (num_workers); 0: the learner samples")
      ->check(CLI::Range(0, 1024));
  train->add_option("--set", flags->overrides, "override a key: a.b=value (repeat)")->allow_extra_args(false);
  train->add_option("--name", flags->name, "name of the run (experiment.experiment_name)");
  train->add_option("--directory", flags->directory,
                    "where runs lie, and are looked for by name (experiment.directory)");
  train->add_option("--python", flags->python,
                    "the Python of environments, policies and mappings: a program, or a virtual environment's folder "
                    "(env.python.interpreter)");
  auto* resume = train->add_option("--resume", flags->resume, "go on with this run: its folder, or its name");
  auto* resume_or_start = train
                              ->add_flag("--resume-or-start", flags->resume_or_start,
                                         "go on with the run of that name if there is one, else start it")
                              ->excludes(resume);
  train
      ->add_option("--start-over", flags->start_over,
                   "move the run of --name or --resume, which is repeated here, to RUN.before-N and begin it anew; "
                   "works once")
      ->excludes(resume_or_start);
  train
      ->add_option("--warm-start", flags->warm_start, "start from the weights of this checkpoint, or of a run's latest")
      ->excludes(resume);
  train
      ->add_option("--allow-python", flags->allow_python,
                   "permit the workers this name of Python besides those of the configuration, for policies and "
                   "mappings that come while the run trains: python:MODULE:NAME (repeat)")
      ->allow_extra_args(false);
  train->add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  train->add_flag("--json", flags->json, "print the run's summary.json as one line at the end (docs/metrics.md)");
  train->footer(
      "Example: troupe train examples/simple_spread_mappo.yaml --workers 2 --set seed=7\n"
      "The first Ctrl-C ends the run in order, with a checkpoint; `troupe train --resume RUN` goes on.");
  train->callback([=] { *action = [=] { return Train(*flags); }; });
}

}  // namespace troupe::services
