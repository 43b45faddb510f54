#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <nlohmann/json_fwd.hpp>

namespace troupe::cli {

/// A run as its folder tells it. All of it is data: nothing that the folder names is imported or executed. What cannot
/// be read is left empty, and `problems` says why.
struct RunRecord {
  std::string name;  ///< the folder's
  std::string path;
  /// "running"; "finished" (a stop of the configuration was reached); "stopped" (it ended otherwise, and may go on);
  /// "elsewhere" (its learner was started on another machine, which does not answer from here); "evaluation" (of
  /// `troupe evaluate --experiment`).
  std::string state;
  std::string host;    ///< of "elsewhere"
  std::string reason;  ///< why it ended, as summary.json says; of another life than the newest line's: empty
  /// The configuration's keys with their values in YAML, "algorithm.lr" -> "0.001", without what others sign in with.
  std::map<std::string, std::string> keys;
  int64_t env_steps = 0, updates = 0, episodes = 0;
  std::optional<double> return_sum, best_return, wall_clock_s;
  bool rewards_differ = false;
  std::string best_by;
  std::string last_line;  ///< of progress.jsonl, which is a JSON object; empty: none
  absl::Time written;     ///< when its last line was, else its configuration
  std::vector<std::string> problems;

  /// The value of a key; empty where it is not known.
  std::string Key(const std::string& key) const;
};

/// Reads a run's folder. Of each file a bounded part: config.yaml and summary.json at most 1 MiB, of progress.jsonl the
/// last 64 KiB. Connects to the run's control socket, where there is one.
RunRecord ReadRun(const std::string& folder);

/// A number of a run's own files, which may hold anything: nothing where it is none, or beyond 1e100 either way, so
/// that sums and squares of such numbers are numbers.
std::optional<double> NumberIn(const nlohmann::ordered_json& object, const std::string& key);

/// The keys of a run's configuration that have another value than by default, without seed, names and places.
std::map<std::string, std::string> WrittenKeys(const RunRecord& run);

/// What lies in a folder of runs.
struct RunListing {
  static constexpr size_t kMostRuns = 1000;       ///< that are read: those that were written last
  static constexpr size_t kMostEntries = 20'000;  ///< of the folder that are looked at

  std::vector<RunRecord> runs;      ///< the newest first
  std::vector<std::string> others;  ///< entries that are no runs, sorted, kMostOthers at most
  size_t num_others = 0;
  size_t left_out = 0;  ///< runs beyond kMostRuns
  bool is_cut = false;  ///< there are more than kMostEntries entries

  static constexpr size_t kMostOthers = 5;
};

/// NOT_FOUND where `directory` is no folder that can be read.
absl::StatusOr<RunListing> ListRuns(const std::string& directory);

}  // namespace troupe::cli
