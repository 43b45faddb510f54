#include "lib/cli/next_commands.h"

#include <cstdint>
#include <filesystem>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/cli/env_checks.h"
#include "lib/cli/programs.h"
#include "lib/cli/run_path.h"
#include "lib/config/external.h"
#include "lib/config/run_config.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/run_folder.h"
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

bool HasEvents(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (absl::StartsWith(entry->path().filename().string(), "events.out.tfevents.")) return true;
  }
  return false;
}

std::string Line(const std::string& what, const std::string& command) {
  return absl::StrCat("  ", what, std::string(10 - what.size(), ' '), command, "\n");
}

/// `limit`, doubled until it is more than `reached`; empty where no number is.
template <typename Number>
std::string Doubled(Number limit, Number reached) {
  if (limit <= 0) return "";
  do {
    if (limit > std::numeric_limits<Number>::max() / 2) return "";
    limit *= 2;
  } while (limit <= reached);
  return absl::StrCat(limit);
}

/// The override that raises the limit of `stop` that ended the run of `summary`; empty for one that doubling does not
/// raise. `stop`: of the run's config.yaml, with every key.
std::string Raised(const nlohmann::json& summary, const YAML::Node& stop) {
  const std::string reason = summary["reason"];
  const std::string key = reason.substr(0, reason.find(' '));
  std::string raised;
  if (key == "stop.wall_clock") {
    const nlohmann::json seconds = summary.value("wall_clock_s", nlohmann::json());
    raised = Doubled(stop["wall_clock"].as<double>(0), seconds.is_number() ? seconds.get<double>() : 0);
  }
  for (const char* name : {"env_steps", "agent_steps", "updates"}) {
    if (key != absl::StrCat("stop.", name)) continue;
    const nlohmann::json counted = summary.value(name, nlohmann::json());
    const int64_t reached = counted.is_number_integer() ? counted.get<int64_t>() : 0;
    raised = Doubled(stop[name].as<int64_t>(reached), reached);  // auto: of the steps there were
  }
  return raised.empty() ? "" : absl::StrCat(key, "=", raised);
}

}  // namespace

EndedRun ReadEndedRun(const std::string& folder) {
  EndedRun run;
  run.folder = folder;
  run.is_there = IsRunFolder(folder);
  run.has_checkpoint = storage::FindCheckpoint(storage::FileSystem::Posix(), folder, "latest").ok();
  run.has_events = HasEvents(folder);
  const absl::StatusOr<config::RunConfig> config = config::RunConfig::FromFile(folder + "/config.yaml");
  const YAML::Node keys = config.ok() ? YAML::Load(config->ToYaml()) : YAML::Node();
  if (config.ok()) run.plays = !config::IsExternal(*config);
  if (config.ok()) run.draws = AllEnvs().Draws(keys["env"]["name"].as<std::string>(""));
  const absl::StatusOr<std::string> text = ReadTextFile(folder + "/summary.json");
  if (!text.ok()) return run;
  const nlohmann::json summary = nlohmann::json::parse(*text, nullptr, false);
  if (!summary.is_object() || !summary.contains("reason") || !summary["reason"].is_string()) return run;
  run.finished = absl::StartsWith(summary["reason"].get<std::string>(), "stop.");
  if (run.finished && config.ok()) run.raised = Raised(summary, keys["stop"]);
  return run;
}

std::string NextCommandsText(const std::string& program, const EndedRun& run) {
  const std::string troupe = ShellQuoted(program);
  const std::string folder = ShellQuoted(run.folder);
  std::string text;
  if (run.has_checkpoint && run.plays) text += Line("evaluate", absl::StrCat(troupe, " evaluate ", folder));
  if (run.has_checkpoint && run.plays && run.draws) {
    const std::string file = fs::path(run.folder).filename().string() + ".gif";
    text += Line("video", absl::StrCat(troupe, " evaluate ", folder, " --video ", ShellQuoted(file)));
  }
  if (run.has_events) text += Line("curves", absl::StrCat("tensorboard --logdir ", folder));
  if (run.has_checkpoint) text += Line("query", absl::StrCat(troupe, " query ", folder));
  if (!run.is_there || (run.finished && run.raised.empty())) return text;
  const std::string resume = ResumeCommand(program, run.folder);
  return text + Line("resume", run.finished ? absl::StrCat(resume, " --set ", run.raised) : resume);
}

std::string ResumeCommand(const std::string& program, const std::string& folder) {
  return absl::StrCat(ShellQuoted(program), " train --resume ", ShellQuoted(folder));
}

}  // namespace troupe::cli
