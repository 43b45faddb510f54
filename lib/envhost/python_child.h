#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/envhost/child_process.h"

namespace troupe::envhost {

/// A Python process of ours, with its control channel, the pipe of what it prints, and the lifeline whose end kills it
/// when this process dies, however that dies.
///
/// What it prints within kLogPeriod is one line of our log, the first and their number; each is a line at level debug,
/// at most kLogLines of them. A child that prints waits when its pipe (64 KiB) is full, so whoever waits for it calls
/// DrainOutput now and then. Not thread-safe. The destructor kills and reaps what still runs.
class PythonChild {
 public:
  static constexpr int kLogLines = 200;
  static constexpr absl::Duration kLogPeriod = absl::Seconds(10);

  /// Starts a process with these file descriptors, which stay the caller's.
  using Launcher = absl::FunctionRef<absl::StatusOr<std::unique_ptr<ChildProcess>>(const ChildFds&)>;
  /// `memory_fd`: shared with it, -1 for none; `name` is how log lines call it.
  static absl::StatusOr<std::unique_ptr<PythonChild>> Start(Launcher launch, int memory_fd, std::string name);
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;
  ~PythonChild();

  pid_t pid() const { return pid_; }

  /// A line to the control channel. UNAVAILABLE when the child reads no more, DEADLINE_EXCEEDED when it does not read
  /// within `timeout`; zero: what does not fit at once. `fds`, at most kMaxSentFds: file descriptors that go with it.
  absl::Status Send(absl::string_view line, absl::Duration timeout, absl::Span<const int> fds = {});
  static constexpr size_t kMaxSentFds = 4;
  /// The next line, if it is there within `wait`; also returns early when the child prints or ends. RESOURCE_EXHAUSTED:
  /// a line longer than kMaxLineBytes.
  absl::StatusOr<std::optional<std::string>> TryReceive(absl::Duration wait);
  static constexpr size_t kMaxLineBytes = size_t{1} << 28;

  /// Takes what it has printed, and logs it when kLogPeriod is over. Never waits.
  void DrainOutput();
  /// The last lines it printed, for error messages.
  std::string LastOutput() const;
  /// The very last one: what Python says of an exception.
  std::string LastLine() const { return last_lines_.empty() ? "nothing" : last_lines_.back(); }

  /// Whether it has ended; then it is reaped and HowItEnded says how. Does not wait for its end.
  bool Ended();
  /// As ChildProcess::KillAndReap says it.
  const std::string& HowItEnded() const { return how_it_ended_; }
  /// SIGTERM to the child.
  void Terminate();
  /// SIGKILL to the child and what it started; waits until it is gone.
  void Kill();

 private:
  PythonChild(std::unique_ptr<ChildProcess> process, int control_fd, int output_fd, int lifeline_fd, std::string name);
  void TakeLine(absl::string_view line);
  /// One line about all since the last one.
  void LogPeriod();
  void KillAndReap();

  const std::unique_ptr<ChildProcess> process_;
  const pid_t pid_;
  const int control_fd_, output_fd_, lifeline_fd_;
  const std::string name_;
  bool ended_ = false;
  std::string how_it_ended_;
  std::string received_;
  size_t searched_ = 0;  ///< bytes of received_ that hold no line's end
  std::string printed_;  ///< an unfinished line
  std::vector<std::string> last_lines_;
  absl::Duration period_begin_;  ///< a steady clock's, where lines_in_period_ > 0
  int64_t lines_in_period_ = 0;
  std::string first_line_;  ///< of the period
};

}  // namespace troupe::envhost
