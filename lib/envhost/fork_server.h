#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/mutex.h"
#include "lib/envhost/child_process.h"
#include "lib/envhost/python_child.h"
#include <nlohmann/json.hpp>

namespace troupe::envhost {

/// A Python process that has imported what the processes of one kind of environment need and forks them, which takes
/// milliseconds where an interpreter's start and imports take a fifth of a second and more
/// (python/troupe/fork_server.py, ADR 16). It makes no environment. States: starting -> ready -> ended; starting ->
/// refused or ended.
///
/// Thread-safe. Whoever holds a process that it forked holds it, too. The destructor kills it.
class ForkServer : public std::enable_shared_from_this<ForkServer> {
 public:
  /// Starts it and does not wait. `start_message`: the line that starts a process of environments.
  static absl::StatusOr<std::shared_ptr<ForkServer>> Start(const std::string& interpreter,
                                                           const std::string& package_folder,
                                                           absl::string_view start_message, std::string name);

  enum class State {
    kStarting,
    kReady,
    kRefused,  ///< these processes cannot be forked (the log says why): the module's import starts threads or fails
    kEnded,
  };
  /// Does not wait for it, but for a call of another thread under way. Also takes what it prints.
  State Look();

  /// A fork with these file descriptors, which stay the caller's; waits for it, milliseconds, at most kReplyTimeout.
  /// UNAVAILABLE: it is not ready or has just ended, or the system refuses; there may be a fork nevertheless, to which
  /// these descriptors were given.
  absl::StatusOr<std::unique_ptr<ChildProcess>> Fork(const ChildFds& fds);
  static constexpr absl::Duration kReplyTimeout = absl::Seconds(1);

  pid_t pid() const { return pid_; }

 private:
  friend class ForkedProcess;

  explicit ForkServer(std::unique_ptr<PythonChild> child) : pid_(child->pid()), child_(std::move(child)) {}

  /// The answer to a request. One that does not come ends the server: nobody knows any more what it would answer next.
  absl::StatusOr<nlohmann::json> AskLocked(const nlohmann::json& request, absl::Span<const int> fds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Kills it. UNAVAILABLE with this.
  absl::Status GiveUpLocked(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  State LookLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The wait status of a process of its own that has ended; waits as Fork does.
  absl::StatusOr<int> Reap(pid_t pid);

  const pid_t pid_;
  base::Mutex mutex_;
  const std::unique_ptr<PythonChild> child_ ABSL_PT_GUARDED_BY(mutex_);
  State state_ ABSL_GUARDED_BY(mutex_) = State::kStarting;
};

}  // namespace troupe::envhost
