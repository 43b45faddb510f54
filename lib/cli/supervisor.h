#pragma once

#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/first_signal.h"
#include "lib/cli/child_process.h"
#include "lib/cli/life_reports.h"
#include "lib/cli/restart_policy.h"
#include "lib/cli/shared_terminal.h"

namespace troupe::cli {

/// Keeps the processes of a local run: a learner, and workers that are started again when they die. Made and used by
/// the main thread of `troupe train`.
///
/// States: starting (the learner's socket is not there) -> running -> draining (SIGINT, SIGTERM or SIGHUP came: the
/// learner got SIGTERM) -> done (the learner ended; workers are given a grace, then SIGTERM, then SIGKILL). A
/// second signal that is no copy of the first (base::FirstSignal), or SIGQUIT, kills all. No child outlives Run, nor
/// this process.
///
/// A worker is started with `--report-fd N` behind its command, and is started again as RestartPolicy says; the run
/// ends when there is none left that is.
class Supervisor {
 public:
  struct Options {
    std::vector<std::string> learner_command;
    std::vector<std::string> worker_command;
    int num_workers = 0;
    std::string socket_path;                  ///< workers start when it exists
    std::string resume_command = "--resume";  ///< with which the run goes on, for the words of its end
    /// The learner draws on the terminal that everybody has: it is given `--line-fd N` behind its command, and prints
    /// what this process and the workers say.
    bool lines_through_learner = false;
    RestartPolicy::Options restart;
    absl::Duration worker_grace =
        absl::Seconds(5);  ///< for leaving after an orderly end of the learner, and again after SIGTERM
  };

  Supervisor(Options options, base::Clock* clock);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Blocks until every process has ended; the learner's exit code as a shell gives it, but 130 for one that ended in
  /// order after SIGINT, and 128 + the signal that ended everything at once. INTERNAL when a process cannot be started;
  /// UNAVAILABLE when no worker stays alive, with kRefused when the workers said that a restart cannot mend it.
  absl::StatusOr<int> Run();
  /// After Run: the learner did what it does at an end, a summary included.
  bool ended_in_order() const { return ended_in_order_; }

 private:
  struct Worker {
    pid_t pid = 0;          ///< 0: not running
    bool fruitful = false;  ///< the learner has accepted a fragment of this life
    std::optional<absl::Duration> restart_at;
    std::unique_ptr<RestartPolicy> policy;
  };

  absl::Status StartLearner();
  absl::Status StartWorker(Worker& worker);
  absl::Status StartDueWorkers();
  void NoteFruitfulLives();
  void ReapWorkers();
  /// Asks the learner to end if no worker runs nor will.
  void EndWithoutWorkers();
  absl::Status NoWorkerStays() const;
  /// What Run returns, once the learner is gone.
  absl::StatusOr<int> AfterLearner(const ChildExit& end);
  void OnSignal(int signal);
  void DrainLearner();
  void KillAll(int signal);
  void KillWorkers(int signal);
  bool AnyWorkerRuns() const;
  bool AnyWorkerHasAFuture() const;
  /// Waits for a signal (SIGCHLD included) for at most `timeout`; the one that asks us to stop, or 0.
  int AwaitSignal(absl::Duration timeout);
  /// Ends the workers when the learner is gone; `in_order`: it told them to leave.
  void EndWorkers(bool in_order);

  const Options options_;
  base::Clock* const clock_;
  sigset_t signals_;
  sigset_t old_mask_;
  pid_t learner_ = 0;
  std::vector<Worker> workers_;
  bool workers_started_ = false;
  LifeReports reports_;
  SharedTerminal terminal_;
  std::optional<int64_t> memory_kills_;  ///< the kernel's, when Run began
  bool draining_ = false;                ///< the learner was asked to end
  bool out_of_workers_ = false;
  base::FirstSignal first_signal_;  ///< that asked us to stop
  int at_once_signal_ = 0;          ///< that ended everything at once
  bool ended_in_order_ = false;
};

}  // namespace troupe::cli
