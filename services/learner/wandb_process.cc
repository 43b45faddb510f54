#include "services/learner/wandb_process.h"

#include <spawn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_args.h"

namespace troupe::services {
namespace {

/// The package beside a build in its source tree; an installed one is found by Python itself.
std::string PythonPath() {
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  const char* present = std::getenv("PYTHONPATH");
  std::string path = present == nullptr ? "" : present;
  for (std::filesystem::path folder = executable.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / "python/troupe/wandb_follow.py", error)) {
      return absl::StrCat((folder / "python").string(), path.empty() ? "" : ":", path);
    }
  }
  return path;
}

}  // namespace

absl::Status StartWandbFollower(const std::string& run_directory, const config::ExperimentOptions& experiment) {
  TROUPE_ASSIGN_OR_RETURN(const std::string kwargs, env::ArgsJson(experiment.wandb_kwargs));
  std::vector<std::string> arguments = {"python3",  "-m",  "troupe.wandb_follow", run_directory, "--with-parent",
                                        "--kwargs", kwargs};
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "PYTHONPATH=", 11) != 0) environment.emplace_back(*entry);
  }
  environment.push_back("PYTHONPATH=" + PythonPath());
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& entry : environment) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, "python3", nullptr, nullptr, argv.data(), envp.data());
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("experiment.wandb: cannot start python3: ", std::strerror(error)));
  }
  return absl::OkStatus();
}

}  // namespace troupe::services
