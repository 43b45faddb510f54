#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace troupe::envhost {

/// How Python environments are run: `env.python` of a configuration. Plain value.
struct HostOptions {
  std::string interpreter;  ///< a program, looked up on the PATH, or a virtual environment's folder; empty: the default
  std::string folder;       ///< where names of files are looked for before the working folder; empty: there alone
  int processes = 0;        ///< that a worker's environments are spread over; 0: one a core
  absl::Duration start_timeout = absl::Seconds(60);  ///< of a process, and of making an environment
  absl::Duration step_timeout = absl::Seconds(30);   ///< of a step, and of a reset but the first
  int64_t max_restarts = 100;                        ///< of all processes together, within restart_window
  absl::Duration restart_window = absl::Minutes(10);
  bool fork_server = true;                          ///< processes that take the place of others are forked
  std::vector<std::string> path;                    ///< searched for modules before everything else
  absl::Duration leave_timeout = absl::Seconds(5);  ///< of closing all environments at the end, before SIGTERM
  bool draws = false;  ///< environments are made to be drawn (render_mode "rgb_array"), which may cost them time
  /// Classes whose methods are called beside the environments as episodes go, `python:MODULE:CLASS`; empty: none.
  std::vector<std::string> callbacks;
  bool evaluating = false;  ///< what they are told of the episodes
  std::string
      observation_fn;        ///< makes what agents observe of what environments give, `python:MODULE:NAME`; empty: none
  int32_t worker_index = 0;  ///< what environments are told that ask for it
  uint32_t first_env_index = 0;  ///< what is added to an env id for those that ask which of the run they are
  bool global_state = true;      ///< ask environments for their global state, which may cost them time
  /// While it is true nobody waits for a process: it is killed, with CANCELLED. nullptr: never.
  std::shared_ptr<const std::atomic<bool>> abandoned;

  friend bool operator==(const HostOptions&, const HostOptions&) = default;
};

/// Totals of a pool since it was made.
struct HostStats {
  int64_t errors = 0;       ///< calls of environments that failed, whatever the cause; each cost an episode
  int64_t exceptions = 0;   ///< of these: the environment raised an exception
  int64_t bad_outputs = 0;  ///< of these: what it gave does not fit what it declared
  int64_t timeouts = 0;     ///< processes that were killed because nothing came within a deadline
  int64_t deaths = 0;       ///< processes that ended unasked, those that were killed included
  int64_t restarts = 0;     ///< processes that took the place of one that ended
};

}  // namespace troupe::envhost
