#include "services/torch_launcher/ask_python.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "services/torch_launcher/ask_program.h"

namespace troupe::services {
namespace {

namespace fs = std::filesystem;

constexpr char kMarker[] = "troupe-libtorch:";
// A folder torch/ where we were started is no package; the interpreter's own path has all that are.
constexpr char kQuestion[] = R"(import os, sys
sys.path = [folder for folder in sys.path if folder]
import importlib.util
spec = importlib.util.find_spec("torch")
folders = list(spec.submodule_search_locations or []) if spec and spec.origin else []
sys.stdout.buffer.write(b"\ntroupe-libtorch:" + os.fsencode(folders[0] if folders else "") + b"\n")
)";

std::optional<std::string> FindPython(const std::string& path) {
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(path, ':', absl::SkipEmpty()))) {
    const fs::path program = fs::path(folder) / "python3";
    std::error_code error;
    if (fs::is_regular_file(program, error) && access(program.c_str(), X_OK) == 0) return program.string();
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> AskPythonForTorch(const std::string& path, absl::Duration timeout) {
  std::optional<std::string> program = FindPython(path);
  if (!program.has_value()) return absl::NotFoundError("there is no python3 on the PATH");
  const std::string python = absl::StrCat("python3 (", base::LogSafe(*program), ")");
  const absl::StatusOr<ProgramAnswer> answer = AskProgram({*program, "-c", kQuestion}, timeout);
  if (absl::IsDeadlineExceeded(answer.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat(python, " did not say within ", absl::FormatDuration(timeout), " where its package torch is"));
  }
  if (!answer.ok()) {
    return absl::InternalError(absl::StrCat(python, " ", std::string(answer.status().message())));
  }
  std::optional<std::string> folder;
  for (absl::string_view line : absl::StrSplit(answer->text, '\n')) {
    if (absl::ConsumePrefix(&line, kMarker)) folder = std::string(line);
  }
  if (answer->status != 0 || !folder.has_value()) {
    return absl::InternalError(absl::StrCat(python, " could not say where its package torch is, it ended with ",
                                            answer->EndedWith(), " and said \"", answer->LastLine(), "\""));
  }
  if (folder->empty()) return absl::NotFoundError(absl::StrCat(python, " has no package torch"));
  return *folder;
}

}  // namespace troupe::services
