#include "lib/cli/run_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/local_path.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/run_path.h"
#include "lib/config/parse_yaml.h"
#include "lib/config/run_config.h"
#include "lib/storage/file_system.h"
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMostSummaryBytes = 1 << 20;

void AddKeys(const YAML::Node& node, const std::string& key, std::map<std::string, std::string>* keys) {
  if (node.IsMap() && node.size() > 0) {
    for (const auto& entry : node) {
      AddKeys(entry.second, absl::StrCat(key, key.empty() ? "" : ".", entry.first.Scalar()), keys);
    }
    return;
  }
  YAML::Emitter text;
  text.SetSeqFormat(YAML::Flow);
  text.SetMapFormat(YAML::Flow);
  text << node;
  (*keys)[key] = text.c_str();
}

std::map<std::string, std::string> KeysOf(const config::RunConfig& config) {
  std::map<std::string, std::string> keys;
  const auto yaml = config::ParseYaml(config.ToYaml(), "config.yaml", /*with_mark=*/false);
  if (yaml.ok()) AddKeys(*yaml, "", &keys);
  return keys;
}

void ReadConfig(const std::string& folder, RunRecord* run) {
  const std::string path = folder + "/config.yaml";
  const auto text = storage::FileSystem::Posix().ReadFile(path, static_cast<int64_t>(config::kMaxConfigBytes));
  if (!text.ok()) {
    run->problems.push_back(absl::StrCat("config.yaml: ", text.status().message()));
    return;
  }
  const auto config = config::RunConfig::FromYaml(*text, "config.yaml");
  if (!config.ok()) {
    run->problems.push_back(std::string(config.status().message()));
    return;
  }
  run->keys = KeysOf(config->WithoutSecrets());
}

int64_t CountIn(const Json& object, const char* key) {
  const std::optional<double> value = NumberIn(object, key);
  return value && *value >= 0 && *value < 9e18 ? static_cast<int64_t>(*value) : 0;
}

std::string TextIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void ReadProgress(const std::string& folder, RunRecord* run) {
  const absl::StatusOr<std::string> line = LastProgressLine(folder);
  if (absl::IsNotFound(line.status())) return;  // it has not begun
  if (!line.ok()) {
    run->problems.push_back(std::string(line.status().message()));
    return;
  }
  const Json last = Json::parse(*line, nullptr, false);
  if (!last.is_object()) {
    run->problems.push_back("progress.jsonl: its last line is no JSON object");
    return;
  }
  run->last_line = *line;
  run->env_steps = CountIn(last, "env_steps");
  run->updates = CountIn(last, "updates");
  run->episodes = CountIn(last, "episodes");
  run->return_sum = NumberIn(last, "return_sum");
  run->best_return = NumberIn(last, "best_return");
  run->wall_clock_s = NumberIn(last, "wall_clock_s");
  const auto differ = last.find("rewards_differ");
  run->rewards_differ = differ != last.end() && differ->is_boolean() && differ->get<bool>();
}

/// Also the state, of a run that nobody trains.
void ReadSummary(const std::string& folder, RunRecord* run) {
  run->state = "stopped";
  const std::string path = folder + "/summary.json";
  if (!storage::FileSystem::Posix().Exists(path)) return;
  const absl::StatusOr<std::string> text = storage::FileSystem::Posix().ReadFile(path, kMostSummaryBytes);
  const Json summary = text.ok() ? Json::parse(*text, nullptr, false) : Json();
  if (!summary.is_object()) {
    run->problems.push_back(text.ok() ? "summary.json: no JSON object"
                                      : absl::StrCat("summary.json: ", text.status().message()));
    return;
  }
  if (summary.contains("evaluated_run")) {
    run->state = "evaluation";
    return;
  }
  // A life after the one that wrote it may have been killed.
  if (CountIn(summary, "env_steps") < run->env_steps) return;
  run->reason = TextIn(summary, "reason");
  run->best_by = TextIn(summary, "best_by");
  if (absl::StartsWith(run->reason, "stop.")) run->state = "finished";
}

absl::Time WrittenAt(const std::string& folder) {
  for (const char* const file : {"/progress.jsonl", "/config.yaml"}) {
    struct stat info {};
    if (lstat((folder + file).c_str(), &info) == 0) return absl::TimeFromTimespec(info.st_mtim);
  }
  return absl::UnixEpoch();
}

}  // namespace

std::string RunRecord::Key(const std::string& key) const {
  const auto found = keys.find(key);
  return found == keys.end() ? "" : found->second;
}

std::optional<double> NumberIn(const Json& object, const std::string& key) {
  constexpr double kMost = 1e100;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::abs(value) <= kMost ? std::optional<double>(value) : std::nullopt;
}

RunRecord ReadRun(const std::string& folder) {
  RunRecord run;
  run.path = folder;
  std::error_code error;
  fs::path whole = fs::absolute(folder, error).lexically_normal();
  if (whole.filename().empty()) whole = whole.parent_path();  // "runs/a/"
  run.name = whole.filename().string();
  run.written = WrittenAt(folder);
  ReadConfig(folder, &run);
  ReadProgress(folder, &run);
  ReadSummary(folder, &run);
  if (!storage::FileSystem::Posix().Exists(folder + "/address")) return run;
  const absl::StatusOr<LearnerTarget> learner = FindLearner(folder, "");
  if (!learner.ok()) return run;
  if (IsTrained(*learner)) {
    run.state = "running";
    run.reason.clear();
  } else if (learner->elsewhere()) {
    run.state = "elsewhere";
    run.host = learner->host;
  }
  return run;
}

std::map<std::string, std::string> WrittenKeys(const RunRecord& run) {
  const std::map<std::string, std::string> defaults = KeysOf(config::RunConfig());
  std::map<std::string, std::string> written;
  for (const auto& [key, value] : run.keys) {
    const auto by_default = defaults.find(key);
    const bool is_told = key == "seed" || key == "env.name" || key == "algorithm.name" ||
                         absl::StartsWith(key, "experiment.") || absl::StartsWith(key, "env.python.folder");
    if (!is_told && (by_default == defaults.end() || by_default->second != value)) written[key] = value;
  }
  return written;
}

absl::StatusOr<RunListing> ListRuns(const std::string& directory) {
  TROUPE_RETURN_IF_ERROR(base::CheckIsPath(directory));
  RunListing listing;
  std::vector<std::pair<absl::Time, std::string>> found;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  size_t looked_at = 0;
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    listing.is_cut = ++looked_at > RunListing::kMostEntries;
    if (listing.is_cut) break;
    const std::string path = entry->path().string();
    std::error_code ignored;
    if (fs::is_directory(path, ignored) && IsRunFolder(path)) {
      found.emplace_back(WrittenAt(path), path);
    } else {
      listing.others.push_back(entry->path().filename().string());
    }
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat("\"", base::LogSafe(directory), "\": ", error.message(),
                                            ", expected a folder of runs; --directory says where they lie"));
  }
  std::sort(found.rbegin(), found.rend());
  if (found.size() > RunListing::kMostRuns) {
    listing.left_out = found.size() - RunListing::kMostRuns;
    found.resize(RunListing::kMostRuns);
  }
  for (const auto& [written, path] : found) listing.runs.push_back(ReadRun(path));
  std::sort(listing.others.begin(), listing.others.end());
  listing.num_others = listing.others.size();
  if (listing.num_others > RunListing::kMostOthers) listing.others.resize(RunListing::kMostOthers);
  return listing;
}

}  // namespace troupe::cli
