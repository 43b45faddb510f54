#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/env/env_args.h"
#include "lib/env/multi_agent_env.h"
#include "lib/envhost/episode_tracks.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/host_process.h"
#include "lib/envhost/restart_budget.h"
#include "lib/envhost/shared_layout.h"

namespace troupe::envhost {

/// The Python environments of one kind (name and arguments) of a worker: several processes, several environments in
/// each. Made by whoever makes environments, shared with the environments that it made; the last one to go ends the
/// processes, all at once, which close every environment that they made: within HostOptions::leave_timeout, else
/// SIGTERM, and SIGKILL after kTermTimeout.
///
/// The first process describes the environment; every other must describe the same. A process that ends or does not
/// answer in time costs the episodes of its environments; another takes its place when one of them is reset, at most
/// HostOptions::max_restarts times within restart_window, after which resets fail with RESOURCE_EXHAUSTED and the last
/// cause. After the first restart one process is kept ready, so that the next restart need not wait for an environment
/// that takes long to make, and processes are forked from a ForkServer, without an interpreter's start and imports.
///
/// Thread-safe. MakeEnv may block up to start_timeout.
class HostPool : public std::enable_shared_from_this<HostPool> {
 public:
  /// `name` with its prefix. `tracks`: of the callbacks that the options name; null: there are none. Starts nothing
  /// yet. NOT_FOUND for an interpreter or package folder that is not there, INVALID_ARGUMENT for options out of range.
  static absl::StatusOr<std::shared_ptr<HostPool>> Create(HostOptions options, const std::string& name,
                                                          const env::EnvArgs& args,
                                                          std::shared_ptr<EpisodeTracks> tracks = nullptr);
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;
  ~HostPool();

  /// One more environment, in the next process in turn. The first call waits for the description; later ones do not
  /// wait, so that the processes start side by side. INVALID_ARGUMENT with Python's error when the environment cannot
  /// be made.
  absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> MakeEnv();

  /// What its environments were taken for, in words for people: "PettingZoo parallel, 3 agents". Empty before MakeEnv.
  std::string recognized_as() const;

  HostStats stats() const;
  int num_processes() const { return options_.processes; }
  /// Of the processes that run, for tests that end one.
  std::vector<pid_t> PidsForTesting() const;

 private:
  friend class HostEnv;

  /// What the first process said.
  struct Kind {
    env::EnvSpec spec;
    std::string description;
    std::string recognized_as;
    std::shared_ptr<const BlockLayout> layout;
  };
  struct Seat {
    std::shared_ptr<HostProcess> process;
  };
  struct Counters {
    std::atomic<int64_t> errors{0}, exceptions{0}, bad_outputs{0};
  };

  HostPool(HostOptions options, std::string name, ProcessOrder order, std::shared_ptr<EpisodeTracks> tracks);

  /// A process that lives in this seat; starts one where there is none or a dead one. Does not wait for it.
  absl::StatusOr<std::shared_ptr<HostProcess>> ProcessFor(int seat);
  absl::StatusOr<std::shared_ptr<HostProcess>> StartProcessLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LearnKindLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnsureForkServerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// So that the spare one and the fork server do not wait for somebody who reads what they print.
  void TendIdle();

  const HostOptions options_;
  const std::string name_;
  const ProcessOrder order_;
  const std::shared_ptr<EpisodeTracks> tracks_;
  Counters counters_;

  mutable base::Mutex mutex_;
  RestartBudget budget_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Kind> kind_ ABSL_GUARDED_BY(mutex_);
  std::vector<Seat> seats_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ForkServer> fork_server_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<HostProcess> spare_ ABSL_GUARDED_BY(mutex_);
  int64_t made_ ABSL_GUARDED_BY(mutex_) = 0;     ///< environments
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;  ///< processes
  HostStats totals_ ABSL_GUARDED_BY(mutex_);     ///< of processes that were replaced
};

}  // namespace troupe::envhost
