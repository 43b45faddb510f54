#include "lib/cli/supervisor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/cli/death_words.h"

namespace troupe::cli {
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
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&signals_, signal);
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
  TROUPE_RETURN_IF_ERROR(reports_.Open());
  memory_kills_ = KernelMemoryKills();
  TROUPE_RETURN_IF_ERROR(StartLearner());
  for (;;) {
    if (const std::optional<ChildExit> end = TryReap(learner_)) return AfterLearner(*end);
    if (!workers_started_ && Exists(options_.socket_path)) {
      workers_started_ = true;
      for (Worker& worker : workers_) TROUPE_RETURN_IF_ERROR(StartWorker(worker));
    }
    ReapWorkers();
    if (!draining_) {
      TROUPE_RETURN_IF_ERROR(StartDueWorkers());
      EndWithoutWorkers();
    }
    absl::Duration timeout = workers_started_ || workers_.empty() ? kIdlePoll : kSocketPoll;
    for (const Worker& worker : workers_) {
      if (worker.restart_at) timeout = std::min(timeout, *worker.restart_at - clock_->SteadyNow());
    }
    if (const int signal = AwaitSignal(std::max(timeout, absl::ZeroDuration()))) OnSignal(signal);
  }
}

absl::Status Supervisor::StartLearner() {
  std::vector<std::string> command = options_.learner_command;
  std::optional<int> inherited;
  if (options_.lines_through_learner) {
    TROUPE_RETURN_IF_ERROR(terminal_.Open());
    inherited = terminal_.learner_fd();
    command.insert(command.end(), {"--line-fd", absl::StrCat(*inherited)});
  }
  TROUPE_ASSIGN_OR_RETURN(learner_, StartChild(command, inherited));
  terminal_.Divert();  // not the learner's own
  return absl::OkStatus();
}

absl::StatusOr<int> Supervisor::AfterLearner(const ChildExit& end) {
  learner_ = 0;
  terminal_.Restore();
  terminal_.PrintRest();
  if (end.signal != 0 && at_once_signal_ == 0) {
    TROUPE_ERROR("the learner {}; the run can go on with {}", DeathWords(end, DeathContextSince(memory_kills_)),
                 options_.resume_command);
  }
  EndWorkers(end.in_order());
  terminal_.PrintRest();  // their last words
  if (at_once_signal_ != 0) return 128 + at_once_signal_;
  if (out_of_workers_) return NoWorkerStays();
  ended_in_order_ = end.in_order();
  if (ended_in_order_ && first_signal_.signal() == SIGINT) return static_cast<int>(base::ExitCode::kInterrupted);
  return end.ShellCode();
}

absl::Status Supervisor::StartWorker(Worker& worker) {
  std::vector<std::string> command = options_.worker_command;
  command.insert(command.end(), {"--report-fd", absl::StrCat(reports_.worker_fd())});
  TROUPE_ASSIGN_OR_RETURN(worker.pid, StartChild(command, reports_.worker_fd()));
  worker.fruitful = false;
  worker.restart_at.reset();
  return absl::OkStatus();
}

absl::Status Supervisor::StartDueWorkers() {
  for (Worker& worker : workers_) {
    if (worker.restart_at && *worker.restart_at <= clock_->SteadyNow()) TROUPE_RETURN_IF_ERROR(StartWorker(worker));
  }
  return absl::OkStatus();
}

void Supervisor::NoteFruitfulLives() {
  for (const pid_t pid : reports_.Take()) {
    for (Worker& worker : workers_) {
      if (worker.pid == pid) worker.fruitful = true;
    }
  }
}

void Supervisor::ReapWorkers() {
  NoteFruitfulLives();
  for (Worker& worker : workers_) {
    if (worker.pid == 0) continue;
    const std::optional<ChildExit> end = TryReap(worker.pid);
    if (!end) continue;
    NoteFruitfulLives();  // what it reported before it died
    const pid_t pid = std::exchange(worker.pid, 0);
    const std::optional<absl::Duration> delay = worker.policy->OnExit(*end, worker.fruitful);
    const std::string words = DeathWords(*end, DeathContextSince(memory_kills_));
    if (delay) {
      worker.restart_at = clock_->SteadyNow() + *delay;
      if (!draining_) {
        TROUPE_WARN("worker {} {}; another starts in {} ms", pid, words, absl::ToInt64Milliseconds(*delay));
      }
    } else if (worker.policy->refused()) {
      TROUPE_ERROR("worker {} {}: a restart cannot mend that", pid, words);
    } else if (worker.policy->gave_up()) {
      TROUPE_ERROR("worker {} {}; it is not started again: of none of its last {} lives a fragment was accepted", pid,
                   words, worker.policy->barren_lives());
    }
  }
}

void Supervisor::EndWithoutWorkers() {
  if (!workers_started_ || workers_.empty() || AnyWorkerRuns() || AnyWorkerHasAFuture()) return;
  if (std::none_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.policy->gave_up(); })) {
    return;
  }
  TROUPE_ERROR("no worker is left; the learner is asked to end");
  out_of_workers_ = true;
  DrainLearner();
}

absl::Status Supervisor::NoWorkerStays() const {
  const absl::Status status =
      absl::UnavailableError(absl::StrCat("no worker stays alive; the run can go on with ", options_.resume_command));
  const bool refused =
      std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.policy->refused(); });
  return refused ? base::WithExitCode(status, base::ExitCode::kRefused) : status;
}

bool Supervisor::AnyWorkerRuns() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.pid != 0; });
}

bool Supervisor::AnyWorkerHasAFuture() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.restart_at.has_value(); });
}

void Supervisor::OnSignal(int signal) {
  terminal_.TakeOver();  // what follows is for a person, whatever the learner is doing
  using Meaning = base::FirstSignal::Meaning;
  const Meaning meaning =
      signal == SIGQUIT ? Meaning::kAtOnce : first_signal_.Take(signal, absl::ToInt64Milliseconds(clock_->SteadyNow()));
  if (meaning == Meaning::kCopy) return;
  if (meaning == Meaning::kAtOnce) {
    at_once_signal_ = signal;
    KillAll(SIGKILL);
    return;
  }
  // The learner drains: it takes what workers hand in, writes a checkpoint and tells them to leave.
  DrainLearner();
  TROUPE_INFO("stopping: the learner ends the run in order (a second signal ends everything at once)");
}

void Supervisor::DrainLearner() {
  draining_ = true;
  if (learner_ != 0) kill(learner_, SIGTERM);
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
      terminal_.PrintRest();  // or one that says much could not end
      const absl::Duration left = deadline - clock_->SteadyNow();
      if (!AnyWorkerRuns() || left <= absl::ZeroDuration()) break;
      if (const int stop = AwaitSignal(left)) OnSignal(stop);
    }
  }
}

int Supervisor::AwaitSignal(absl::Duration timeout) {
  const timespec spec = absl::ToTimespec(timeout);
  const int signal = sigtimedwait(&signals_, nullptr, &spec);
  return signal == SIGCHLD || signal < 0 ? 0 : signal;
}

}  // namespace troupe::cli
