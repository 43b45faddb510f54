#include "lib/cli/programs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/status_macros.h"
#include "lib/run/memory_limit.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

fs::path OwnFolder() { return fs::path(OwnPath()).parent_path(); }

}  // namespace

std::string OwnPath() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

absl::StatusOr<std::string> FindLearnerProgram() {
  constexpr char kName[] = "troupe-learner";
  std::vector<fs::path> places = {OwnFolder() / kName, OwnFolder().parent_path() / "learner" / kName};
  if (const char* path = std::getenv("PATH"); path != nullptr) {
    for (const std::string& folder : std::vector<std::string>(absl::StrSplit(path, ':', absl::SkipEmpty()))) {
      places.push_back(fs::path(folder) / kName);
    }
  }
  for (const fs::path& place : places) {
    if (IsProgram(place)) return place.string();
  }
  return absl::NotFoundError(absl::StrCat("there is no ", kName, " beside ", OwnPath(),
                                          " nor on the PATH; it is part of a build with LibTorch (./troupe build)"));
}

absl::Status ExecLearner(std::vector<std::string> arguments) {
  TROUPE_RETURN_IF_ERROR(run::FitIntoMemoryLimit(kLearnerBytes));
  TROUPE_ASSIGN_OR_RETURN(std::string program, FindLearnerProgram());
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return absl::InternalError(absl::StrCat("cannot start ", program, ": ", std::strerror(errno)));
}

absl::StatusOr<std::vector<std::string>> FindBenchmarks() {
  std::error_code error;
  fs::path folder = OwnFolder().parent_path() / "bench";  // beside bin/, in a bundle
  if (!fs::is_directory(folder, error)) folder = OwnFolder().parent_path().parent_path() / "bench";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::EndsWith(name, "_bench") && IsProgram(entry.path())) names.push_back(entry.path().string());
  }
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no benchmark is built in ", folder.string(), "; ./troupe build makes them"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ShellQuoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || std::strchr("-_./=:,@%+", c) != nullptr;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace troupe::cli
