#include "lib/envhost/python_program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/log.h"
#include "lib/policy/python_callable.h"

namespace troupe::envhost {
namespace {

namespace fs = std::filesystem;

constexpr char kModule[] = "troupe/env_host.py";
constexpr char kUsualStep[] = "python/_usual_step.abi3.so";
constexpr char kVariable[] = "TROUPE_PYTHON";
// Empty is the working directory. Python 3.11 has the flag -P for it.
constexpr char kRunModule[] =
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__')";

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

bool HoldsPackage(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kModule, error);
}

fs::path OwnFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace

absl::StatusOr<std::string> FindInterpreter(const std::string& interpreter) {
  if (interpreter.empty()) {
    const char* const environment = std::getenv("VIRTUAL_ENV");
    if (environment != nullptr && IsProgram(fs::path(environment) / "bin/python")) {
      return (fs::path(environment) / "bin/python").string();
    }
    return IsProgram(OwnFolder() / "python3") ? (OwnFolder() / "python3").string() : FindInterpreter("python3");
  }
  const std::string shown = base::LogSafe(interpreter);
  std::error_code error;
  if (fs::is_directory(interpreter, error)) {
    const fs::path program = fs::path(interpreter) / "bin/python";
    if (IsProgram(program)) return program.string();
    return absl::NotFoundError(absl::StrCat("got the folder ", shown,
                                            ", which has no bin/python, expected a virtual environment or a program"));
  }
  if (interpreter.find('/') != std::string::npos) {
    if (IsProgram(interpreter)) return interpreter;
    return absl::NotFoundError(
        absl::StrCat("got ", shown, ", which is no program, expected a Python interpreter or a virtual environment"));
  }
  const char* path = std::getenv("PATH");
  for (const std::string& folder :
       std::vector<std::string>(absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty()))) {
    if (IsProgram(fs::path(folder) / interpreter)) return (fs::path(folder) / interpreter).string();
  }
  return absl::NotFoundError(absl::StrCat("got ", shown, ", which is not on the PATH, expected a Python interpreter"));
}

std::string ModuleName(std::string_view name, const std::string& folder) {
  const std::string told(policy::WithoutPythonPrefix(name));
  const std::string module = told.substr(0, told.find(':'));
  if (folder.empty() || !absl::EndsWith(module, ".py") || fs::path(module).is_absolute()) return told;
  std::error_code error;
  const std::string path = (fs::path(folder) / module).lexically_normal().string();
  return fs::is_regular_file(path, error) ? path + told.substr(module.size()) : told;
}

std::vector<std::string> ModuleNames(const std::vector<std::string>& names, const std::string& folder) {
  std::vector<std::string> told;
  for (const std::string& name : names) told.push_back(ModuleName(name, folder));
  return told;
}

absl::StatusOr<std::string> FindPackage() {
  if (const char* told = std::getenv(kVariable); told != nullptr && *told != '\0') {
    if (HoldsPackage(told)) return std::string(told);
    return absl::NotFoundError(absl::StrCat(kVariable, " is ", base::LogSafe(told), ", which holds no ", kModule,
                                            ", expected the folder that does"));
  }
  // A wheel's program lies in the package itself, SITE/troupe/bin, where the interpreter finds it: no checkout's above.
  if (HoldsPackage(OwnFolder().parent_path().parent_path())) return "";
  for (fs::path folder = OwnFolder(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (HoldsPackage(folder / "python")) return (folder / "python").string();
  }
  const fs::path installed = OwnFolder().parent_path() / "share/troupe/python";
  return HoldsPackage(installed) ? installed.string() : "";
}

std::vector<std::string> ModuleCommand(const std::string& interpreter, const std::string& module,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {interpreter, "-c", kRunModule, module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

std::string PythonPath(const std::string& folder) {
  const char* const own = std::getenv("PYTHONPATH");
  std::vector<std::string> items = absl::StrSplit(own == nullptr ? "" : own, ':', absl::SkipEmpty());
  if (!folder.empty()) items.insert(items.begin(), folder);
  return absl::StrJoin(items, ":");
}

std::string FindUsualStep() {
  std::error_code error;
  for (fs::path folder = OwnFolder(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (fs::is_regular_file(folder / kUsualStep, error)) return (folder / kUsualStep).string();
  }
  return "";
}

std::string PackagePlaces() {
  return absl::StrCat("$", kVariable, ", python/ in the folders above ", OwnFolder().string(), ", ",
                      (OwnFolder().parent_path() / "share/troupe/python").string(),
                      " and the interpreter's own packages");
}

}  // namespace troupe::envhost
