#include "lib/cli/run_path.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/local_path.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/storage/file_system.h"

namespace troupe::cli {
namespace {

constexpr int64_t kTailBytes = 64 << 10;  // lines of progress.jsonl are a few kilobytes

constexpr int64_t kMaxTextBytes = 1 << 20;  // summaries and addresses are far smaller

constexpr int kMostRuns = 1000;  // that a name is compared with
constexpr size_t kMostNamed = 5;

/// The end of an error about a run that is not there: the one that may have been meant, or which there are.
std::string RunsThere(const std::string& name, const std::string& directory) {
  std::vector<std::string> runs;
  std::error_code error;
  int looked_at = 0;
  for (std::filesystem::directory_iterator entry(directory, error), end;
       !error && entry != end && ++looked_at <= kMostRuns; entry.increment(error)) {
    if (IsRunFolder(entry->path().string())) runs.push_back(base::LogSafe(entry->path().filename().string(), 64));
  }
  if (runs.empty()) return absl::StrCat("; \"", directory, "\" holds none, --directory says where runs lie");
  std::sort(runs.begin(), runs.end());
  const std::string nearest = base::NearestName(name, runs);
  return nearest.empty() ? absl::StrCat("; in \"", directory, "\" there are ", base::FewOf(runs, kMostNamed))
                         : absl::StrCat("; the nearest is \"", directory, "/", nearest, "\"");
}

}  // namespace

bool IsRunFolder(const std::string& path) {
  // Whatever lies there: what reads no configuration does not mind.
  return storage::FileSystem::Posix().Exists(path + "/config.yaml");
}

absl::StatusOr<std::string> FindRunFolder(const std::string& run, const std::string& directory) {
  TROUPE_RETURN_IF_ERROR(base::CheckIsPath(run));
  TROUPE_RETURN_IF_ERROR(base::CheckIsPath(directory));
  if (IsRunFolder(run)) return run;
  // A whole path is no name inside another folder.
  const bool is_name = !run.empty() && !std::filesystem::path(run).is_absolute();
  const std::string inside = (std::filesystem::path(directory) / run).string();
  if (is_name && IsRunFolder(inside)) return inside;
  return absl::NotFoundError(absl::StrCat(
      "there is no run in \"", run, is_name ? absl::StrCat("\" nor in \"", inside) : std::string(),
      "\" (a run has a config.yaml)", RunsThere(std::filesystem::path(run).filename().string(), directory)));
}

absl::StatusOr<std::string> LastProgressLine(const std::string& folder) {
  const std::string path = folder + "/progress.jsonl";
  if (!storage::FileSystem::Posix().Exists(path)) {
    return absl::NotFoundError(absl::StrCat("there is no progress.jsonl in \"", folder, "\""));
  }
  const absl::StatusOr<std::unique_ptr<storage::OpenFile>> file = storage::FileSystem::Posix().Open(path);
  if (!file.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("progress.jsonl cannot be read: ", file.status().message()));
  }
  const int64_t bytes = std::min((*file)->bytes(), kTailBytes);
  TROUPE_ASSIGN_OR_RETURN(std::string tail, (*file)->Read((*file)->bytes() - bytes, bytes));
  const size_t end = tail.rfind('\n');
  if (end == std::string::npos && bytes < (*file)->bytes()) {
    return absl::DataLossError("progress.jsonl has no whole line in its last 64 KiB");
  }
  if (end == std::string::npos) {
    return absl::NotFoundError(absl::StrCat("progress.jsonl in \"", folder, "\" has no line yet"));
  }
  tail.resize(end);
  const size_t begin = tail.rfind('\n');
  return begin == std::string::npos ? tail : tail.substr(begin + 1);
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  absl::StatusOr<std::string> text = storage::FileSystem::Posix().ReadFile(path, kMaxTextBytes);
  if (text.ok()) return text;
  return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", text.status().message()));
}

}  // namespace troupe::cli
