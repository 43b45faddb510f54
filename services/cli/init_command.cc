// troupe init

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/cli/env_checks.h"
#include "lib/cli/output.h"
#include "lib/cli/programs.h"
#include "lib/cli/starter_config.h"
#include "lib/config/key_effects.h"
#include "lib/config/resolved_run.h"
#include "lib/env/vector_env.h"
#include "lib/policy/python_callable.h"
#include "lib/storage/file_system.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include <CLI/CLI.hpp>
#include <yaml-cpp/yaml.h>

namespace troupe::services {
namespace {

namespace fs = std::filesystem;

constexpr int kNumEnvs = 4;
constexpr absl::Duration kCheckTime = absl::Seconds(20);
constexpr absl::Duration kPlayTime = absl::Seconds(1);
constexpr double kSameReturn = 1e-6;

struct InitFlags : cli::NamedEnv {
  std::string output;
  bool force = false;
};

/// `name` with "python:" where it names a file of Python without: what a person types first.
std::string WithPythonPrefix(const std::string& name) {
  const bool is_file = absl::EndsWith(name.substr(0, name.find(':')), ".py");
  return is_file ? absl::StrCat("python:", name) : name;
}

/// mpe/simple_spread: simple_spread.yaml; my_env.py:Env: my_env.yaml; python:games.chess:Env: chess.yaml.
std::string DefaultFile(const std::string& name) {
  std::string module(policy::WithoutPythonPrefix(name));
  module.resize(std::min(module.find(':'), module.size()));
  module = fs::path(module).filename().string();
  if (absl::EndsWith(module, ".py")) {
    module.resize(module.size() - 3);
  } else if (const size_t dot = module.rfind('.'); dot != std::string::npos && dot + 1 < module.size()) {
    module = module.substr(dot + 1);
  }
  return module + ".yaml";
}

/// `path`, which is relative to the working directory, as a file in `folder` has to name it.
std::string RelativeTo(const fs::path& folder, const std::string& path) {
  std::error_code error;
  const fs::path relative = fs::path(path).is_absolute() ? fs::path(path) : fs::proximate(path, folder, error);
  return error ? fs::absolute(path).string() : relative.string();
}

/// The environment's name, of which a file is named as seen from `folder`.
std::string NameIn(const fs::path& folder, const std::string& name) {
  const std::string told(policy::WithoutPythonPrefix(name));
  const std::string module = told.substr(0, told.find(':'));
  if (!absl::EndsWith(module, ".py")) return name;
  return absl::StrCat(name.substr(0, name.size() - told.size()), RelativeTo(folder, module),
                      told.substr(module.size()));
}

/// `node` in one line of YAML that reads as the same values.
std::string Flow(const YAML::Node& node) {
  std::vector<std::string> parts;
  if (node.IsMap()) {
    for (const auto& entry : node) parts.push_back(absl::StrCat(Flow(entry.first), ": ", Flow(entry.second)));
    return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
  }
  if (node.IsSequence()) {
    for (const YAML::Node& entry : node) parts.push_back(Flow(entry));
    return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
  }
  if (node.IsNull()) return "null";
  const std::string& text = node.Scalar();
  const bool plain = node.Tag() != "!" && text.find_first_of(",:[]{}#&*!|>'\"%@`\n\t") == std::string::npos;
  return plain ? text : cli::Quoted(text);
}

/// What of `node` is not in `defaults`, key by key.
YAML::Node Differing(const YAML::Node& node, const YAML::Node& defaults) {
  YAML::Node differing(YAML::NodeType::Map);
  for (const auto& entry : node) {
    const auto key = entry.first.as<std::string>();
    if (key == "folder" || Flow(entry.second) == Flow(defaults[key])) continue;  // where names of Python were read
    const bool section = key == "python" && entry.second.IsMap() && defaults[key].IsMap();
    differing[key] = section ? Differing(entry.second, defaults[key]) : entry.second;
  }
  return differing;
}

/// The mapping of `env` for a file in `folder`.
absl::StatusOr<std::string> EnvYaml(const InitFlags& flags, const config::RunConfig& config, const fs::path& folder) {
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig defaults, config::RunConfig::FromYaml("{env: {}}", "defaults"));
  YAML::Node env = Differing(YAML::Load(config.ToYaml())["env"], YAML::Load(defaults.ToYaml())["env"]);
  env["name"] = NameIn(folder, flags.name);
  std::error_code error;
  if (!flags.plugin.empty()) {
    env["plugin"] = fs::exists(flags.plugin, error) ? RelativeTo(folder, flags.plugin) : flags.plugin;
  }
  return Flow(env);
}

absl::StatusOr<env::EnvSpec> SpecOf(const config::EnvSettings& settings, const env::EnvRegistry& registry,
                                    const std::shared_ptr<envhost::HostPool>& pool) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<env::MultiAgentEnv> made,
                          config::MakeEnv(settings, registry, nullptr, pool));
  return made->spec();
}

/// The findings of the check's episodes of random play.
void TakeEpisodes(const env::ConformanceReport& report, cli::StarterFacts* facts) {
  int64_t shortest = std::numeric_limits<int64_t>::max(), longest = 0, steps = 0;
  bool balanced = true;
  for (const env::PlayedEpisode& episode : report.ended) {
    steps += episode.env_steps;
    shortest = std::min(shortest, episode.env_steps);
    longest = std::max(longest, episode.env_steps);
    balanced = balanced && std::abs(std::accumulate(episode.returns.begin(), episode.returns.end(), 0.0)) < kSameReturn;
  }
  facts->no_reward = report.env_steps > 0 && !report.got_reward;
  facts->saw_alike = report.saw_alike;
  facts->takes_turns = facts->spec.num_agents() > 1 && report.agent_steps == report.env_steps;
  facts->zero_sum = facts->spec.num_agents() == 2 && balanced && report.got_reward && report.episodes() > 0;
  facts->fixed_length = report.episodes() > 1 && shortest == longest;
  if (report.episodes() > 0)
    facts->episode_length = static_cast<double>(steps) / static_cast<double>(report.episodes());
}

/// How fast random play is.
absl::StatusOr<double> EnvStepsPerSecond(const config::EnvSettings& settings, const env::EnvRegistry& registry,
                                         const std::shared_ptr<envhost::HostPool>& pool) {
  std::vector<std::unique_ptr<env::MultiAgentEnv>> environments;
  for (int i = 0; i < kNumEnvs; ++i) {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<env::MultiAgentEnv> made,
                            config::MakeEnv(settings, registry, nullptr, pool));
    environments.push_back(std::move(made));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<env::VectorEnv> vector,
                          env::VectorEnv::Make(std::move(environments), {}));
  TROUPE_RETURN_IF_ERROR(vector->Reset());
  std::vector<space::ActionWord> actions(vector->action_size());
  const base::Clock& clock = base::Clock::Real();
  // The first two steps are not timed: environments compile in them.
  for (int i = 0; i < 2; ++i) {
    vector->SampleActions(absl::MakeSpan(actions));
    TROUPE_RETURN_IF_ERROR(vector->Step(actions));
  }
  const absl::Duration begin = clock.SteadyNow();
  const int64_t untimed = vector->env_steps();
  do {
    vector->SampleActions(absl::MakeSpan(actions));
    TROUPE_RETURN_IF_ERROR(vector->Step(actions));
  } while (clock.SteadyNow() - begin < kPlayTime);
  return static_cast<double>(vector->env_steps() - untimed) / absl::ToDoubleSeconds(clock.SteadyNow() - begin);
}

/// The environment as a command line names it.
std::string Arguments(const cli::NamedEnv& named) {
  std::string text = cli::ShellQuoted(named.name);
  const auto add = [&text](const char* flag, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&text, " ", flag, " ", cli::ShellQuoted(value));
  };
  add("--plugin", named.plugin);
  add("--python", named.python);
  for (const std::string& arg : named.args) add("--arg", arg);
  for (const std::string& text_of_key : named.overrides) add("--set", text_of_key);
  return text;
}

absl::Status IsThere(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is there already; expected another --output, or --force to replace it"));
}

/// A file that is there already stays; ALREADY_EXISTS.
absl::Status WriteNew(const std::string& path, const std::string& text) {
  const absl::Status written = storage::FileSystem::Posix().WriteNewFile(path, {storage::AsPiece(text)});
  if (absl::IsAlreadyExists(written)) return IsThere(path);
  if (written.ok()) return written;
  return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be written: ", std::string(written.message())));
}

/// Writes `text` to `path`, which stays as it is where no run can be made of `text`.
absl::Status WriteConfig(const std::string& path, const std::string& text, bool force,
                         const env::EnvRegistry& registry) {
  // In the same folder: names of files are relative.
  const std::string next = force ? absl::StrCat(path, ".", getpid(), ".yaml") : path;
  TROUPE_RETURN_IF_ERROR(WriteNew(next, text));
  const absl::StatusOr<config::RunConfig> config = config::RunConfig::FromFile(next);
  absl::Status status = config.status();
  if (status.ok()) {
    const absl::StatusOr<config::ResolvedRun> run = config::ResolveRun(*config, registry);
    status = run.ok() ? config::CheckEffects(*run, registry, config::FileOf::kUser).status() : run.status();
  }
  std::error_code error;
  if (status.ok() && force) fs::rename(next, path, error);
  if (error) status = absl::PermissionDeniedError(absl::StrCat(path, ": cannot be written: ", error.message()));
  if (!status.ok()) fs::remove(next, error);
  return status;
}

absl::StatusOr<int> Init(InitFlags flags) {
  flags.name = WithPythonPrefix(flags.name);
  const std::string path = flags.output.empty() ? DefaultFile(flags.name) : flags.output;
  for (const std::string& text : flags.overrides) {
    if (absl::StartsWith(text, "env.")) continue;
    return base::WithExitCode(
        absl::InvalidArgumentError(
            absl::StrCat("--set ", text, ": expected a key of env (env.x=y); others are yours to add to ", path)),
        base::ExitCode::kUsage);
  }
  std::error_code error;
  if (!flags.force && fs::exists(path, error)) return IsThere(path);
  const env::EnvRegistry registry = cli::AllEnvs();
  TROUPE_ASSIGN_OR_RETURN(config::RunConfig config, cli::ConfigOf(flags));
  TROUPE_ASSIGN_OR_RETURN(config::EnvSettings settings, config::EnvSettingsOf(config));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<envhost::HostPool> pool, config::MakeHostPool(settings));
  cli::StarterFacts facts;
  facts.spelled = flags.name;
  TROUPE_ASSIGN_OR_RETURN(facts.spec, SpecOf(settings, registry, pool));
  const bool is_told = !settings.wrappers.resize.empty() || settings.wrappers.grayscale;
  const std::vector<std::string> smaller = is_told ? std::vector<std::string>() : cli::SmallerImages(facts.spec);
  if (!smaller.empty()) {
    facts.shrinks_images = true;
    flags.overrides.insert(flags.overrides.end(), smaller.begin(), smaller.end());
    TROUPE_ASSIGN_OR_RETURN(config, cli::ConfigOf(flags));
    TROUPE_ASSIGN_OR_RETURN(settings, config::EnvSettingsOf(config));
    TROUPE_ASSIGN_OR_RETURN(facts.spec, SpecOf(settings, registry, pool));
  }
  env::ConformanceOptions options;

  options.max_time = kCheckTime;
  options.may_differ = true;  // training needs no episode twice
  cli::SayAsItGoes(pool == nullptr ? "" : pool->recognized_as(), &options);
  if (!smaller.empty()) std::printf("its images are large, added: %s\n", absl::StrJoin(smaller, ", ").c_str());
  TROUPE_ASSIGN_OR_RETURN(const env::ConformanceReport report, cli::CheckEnv(settings, registry, pool, options));
  if (report.first_broken_but(env::EnvRule::kDeterminism) != nullptr) {
    std::printf("%s%s is not written\n  check     %s envs check %s\n", cli::AdviceText(report).c_str(), path.c_str(),
                cli::ShellQuoted(OwnSpelling()).c_str(), Arguments(flags).c_str());
    return 1;
  }
  std::printf("%s: %lld episodes, %s env steps of random play%s (troupe envs check)\n",
              !report.ok()            ? "warning: a seed does not repeat an episode, training works all the same"
              : report.complete       ? "every rule holds"
              : report.env_steps == 0 ? "warning: no rule was tried"
                                      : "no rule was broken",
              static_cast<long long>(report.episodes()), cli::WithThousands(report.env_steps).c_str(),
              report.complete ? "" : absl::StrCat(" in ", absl::FormatDuration(kCheckTime)).c_str());
  TakeEpisodes(report, &facts);
  TROUPE_ASSIGN_OR_RETURN(facts.env_steps_per_s, EnvStepsPerSecond(settings, registry, pool));
  const fs::path folder = fs::absolute(path, error).parent_path();
  TROUPE_ASSIGN_OR_RETURN(facts.env_yaml, EnvYaml(flags, config, folder));
  std::fputs(cli::FactsText(facts).c_str(), stdout);
  std::fputs(cli::ScalingLine(facts.spec).c_str(), stdout);
  TROUPE_RETURN_IF_ERROR(WriteConfig(path, cli::StarterYaml(facts, path), flags.force, registry));
  std::printf("wrote %s\n  train     %s train %s\n", path.c_str(), cli::ShellQuoted(OwnSpelling()).c_str(),
              cli::ShellQuoted(path).c_str());
  return 0;
}

}  // namespace

void AddInitCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<InitFlags>();
  CLI::App* init = app.add_subcommand(
      "init", "Check an environment and write a short configuration that trains it. Runs the environment's code.");
  cli::AddEnvFlags(init, flags.get());
  init->add_option("--output", flags->output, "the file (default: the environment's name with .yaml, here)");
  init->add_flag("--force", flags->force, "replace the file where it is there");
  init->footer(
      "Example: troupe init my_env.py:Env\n"
      "         troupe init mpe/simple_spread --arg N=5 --output spread.yaml");
  init->callback([=] { *action = [=] { return Init(*flags); }; });
}

}  // namespace troupe::services
