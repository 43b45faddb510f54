#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace troupe::envhost {

/// A child process that runs `python -m troupe.env_host`, with its control channel, the pipe of what it prints, and the
/// lifeline whose end kills it when this process dies, however that dies. In a process group of its own, which is what
/// is killed.
///
/// What it prints goes to our log, at most kLogLines lines each kLogPeriod; the rest is counted and said. A child that
/// prints waits when its pipe (64 KiB) is full, so whoever waits for it calls DrainOutput now and then.
/// Not thread-safe. The destructor kills and reaps what still runs.
class PythonChild {
 public:
  static constexpr int kLogLines = 200;
  static constexpr absl::Duration kLogPeriod = absl::Seconds(10);

  /// `name` is how log lines call it; `memory_fd` becomes the child's file descriptor 4. Starts no thread and does not
  /// wait for the child.
  static absl::StatusOr<std::unique_ptr<PythonChild>> Start(const std::string& interpreter,
                                                            const std::string& package_folder, int memory_fd,
                                                            std::string name);
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;
  ~PythonChild();

  pid_t pid() const { return pid_; }

  /// A line to the control channel. UNAVAILABLE when the child reads no more, DEADLINE_EXCEEDED when it does not read
  /// within `timeout`; zero: what does not fit at once.
  absl::Status Send(absl::string_view line, absl::Duration timeout);
  /// The next line, if it is there within `wait`; also returns early when the child prints or ends. RESOURCE_EXHAUSTED:
  /// a line longer than kMaxLineBytes.
  absl::StatusOr<std::optional<std::string>> TryReceive(absl::Duration wait);
  static constexpr size_t kMaxLineBytes = size_t{1} << 28;

  /// Logs what it has printed. Never waits.
  void DrainOutput();
  /// The last lines it printed, for error messages.
  std::string LastOutput() const;

  /// Whether it has ended; then it is reaped and HowItEnded says how. Never waits. Where this process ignores SIGCHLD,
  /// the kernel has reaped it and nobody knows how it ended; what it left behind is not killed then.
  bool Ended();
  /// "was killed by signal 11 (Segmentation fault)", "exited with 3", "ended (how is not known: SIGCHLD is ignored)".
  const std::string& HowItEnded() const { return how_it_ended_; }
  /// SIGTERM to the child.
  void Terminate();
  /// SIGKILL to the child and what it started; waits until it is gone.
  void Kill();

 private:
  PythonChild(pid_t pid, int control_fd, int output_fd, int lifeline_fd, std::string name);
  void LogLine(absl::string_view line);
  void KillAndReap();
  /// `how`: as HowItEnded.
  void Reaped(std::string how);

  const pid_t pid_;
  const int control_fd_, output_fd_, lifeline_fd_;
  const std::string name_;
  bool ended_ = false;
  std::string how_it_ended_;
  std::string received_;
  size_t searched_ = 0;  ///< bytes of received_ that hold no line's end
  std::string printed_;  ///< an unfinished line
  std::vector<std::string> last_lines_;
  absl::Duration period_begin_ = -absl::InfiniteDuration();  ///< a steady clock's
  int64_t lines_in_period_ = 0;
};

}  // namespace troupe::envhost
