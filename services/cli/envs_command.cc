// troupe envs ls|check|replay|bench

#include <cstdio>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/status_macros.h"
#include "lib/cli/env_checks.h"
#include "lib/cli/output.h"
#include "lib/config/make_env.h"
#include "lib/config/resolved_run.h"
#include "lib/env/conformance.h"
#include "lib/env/plugin_env.h"
#include "lib/env/random_rollout.h"
#include "lib/envs/mpe/replay.h"
#include "services/cli/cli_command.h"
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

using Json = nlohmann::ordered_json;

struct EnvFlags : cli::NamedEnv {
  int64_t seed = 0;
  bool json = false;
  // check
  int episodes = 8;
  bool keep_going = false;
  // replay
  std::vector<std::string> traces;
  double tolerance = 1e-5;
  // bench
  int64_t env_steps = 1'000'000;
  int num_envs = 64;
};

absl::StatusOr<config::EnvSettings> ReadSettings(const EnvFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, cli::ConfigOf(flags));
  return config::EnvSettingsOf(config);
}

absl::StatusOr<int> Ls(const std::string& plugin, bool json) {
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows;
  const auto show = [&](const auto& entries) {
    for (const auto& entry : entries) {
      list.push_back({{"name", entry.name}, {"description", entry.description}});
      rows.push_back({entry.name, entry.description});
    }
  };
  if (plugin.empty()) {
    show(cli::AllEnvs().entries());
  } else {
    TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<const env::EnvPlugin> loaded, config::LoadEnvPlugin(plugin));
    show(loaded->entries());
  }
  if (json) {
    cli::PrintJson(list);
  } else {
    cli::PrintTable(rows);
  }
  return 0;
}

absl::StatusOr<int> Check(const EnvFlags& flags) {
  const env::EnvRegistry registry = cli::AllEnvs();
  TROUPE_ASSIGN_OR_RETURN(const config::EnvSettings settings, ReadSettings(flags));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<envhost::HostPool> pool, config::MakeHostPool(settings));
  env::ConformanceOptions options;
  options.seed = static_cast<uint64_t>(flags.seed);
  options.episodes = flags.episodes;
  options.keep_going = flags.keep_going;
  TROUPE_ASSIGN_OR_RETURN(const std::string recognized_as, cli::RecognizedAs(settings, registry, pool));
  if (!flags.json) cli::SayAsItGoes(recognized_as, &options);
  TROUPE_ASSIGN_OR_RETURN(const env::ConformanceReport report, cli::CheckEnv(settings, registry, pool, options));
  const env::ConformanceLine* const broken = report.first_broken();
  if (flags.json) {
    Json rules = Json::object();
    for (const env::ConformanceLine& line : report.lines) {
      rules[std::string(env::EnvRuleName(line.rule))] = {{"ok", line.tried || !line.ok ? Json(line.ok) : Json(nullptr)},
                                                         {"detail", line.detail}};
    }
    Json out = {{"name", flags.name},
                {"ok", report.ok()},
                {"rules", rules},
                {"episodes", report.episodes()},
                {"env_steps", report.env_steps}};
    out["recognized_as"] = recognized_as.empty() ? Json(nullptr) : Json(recognized_as);
    if (broken != nullptr) {
      out["broken"] = {{"rule", env::EnvRuleName(broken->rule)},
                       {"error", broken->detail},
                       {"advice", env::EnvRuleAdvice(broken->rule)}};
    }
    cli::PrintJson(out);
  } else {
    std::fputs(report.ToString().c_str(), stdout);
    std::fputs(cli::AdviceText(report).c_str(), stdout);
    if (!report.ok()) return 1;
    TROUPE_ASSIGN_OR_RETURN(const auto made, config::MakeEnv(settings, registry, nullptr, pool));
    std::fputs(cli::ScalingLine(made->spec()).c_str(), stdout);
  }
  return report.ok() ? 0 : 1;
}

/// Replays every line of one file. Adds to `list`; false when a line is over the tolerance.
absl::StatusOr<bool> ReplayFile(const std::string& path, const EnvFlags& flags, Json* list) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  bool within = true;
  int line_number = 0;
  std::string line;
  while (std::getline(file, line)) {
    ++line_number;
    if (line.empty()) continue;
    const std::string place = absl::StrCat(path, ":", line_number);
    const absl::StatusOr<envs::ReplayReport> report = envs::ReplayTrace(line);
    if (!report.ok()) {
      return absl::Status(report.status().code(), absl::StrCat(place, ": ", std::string(report.status().message())));
    }
    const bool ok = report->Within(flags.tolerance);
    within = within && ok;
    list->push_back({{"trace", place},
                     {"env", report->env},
                     {"ok", ok},
                     {"steps", report->steps},
                     {"max_obs_diff", report->max_obs_diff},
                     {"max_reward_diff", report->max_reward_diff},
                     {"max_info_diff", report->max_info_diff},
                     {"flags_equal", report->flags_equal}});
    if (!flags.json) {
      std::printf("%s %s: %s, %lld steps, largest difference: observations %.3g, rewards %.3g, infos %.3g%s\n",
                  ok ? "ok  " : "FAIL", place.c_str(), report->env.c_str(), static_cast<long long>(report->steps),
                  report->max_obs_diff, report->max_reward_diff, report->max_info_diff,
                  report->flags_equal ? "" : ", flags differ");
    }
    if (!ok) std::fprintf(stderr, "%s: %s\n", place.c_str(), report->where.c_str());
  }
  if (line_number == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty, expected a trace a line"));
  return within;
}

absl::StatusOr<int> Replay(const EnvFlags& flags) {
  Json list = Json::array();
  bool within = true;
  for (const std::string& path : flags.traces) {
    TROUPE_ASSIGN_OR_RETURN(const bool ok, ReplayFile(path, flags, &list));
    within = within && ok;
  }
  if (flags.json) cli::PrintJson(list);
  return within ? 0 : 1;
}

absl::StatusOr<int> Bench(const EnvFlags& flags) {
  const env::EnvRegistry registry = cli::AllEnvs();
  TROUPE_ASSIGN_OR_RETURN(const config::EnvSettings settings, ReadSettings(flags));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<envhost::HostPool> pool, config::MakeHostPool(settings));
  std::vector<std::unique_ptr<env::MultiAgentEnv>> environments;
  for (int i = 0; i < flags.num_envs; ++i) {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<env::MultiAgentEnv> environment,
                            config::MakeEnv(settings, registry, nullptr, pool));
    environments.push_back(std::move(environment));
  }
  env::VectorEnv::Options options;
  options.seed = static_cast<uint64_t>(flags.seed);
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<env::VectorEnv> vector,
                          env::VectorEnv::Make(std::move(environments), options));
  TROUPE_RETURN_IF_ERROR(vector->Reset());
  TROUPE_ASSIGN_OR_RETURN(const env::RandomRolloutResult result, env::RandomRollout(*vector, flags.env_steps));
  if (flags.json) {
    cli::PrintJson({{"name", flags.name},
                    {"env_steps", result.env_steps},
                    {"agent_steps", result.agent_steps},
                    {"episodes", result.episodes},
                    {"elapsed_s", absl::ToDoubleSeconds(result.elapsed)},
                    {"env_steps_per_s", result.env_steps_per_s},
                    {"agent_steps_per_s", result.agent_steps_per_s},
                    {"return_sum", {{"mean", result.return_sum}}},
                    {"return_mean", {{"mean", result.return_mean}}},
                    {"episode_length", {{"mean", result.episode_length}}}});
  } else {
    std::printf("%s, %d environments, random actions, one thread: %s env steps/s, %s agent steps/s\n",
                flags.name.c_str(), flags.num_envs,
                cli::WithThousands(static_cast<int64_t>(result.env_steps_per_s)).c_str(),
                cli::WithThousands(static_cast<int64_t>(result.agent_steps_per_s)).c_str());
    std::printf("%s episodes: return %.3f summed over agents, length %.1f\n",
                cli::WithThousands(result.episodes).c_str(), result.return_sum, result.episode_length);
  }
  return 0;
}

void AddCommonFlags(CLI::App* command, EnvFlags* flags) {
  cli::AddEnvFlags(command, flags);
  command->add_option("--seed", flags->seed, "seed")->capture_default_str()->check(CLI::NonNegativeNumber);
}

}  // namespace

void AddEnvsCommand(CLI::App& app, Action* action) {
  CLI::App* envs =
      app.add_subcommand("envs", "Environments, native, of plug-ins and in Python: list, check, replay, measure.");
  envs->require_subcommand(1);
  envs->footer("Example: troupe envs check mpe/simple_spread --arg N=5");

  const auto ls_json = std::make_shared<bool>(false);
  const auto ls_plugin = std::make_shared<std::string>();
  CLI::App* ls = envs->add_subcommand("ls", "Which environments there are.");
  ls->add_option("--plugin", *ls_plugin, "those of this shared library instead of those built in");
  ls->add_flag("--json", *ls_json, "one line: [{\"name\", \"description\"}]");
  ls->footer("Example: troupe envs ls");
  ls->callback([=] { *action = [=] { return Ls(*ls_plugin, *ls_json); }; });

  const auto check_flags = std::make_shared<EnvFlags>();
  CLI::App* check = envs->add_subcommand("check", "Play random episodes and check every rule of the contract.");
  AddCommonFlags(check, check_flags.get());
  check->add_option("--episodes", check_flags->episodes, "episodes of each environment id")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  check->add_flag("--keep-going", check_flags->keep_going,
                  "a broken rule ends its episode alone, so that one check finds every rule that is broken");
  check->add_flag("--json", check_flags->json,
                  "one line: {\"name\", \"ok\", \"rules\": {RULE: {\"ok\" (null: untried), \"detail\"}}, \"episodes\", "
                  "\"env_steps\", \"recognized_as\" (null: not in Python), and where a rule is broken \"broken\": "
                  "{\"rule\", \"error\", \"advice\"}}");
  check->footer(
      "Example: troupe envs check mpe/simple_spread --arg N=5\n"
      "         troupe envs check mine --plugin libmine.so");
  check->callback([=] { *action = [=] { return Check(*check_flags); }; });

  const auto replay_flags = std::make_shared<EnvFlags>();
  CLI::App* replay = envs->add_subcommand(
      "replay", "Replay recorded episodes of the original; fails when a difference is above the tolerance.");
  replay->add_option("trace", replay_flags->traces, "files with a recorded episode a line (docs/environments.md)")
      ->required();
  replay->add_option("--tolerance", replay_flags->tolerance, "largest difference of an observation or reward")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  replay->add_flag("--json", replay_flags->json,
                   "one line: [{\"trace\", \"env\", \"ok\", \"steps\", \"max_obs_diff\", \"max_reward_diff\", "
                   "\"max_info_diff\", \"flags_equal\"}]");
  replay->footer("Example: troupe envs replay simple_spread_v3.jsonl");
  replay->callback([=] { *action = [=] { return Replay(*replay_flags); }; });

  const auto bench_flags = std::make_shared<EnvFlags>();
  CLI::App* bench = envs->add_subcommand("bench", "Random actions on one thread, as fast as it goes.");
  AddCommonFlags(bench, bench_flags.get());
  bench->add_option("--env-steps", bench_flags->env_steps, "at least so many env steps")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  bench->add_option("--num-envs", bench_flags->num_envs, "environments stepped side by side")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  bench->add_flag("--json", bench_flags->json,
                  "one line: {\"name\", \"env_steps\", \"agent_steps\", \"episodes\", \"elapsed_s\", "
                  "\"env_steps_per_s\", \"agent_steps_per_s\", "
                  "\"return_sum\": {\"mean\"}, \"return_mean\": {\"mean\"}, \"episode_length\": {\"mean\"}}");
  bench->footer("Example: troupe envs bench mpe/simple_spread --env-steps 1000000");
  bench->callback([=] { *action = [=] { return Bench(*bench_flags); }; });
}

}  // namespace troupe::services
