#include "lib/envhost/fork_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/control_message.h"
#include "lib/envhost/spawn_python.h"

namespace troupe::envhost {
namespace {

/// The integer of this name, if the message has one.
std::optional<int> Integer(const nlohmann::json& message, const char* name) {
  const auto found = message.find(name);
  if (found == message.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int>();
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
    Signal(SIGKILL);
    // Without the server the kernel may have given the number to another; the end of the lifeline kills the group then.
    if (server_->Look() == ForkServer::State::kReady) kill(-pid_, SIGKILL);
    while (!Poll(-1)) {
    }
    const absl::StatusOr<int> status = server_->Reap(pid_);
    return status.ok() ? HowItEnded(*status) : "ended (how is not known: the process that forked it is gone)";
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
  // Whether it has ended already is seen when it is looked at.
  child->Send(start_message, kReplyTimeout).IgnoreError();
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
  const int pidfd = OpenPidfd(*pid);
  if (pidfd < 0) {
    const std::string why = std::strerror(errno);
    kill(-*pid, SIGKILL);
    AskLocked({{"op", "reap"}, {"pid", *pid}}, {}).IgnoreError();
    return absl::UnavailableError(absl::StrCat("pidfd_open: ", why));
  }
  return std::unique_ptr<ChildProcess>(new ForkedProcess(shared_from_this(), *pid, pidfd));
}

absl::StatusOr<int> ForkServer::Reap(pid_t pid) {
  base::MutexLock lock(&mutex_);
  if (LookLocked() != State::kReady) return absl::UnavailableError("the fork server has ended");
  TROUPE_ASSIGN_OR_RETURN(const nlohmann::json answer, AskLocked({{"op", "reap"}, {"pid", pid}}, {}));
  const std::optional<int> status = Integer(answer, "status");
  if (!status.has_value()) return absl::UnavailableError(TextOf(answer, "error"));
  return *status;
}

absl::StatusOr<nlohmann::json> ForkServer::AskLocked(const nlohmann::json& request, absl::Span<const int> fds) {
  absl::Status status = child_->Send(request.dump(), kReplyTimeout, fds);
  const base::Clock& clock = base::Clock::Real();
  const absl::Duration deadline = clock.SteadyNow() + kReplyTimeout;
  while (status.ok()) {
    const absl::StatusOr<std::optional<std::string>> line = child_->TryReceive(absl::Milliseconds(10));
    if (line.ok() && line->has_value()) {
      nlohmann::json answer = nlohmann::json::parse(**line, nullptr, /*allow_exceptions=*/false);
      if (answer.is_object()) return answer;
      status = absl::UnavailableError(absl::StrCat("it said ", base::LogSafe(**line, 200)));
    } else if (!line.ok() || child_->Ended()) {
      status = absl::UnavailableError("it has ended");
    } else if (clock.SteadyNow() > deadline) {
      status = absl::UnavailableError("it did not answer in time");
    }
  }
  child_->Kill();
  TROUPE_WARN("fork server of Python processes is given up pid={}: {}", pid_, status.ToString());
  state_ = State::kEnded;
  return absl::UnavailableError(std::string(status.message()));
}

}  // namespace troupe::envhost
