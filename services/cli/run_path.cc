#include "services/cli/run_path.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace troupe::services {
namespace {

constexpr std::streamoff kTailBytes = 64 << 10;  // lines of progress.jsonl are a few kilobytes

}  // namespace

bool IsRunFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path + "/config.yaml", error);
}

absl::StatusOr<std::string> FindRunFolder(const std::string& run, const std::string& directory) {
  if (IsRunFolder(run)) return run;
  const std::string inside = directory + "/" + run;
  if (!run.empty() && IsRunFolder(inside)) return inside;
  return absl::NotFoundError(
      absl::StrCat("there is no run in \"", run, "\" nor in \"", inside, "\" (a run has a config.yaml)"));
}

absl::StatusOr<std::string> LastProgressLine(const std::string& folder) {
  std::ifstream file(folder + "/progress.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no progress.jsonl in \"", folder, "\""));
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::string tail((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end = tail.rfind('\n');
  if (end == std::string::npos)
    return absl::NotFoundError(absl::StrCat("progress.jsonl in \"", folder, "\" has no line yet"));
  tail.resize(end);
  const size_t begin = tail.rfind('\n');
  return begin == std::string::npos ? tail : tail.substr(begin + 1);
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

}  // namespace troupe::services
