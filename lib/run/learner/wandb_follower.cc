#include "lib/run/learner/wandb_follower.h"

#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_args.h"
#include "lib/envhost/python_program.h"

namespace troupe::run {
namespace {

/// Where the follower finds the arguments of wandb.init: a command line is open to every user.
constexpr int kKwargsFd = 3;
constexpr char kKwargsFile[] = "/dev/fd/3";

/// A file in memory that holds `text`; closed at the end of the scope.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& text) : fd_(::memfd_create("wandb_kwargs", MFD_CLOEXEC)) {
    size_t written = 0;
    while (fd_ >= 0 && written < text.size()) {
      const ssize_t count = ::write(fd_, text.data() + written, text.size() - written);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      written += static_cast<size_t>(count);
    }
    whole_ = fd_ >= 0 && written == text.size();
  }
  ~MemoryFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }
  bool whole() const { return whole_; }

 private:
  const int fd_;
  bool whole_ = false;
};

}  // namespace

absl::Status StartWandbFollower(const std::string& run_directory, const config::ExperimentOptions& experiment) {
  TROUPE_ASSIGN_OR_RETURN(const std::string kwargs, env::ArgsJson(experiment.wandb_kwargs));
  const MemoryFile file(kwargs);
  if (!file.whole()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("experiment.wandb: no memory for its arguments: ", std::strerror(errno)));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::string package, envhost::FindPackage());
  std::vector<std::string> arguments = envhost::ModuleCommand(
      "python3", "troupe.wandb_follow", {run_directory, "--with-parent", "--kwargs-file", kKwargsFile});
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "PYTHONPATH=", 11) != 0) environment.emplace_back(*entry);
  }
  environment.push_back("PYTHONPATH=" + envhost::PythonPath(package));
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& entry : environment) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t pid = 0;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, file.fd(), kKwargsFd);
  const int error = ::posix_spawnp(&pid, "python3", &files, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("experiment.wandb: cannot start python3: ", std::strerror(error)));
  }
  return absl::OkStatus();
}

}  // namespace troupe::run
