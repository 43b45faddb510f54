#include "lib/envhost/fork_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/control_message.h"
#include "lib/envhost/spawn_python.h"

namespace troupe::envhost {
namespace {

/// Of the first line, which it may read only when its interpreter has started.
constexpr absl::Duration kStartTimeout = absl::Seconds(5);

/// The integer of this name, if the message has one that an int holds.
std::optional<int> Integer(const nlohmann::json& message, const char* name) {
  const auto found = message.find(name);
  if (found == message.end() || !found->is_number_integer()) return std::nullopt;
  const auto value = found->get<int64_t>();
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(value);
}

/// 0 where there is no such process.
pid_t ParentOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  pid_t parent = 0;
  // PID (NAME) STATE PARENT …; a name may hold anything.
  if (std::getline(file, line) && line.rfind(')') != std::string::npos) {
    std::istringstream words(line.substr(line.rfind(')') + 1));
    std::string state;
    words >> state >> parent;
  }
  return parent;
}

// <sys/pidfd.h> of Debian 12 cannot be used from C++.
int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
void SendSignal(int pidfd, int number) { syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0); }

}  // namespace

/// A child of the server. Until the server is told to reap it, nobody else gets its number.
class ForkedProcess final : public ChildProcess {
 public:
  ForkedProcess(std::shared_ptr<ForkServer> server, pid_t pid, int pidfd)
      : server_(std::move(server)), pid_(pid), pidfd_(pidfd) {}
  ~ForkedProcess() override { close(pidfd_); }

  pid_t pid() const override { return pid_; }

  bool Ended() override { return Poll(0); }

  void Signal(int number) override { SendSignal(pidfd_, number); }

  std::string KillAndReap() override {
    // The number is its own while it lives, and until the server has reaped it.
    if (!Ended() || server_->Look() == ForkServer::State::kReady) kill(-pid_, SIGKILL);
    Signal(SIGKILL);
    while (!Poll(-1)) {
    }
    const absl::StatusOr<int> status = server_->Reap(pid_);
    return status.ok() ? HowItEnded(*status)
                       : absl::StrCat("ended (how is not known: ", std::string(status.status().message()), ")");
  }

 private:
  /// Whether it has ended within `timeout_ms`, -1 for no limit.
  bool Poll(int timeout_ms) const {
    pollfd ended = {pidfd_, POLLIN, 0};
    return poll(&ended, 1, timeout_ms) == 1;
  }

  const std::shared_ptr<ForkServer> server_;
  const pid_t pid_;
  const int pidfd_;
};

absl::StatusOr<std::shared_ptr<ForkServer>> ForkServer::Start(const std::string& interpreter,
                                                              const std::string& package_folder,
                                                              absl::string_view start_message, std::string name) {
  const auto spawn = [&](const ChildFds& fds) {
    return SpawnPython(interpreter, package_folder, "troupe.fork_server", fds);
  };
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<PythonChild> child, PythonChild::Start(spawn, -1, std::move(name)));
  TROUPE_RETURN_IF_ERROR(child->Send(start_message, kStartTimeout));
  return std::shared_ptr<ForkServer>(new ForkServer(std::move(child)));
}

ForkServer::State ForkServer::Look() {
  base::MutexLock lock(&mutex_);
  return LookLocked();
}

ForkServer::State ForkServer::LookLocked() {
  if (state_ == State::kRefused || state_ == State::kEnded) return state_;
  if (state_ == State::kStarting) {
    const absl::StatusOr<std::optional<std::string>> line = child_->TryReceive(absl::ZeroDuration());
    if (line.ok() && line->has_value()) {
      const nlohmann::json message = nlohmann::json::parse(**line, nullptr, /*allow_exceptions=*/false);
      if (TextOf(message, "op") == "ready") {
        state_ = State::kReady;
      } else {
        TROUPE_INFO("Python processes start without a fork server: {}", base::LogSafe(TextOf(message, "reason"), 300));
        state_ = State::kRefused;
        child_->Kill();
        return state_;
      }
    }
  }
  child_->DrainOutput();
  if (child_->Ended()) {
    TROUPE_WARN("fork server of Python processes {} pid={}", child_->HowItEnded(), pid_);
    state_ = State::kEnded;
  }
  return state_;
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ForkServer::Fork(const ChildFds& fds) {
  base::MutexLock lock(&mutex_);
  if (LookLocked() != State::kReady) return absl::UnavailableError("the fork server is not ready");
  const int sent[] = {fds.output, fds.control, fds.memory, fds.lifeline};
  TROUPE_ASSIGN_OR_RETURN(const nlohmann::json answer, AskLocked({{"op", "fork"}}, sent));
  const std::optional<int> pid = Integer(answer, "pid");
  if (!pid.has_value()) return absl::UnavailableError(absl::StrCat("the fork server says ", TextOf(answer, "error")));
  // The environment's module runs in the server and may say what it likes: whose number this is is looked up.
  if (*pid <= 1 || ParentOf(*pid) != pid_) return GiveUpLocked(absl::StrCat("says that its fork is ", *pid));
  const int pidfd = OpenPidfd(*pid);
  if (pidfd < 0) {
    const std::string why = std::strerror(errno);
    kill(-*pid, SIGKILL);
    return GiveUpLocked(absl::StrCat("forks, but pidfd_open says: ", why));
  }
  return std::unique_ptr<ChildProcess>(new ForkedProcess(shared_from_this(), *pid, pidfd));
}

absl::StatusOr<int> ForkServer::Reap(pid_t pid) {
  base::MutexLock lock(&mutex_);
  if (LookLocked() != State::kReady) return absl::UnavailableError("the process that forked it has ended");
  TROUPE_ASSIGN_OR_RETURN(const nlohmann::json answer, AskLocked({{"op", "reap"}, {"pid", pid}}, {}));
  const std::optional<int> status = Integer(answer, "status");
  if (!status.has_value()) return absl::UnavailableError(TextOf(answer, "error"));
  return *status;
}

absl::StatusOr<nlohmann::json> ForkServer::AskLocked(const nlohmann::json& request, absl::Span<const int> fds) {
  const base::Clock& clock = base::Clock::Real();
  const absl::Duration deadline = clock.SteadyNow() + kReplyTimeout;
  const absl::Status sent = child_->Send(request.dump(), kReplyTimeout, fds);
  if (!sent.ok()) return GiveUpLocked(std::string(sent.message()));
  while (true) {
    const absl::StatusOr<std::optional<std::string>> line = child_->TryReceive(absl::Milliseconds(10));
    if (line.ok() && line->has_value()) {
      nlohmann::json answer = nlohmann::json::parse(**line, nullptr, /*allow_exceptions=*/false);
      if (answer.is_object()) return answer;
      return GiveUpLocked(absl::StrCat("said ", base::LogSafe(**line, 200)));
    }
    if (!line.ok() || child_->Ended()) return GiveUpLocked(child_->HowItEnded());
    if (clock.SteadyNow() > deadline) return GiveUpLocked("did not answer in time");
  }
}

absl::Status ForkServer::GiveUpLocked(const std::string& why) {
  child_->Kill();
  state_ = State::kEnded;
  return absl::UnavailableError(absl::StrCat("fork server pid=", pid_, " ", why));
}

}  // namespace troupe::envhost
