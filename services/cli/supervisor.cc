#include "services/cli/supervisor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::services {
namespace {

constexpr absl::Duration kSocketPoll = absl::Milliseconds(5);
constexpr absl::Duration kIdlePoll = absl::Seconds(1);

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

}  // namespace

Supervisor::Supervisor(Options options, base::Clock* clock) : options_(std::move(options)), clock_(clock) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals_, signal);
  // Blocked, so that they are waited for and nothing runs in a handler.
  sigprocmask(SIG_BLOCK, &signals_, &old_mask_);
  for (int i = 0; i < options_.num_workers; ++i) {
    Worker worker;
    worker.policy = std::make_unique<RestartPolicy>(options_.restart, static_cast<uint64_t>(i));
    workers_.push_back(std::move(worker));
  }
}

Supervisor::~Supervisor() {
  KillAll(SIGKILL);
  for (Worker& worker : workers_) {
    while (worker.pid != 0) {
      AwaitSignal(kSocketPoll);
      if (TryReap(worker.pid)) worker.pid = 0;
    }
  }
  while (learner_ != 0) {
    AwaitSignal(kSocketPoll);
    if (TryReap(learner_)) learner_ = 0;
  }
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

absl::StatusOr<int> Supervisor::Run() {
  TROUPE_ASSIGN_OR_RETURN(learner_, StartChild(options_.learner_command));
  for (;;) {
    if (const std::optional<ChildExit> end = TryReap(learner_)) {
      learner_ = 0;
      EndWorkers(end->ok());
      if (out_of_workers_) return absl::UnavailableError("no worker stays alive; the run can go on with --resume");
      if (end->signal != 0) TROUPE_ERROR("the learner {}; the run can go on with --resume", end->ToString());
      return end->ShellCode();
    }
    if (!workers_started_ && Exists(options_.socket_path)) {
      workers_started_ = true;
      for (Worker& worker : workers_) TROUPE_RETURN_IF_ERROR(StartWorker(worker));
    }
    ReapWorkers();
    if (stop_signals_ == 0) TROUPE_RETURN_IF_ERROR(StartDueWorkers());
    if (workers_started_ && !workers_.empty() && stop_signals_ == 0 && !AnyWorkerRuns() && !AnyWorkerHasAFuture() &&
        std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.policy->spent(); })) {
      TROUPE_ERROR("every worker kept dying; the learner is asked to end");
      out_of_workers_ = true;
      stop_signals_ = 1;
      kill(learner_, SIGTERM);
    }
    absl::Duration timeout = workers_started_ || workers_.empty() ? kIdlePoll : kSocketPoll;
    for (const Worker& worker : workers_) {
      if (worker.restart_at) timeout = std::min(timeout, *worker.restart_at - clock_->SteadyNow());
    }
    if (AwaitSignal(std::max(timeout, absl::ZeroDuration()))) OnSignal();
  }
}

absl::Status Supervisor::StartWorker(Worker& worker) {
  TROUPE_ASSIGN_OR_RETURN(worker.pid, StartChild(options_.worker_command));
  worker.started_at = clock_->SteadyNow();
  worker.restart_at.reset();
  return absl::OkStatus();
}

absl::Status Supervisor::StartDueWorkers() {
  for (Worker& worker : workers_) {
    if (worker.restart_at && *worker.restart_at <= clock_->SteadyNow()) TROUPE_RETURN_IF_ERROR(StartWorker(worker));
  }
  return absl::OkStatus();
}

void Supervisor::ReapWorkers() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.pid == 0) continue;
    const std::optional<ChildExit> end = TryReap(worker.pid);
    if (!end) continue;
    const pid_t pid = worker.pid;
    worker.pid = 0;
    const absl::Duration now = clock_->SteadyNow();
    const std::optional<absl::Duration> delay = worker.policy->OnExit(*end, now - worker.started_at);
    if (delay) {
      worker.restart_at = now + *delay;
      if (stop_signals_ == 0) {
        TROUPE_WARN("worker {} {}; another starts in {} ms", pid, end->ToString(), absl::ToInt64Milliseconds(*delay));
      }
    } else if (worker.policy->spent()) {
      TROUPE_ERROR("worker {} {}; it died too often and is not started again", pid, end->ToString());
    }
  }
}

bool Supervisor::AnyWorkerRuns() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.pid != 0; });
}

bool Supervisor::AnyWorkerHasAFuture() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.restart_at.has_value(); });
}

void Supervisor::OnSignal() {
  ++stop_signals_;
  if (stop_signals_ == 1) {
    // The learner drains: it takes what workers hand in, writes a checkpoint and tells them to leave.
    TROUPE_INFO("stopping: the learner writes a checkpoint (a second signal ends everything at once)");
    if (learner_ != 0) kill(learner_, SIGTERM);
  } else {
    KillAll(SIGKILL);
  }
}

void Supervisor::KillAll(int signal) {
  if (learner_ != 0) kill(learner_, signal);
  KillWorkers(signal);
}

void Supervisor::KillWorkers(int signal) {
  for (const Worker& worker : workers_) {
    if (worker.pid != 0) kill(worker.pid, signal);
  }
}

void Supervisor::EndWorkers(bool in_order) {
  for (const int signal : {0, SIGTERM, SIGKILL}) {
    if (signal == 0 && !in_order) continue;  // they would wait for a learner that does not come back
    if (signal != 0) KillWorkers(signal);
    const absl::Duration deadline = clock_->SteadyNow() + options_.worker_grace;
    for (;;) {
      for (Worker& worker : workers_) {
        if (worker.pid != 0 && TryReap(worker.pid)) worker.pid = 0;
      }
      const absl::Duration left = deadline - clock_->SteadyNow();
      if (!AnyWorkerRuns() || left <= absl::ZeroDuration()) break;
      if (AwaitSignal(left)) OnSignal();
    }
  }
}

bool Supervisor::AwaitSignal(absl::Duration timeout) {
  const timespec spec = absl::ToTimespec(timeout);
  const int signal = sigtimedwait(&signals_, nullptr, &spec);
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

}  // namespace troupe::services
