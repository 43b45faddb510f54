#pragma once

#include "absl/status/status.h"

namespace troupe::cli {

/// The terminal of a run whose learner draws on it: what this process and its workers say goes to the learner through a
/// pipe (`troupe-learner --line-fd`), which prints it above its progress block. This process can read the pipe, too:
/// what the learner leaves behind is printed by it.
///
/// Made and used by Supervisor's thread. Never blocks but by the terminal. States: closed -> (Open) open -> (Divert)
/// diverted -> (Restore, TakeOver) open. Capacity: a pipe's (64 KiB); who writes more than the learner reads waits for
/// it.
class SharedTerminal {
 public:
  SharedTerminal() = default;
  /// Restores, and prints what is left.
  ~SharedTerminal();
  SharedTerminal(const SharedTerminal&) = delete;
  SharedTerminal& operator=(const SharedTerminal&) = delete;

  /// INTERNAL when there is no pipe to be had.
  absl::Status Open();
  bool is_open() const { return fds_[0] >= 0; }
  /// What the learner inherits and reads.
  int learner_fd() const { return fds_[0]; }
  /// stdout and stderr of this process, and so those of processes that it starts from now on, are the pipe. Nothing
  /// where it is not open.
  void Divert();
  /// Those of this process are the terminal's again. Idempotent.
  void Restore();
  /// Restores, and the learner's block is not drawn any more. Waits for it where it is being drawn, a moment at most: a
  /// learner that was stopped in the middle of that is not waited for.
  void TakeOver();
  /// Prints what is in the pipe. Once the learner is gone: until then that is the learner's.
  void PrintRest() const;

 private:
  int fds_[2] = {-1, -1};
  int kept_[2] = {-1, -1};  ///< stdout and stderr as they were
};

}  // namespace troupe::cli
