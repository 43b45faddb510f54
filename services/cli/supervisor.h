#pragma once

#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "services/cli/child_process.h"
#include "services/cli/restart_policy.h"

namespace troupe::services {

/// Keeps the processes of a local run: a learner, and workers that are started again when they die. Made and used by
/// the main thread of `troupe train`.
///
/// States: starting (the learner's socket is not there) -> running -> draining (SIGINT, SIGTERM or SIGHUP came: the
/// learner got SIGTERM) -> done (the learner ended; workers are given a grace, then SIGTERM, then SIGKILL). A
/// second signal kills all. No child outlives Run, nor this process.
class Supervisor {
 public:
  struct Options {
    std::vector<std::string> learner_command;
    std::vector<std::string> worker_command;
    int num_workers = 0;
    std::string socket_path;  ///< workers start when it exists
    RestartPolicy::Options restart;
    absl::Duration worker_grace =
        absl::Seconds(5);  ///< for leaving after an orderly end of the learner, and again after SIGTERM
  };

  Supervisor(Options options, base::Clock* clock);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Blocks until every process has ended; the learner's exit code as a shell gives it. INTERNAL when a process cannot
  /// be started; UNAVAILABLE when no worker stays alive.
  absl::StatusOr<int> Run();

 private:
  struct Worker {
    pid_t pid = 0;  ///< 0: not running
    absl::Duration started_at;
    std::optional<absl::Duration> restart_at;
    std::unique_ptr<RestartPolicy> policy;
  };

  absl::Status StartWorker(Worker& worker);
  absl::Status StartDueWorkers();
  void ReapWorkers();
  void OnSignal();
  void KillAll(int signal);
  void KillWorkers(int signal);
  bool AnyWorkerRuns() const;
  bool AnyWorkerHasAFuture() const;
  /// Waits for a signal (SIGCHLD included) for at most `timeout`; true when it asks us to stop.
  bool AwaitSignal(absl::Duration timeout);
  /// Ends the workers when the learner is gone; `in_order`: it told them to leave.
  void EndWorkers(bool in_order);

  const Options options_;
  base::Clock* const clock_;
  sigset_t signals_;
  sigset_t old_mask_;
  pid_t learner_ = 0;
  std::vector<Worker> workers_;
  bool workers_started_ = false;
  int stop_signals_ = 0;
  bool out_of_workers_ = false;
};

}  // namespace troupe::services
