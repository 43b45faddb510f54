#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace troupe::run {

/// Prints what other processes of a run say, who have the same terminal (`troupe train` and its workers), above the
/// progress block: they write it to a pipe that this process inherits (`troupe-learner --line-fd`). Made by the
/// learner's process before it starts anything, used by one thread.
///
/// Who has the pipe's other end can take the terminal (base::TakeTerminal): what comes is printed then, too, but the
/// block is not drawn any more.
///
/// Lines are printed whole, as they come. Of a line that does not end, what there is of it is printed when nothing
/// follows for a while, or when it has kMostBytes. What is in the pipe when the relay is gone is left to who has its
/// other reading end.
class LineRelay {
 public:
  static constexpr size_t kMostBytes = 1 << 16;

  /// Takes the descriptor; our own children do not inherit it. INVALID_ARGUMENT when it is no pipe.
  static absl::StatusOr<std::unique_ptr<LineRelay>> Adopt(int fd);
  ~LineRelay();
  LineRelay(const LineRelay&) = delete;
  LineRelay& operator=(const LineRelay&) = delete;

  /// Prints what there is; waits for it up to a moment. How long until the next one is due: InfiniteDuration when
  /// nobody has the writing end any more.
  absl::Duration Step();

 private:
  explicit LineRelay(int fd) : fd_(fd) {}
  /// Up to the last line feed, or, `all`, with one behind what does not end.
  void Print(bool all);

  const int fd_;
  std::string waiting_;  ///< read, not printed
};

}  // namespace troupe::run
