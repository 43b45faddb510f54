#include "lib/envhost/spawn_python.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/log.h"
#include "lib/envhost/python_program.h"

namespace troupe::envhost {
namespace {

/// Our environment with the package's folder first on PYTHONPATH. Libraries with thread pools of their own get one
/// thread where the user said nothing: there is a process a core already.
std::vector<std::string> ChildEnvironment(const std::string& package_folder) {
  std::vector<std::string> entries;
  bool omp = false, openblas = false, mkl = false;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    if (absl::StartsWith(text, "PYTHONPATH=")) continue;
    omp = omp || absl::StartsWith(text, "OMP_NUM_THREADS=");
    openblas = openblas || absl::StartsWith(text, "OPENBLAS_NUM_THREADS=");
    mkl = mkl || absl::StartsWith(text, "MKL_NUM_THREADS=");
    entries.emplace_back(text);
  }
  entries.push_back("PYTHONPATH=" + PythonPath(package_folder));
  if (!omp) entries.push_back("OMP_NUM_THREADS=1");
  if (!openblas) entries.push_back("OPENBLAS_NUM_THREADS=1");
  if (!mkl) entries.push_back("MKL_NUM_THREADS=1");
  entries.push_back("PYTHONUNBUFFERED=1");
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// A child of this process.
class SpawnedProcess final : public ChildProcess {
 public:
  explicit SpawnedProcess(pid_t pid) : pid_(pid) {}

  pid_t pid() const override { return pid_; }

  bool Ended() override {
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0) return info.si_pid == pid_;
    reaped_ = errno == ECHILD;
    return reaped_;
  }

  void Signal(int number) override { kill(pid_, number); }

  std::string KillAndReap() override {
    int status = 0;
    pid_t waited = -1;
    if (!reaped_) {  // or its number may be another's by now
      kill(-pid_, SIGKILL);
      kill(pid_, SIGKILL);
      while ((waited = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
      }
    }
    return waited == pid_ ? HowItEnded(status) : "ended (how is not known: SIGCHLD is ignored)";
  }

 private:
  const pid_t pid_;
  bool reaped_ = false;  ///< by the kernel
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> SpawnPython(const std::string& interpreter,
                                                          const std::string& package_folder, const std::string& module,
                                                          const ChildFds& fds) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const std::pair<int, int> given[] = {
      {fds.output, STDOUT_FILENO}, {fds.output, STDERR_FILENO}, {fds.control, 3}, {fds.memory, 4}, {fds.lifeline, 5}};
  for (const auto& [from, to] : given) {
    if (from >= 0) {
      posix_spawn_file_actions_adddup2(&files, from, to);
    } else {
      // Taken, so that no file that is opened later gets the number which a fork of the process wants for its memory.
      posix_spawn_file_actions_addopen(&files, to, "/dev/null", O_RDWR, 0);
    }
  }
  posix_spawn_file_actions_addclosefrom_np(&files, 6);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);  // a terminal's Ctrl-C reaches us alone
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> words = ModuleCommand(interpreter, module);
  std::vector<std::string> environment = ChildEnvironment(package_folder);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, interpreter.c_str(), &files, &attributes, Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("cannot start ", base::LogSafe(interpreter), ": ", std::strerror(error)));
  }
  return std::unique_ptr<ChildProcess>(new SpawnedProcess(pid));
}

}  // namespace troupe::envhost
