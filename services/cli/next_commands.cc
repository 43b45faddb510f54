#include "services/cli/next_commands.h"

#include <cstdint>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/config/run_config.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/run_folder.h"
#include "services/cli/programs.h"
#include "services/cli/run_path.h"
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace troupe::services {
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

/// Twice the limit that `reason`, which begins with its key, names; empty for one that doubling does not raise.
/// `config`: of the run's config.yaml, which has every key.
std::string Raised(const std::string& reason, const YAML::Node& config, int64_t env_steps) {
  const YAML::Node stop = config["stop"];
  if (!stop.IsMap()) return "";
  const std::string key = reason.substr(0, reason.find(' '));
  if (key == "stop.wall_clock") return absl::StrCat(key, "=", 2 * stop["wall_clock"].as<double>(0));
  int64_t limit = 0;
  if (key == "stop.env_steps") limit = stop["env_steps"].as<int64_t>(env_steps);  // auto: of the steps there were
  if (key == "stop.agent_steps") limit = stop["agent_steps"].as<int64_t>(0);
  if (key == "stop.updates") limit = stop["updates"].as<int64_t>(0);
  return limit > 0 && limit <= INT64_MAX / 2 ? absl::StrCat(key, "=", 2 * limit) : "";
}

/// The override that raises the limit of `reason`; empty where the configuration cannot be read.
std::string RaisedIn(const std::string& folder, const std::string& reason, int64_t env_steps) {
  const absl::StatusOr<config::RunConfig> config = config::RunConfig::FromFile(folder + "/config.yaml");
  return config.ok() ? Raised(reason, YAML::Load(config->ToYaml()), env_steps) : "";
}

}  // namespace

EndedRun ReadEndedRun(const std::string& folder) {
  EndedRun run;
  run.folder = folder;
  run.is_there = IsRunFolder(folder);
  run.has_checkpoint = storage::FindCheckpoint(storage::FileSystem::Posix(), folder, "latest").ok();
  run.has_events = HasEvents(folder);
  const absl::StatusOr<std::string> text = ReadTextFile(folder + "/summary.json");
  if (!text.ok()) return run;
  const nlohmann::json summary = nlohmann::json::parse(*text, nullptr, false);
  if (!summary.is_object() || !summary.contains("reason") || !summary["reason"].is_string()) return run;
  const std::string reason = summary["reason"].get<std::string>();
  run.finished = absl::StartsWith(reason, "stop.");
  if (run.finished && summary.contains("env_steps") && summary["env_steps"].is_number_integer()) {
    run.raised = RaisedIn(folder, reason, summary["env_steps"].get<int64_t>());
  }
  return run;
}

std::string NextCommandsText(const std::string& program, const EndedRun& run) {
  const std::string troupe = ShellQuoted(program);
  const std::string folder = ShellQuoted(run.folder);
  std::string text;
  if (run.has_checkpoint) text += Line("evaluate", absl::StrCat(troupe, " evaluate ", folder));
  if (run.has_events) text += Line("curves", absl::StrCat("tensorboard --logdir ", folder));
  if (run.has_checkpoint) text += Line("query", absl::StrCat(troupe, " query ", folder));
  const std::string resume = ResumeCommand(program, run);
  if (resume.empty() || (run.finished && run.raised.empty())) return text;
  return text + Line("resume", run.finished ? absl::StrCat(resume, " --set ", run.raised) : resume);
}

std::string ResumeCommand(const std::string& program, const EndedRun& run) {
  if (!run.is_there) return "";
  return absl::StrCat(ShellQuoted(program), " train --resume ", ShellQuoted(run.folder));
}

}  // namespace troupe::services
