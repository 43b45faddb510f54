#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace troupe::base {

/// Columns of UTF-8, as if every character took one.
int ColumnsOf(std::string_view text);
/// Goes up from the row below `lines` to where they begin, in a terminal of so many columns: one that is wider than
/// that is wrapped, as terminals do. Clears nothing.
std::string UpOver(const std::vector<std::string>& lines, int columns);
/// Whether both descriptors are one and the same terminal.
bool IsSameTerminal(int one, int other);

/// For a process that has the writing end of a pipe whose reading end the owner of a block shares its terminal through:
/// nobody draws there any more, for as long as this end is open anywhere. Waits up to `patience` for one who is
/// drawing; whether it has the terminal. What it is good for: a signal that ends a run is heard by the one and by the
/// other at different times, and a block drawn between the two would be drawn over what the first one says of it.
bool TakeTerminal(int writing_end, absl::Duration patience);

/// The last lines of a terminal, which their owner draws over themselves again and again (a progress display), and
/// lines that come meanwhile. Such a line erases the block where it stands, is printed whole, and the block stands
/// again below it.
///
/// Of the process there is one, as there is one stdout, which has the block, and one stderr, which has the lines: log.h
/// writes all of its lines above it. Thread-safe; blocks as long as the terminal does. States: empty -> (Draw) shown ->
/// (Draw without lines) empty. Without a terminal, or where stderr is elsewhere, lines are written as they are.
class TerminalBlock {
 public:
  static TerminalBlock& OfProcess();
  /// Both outlive it.
  TerminalBlock(std::FILE* block, std::FILE* lines) : block_(block), lines_(lines) {}

  /// Writes `text`, after which `shown` are the last lines on the terminal; none: it ends the block. `interrupted`,
  /// which may be absent, only looks at something: once it is true others write below the block, which then stays as it
  /// is. Nothing on a terminal that was taken.
  void Draw(std::string_view text, std::vector<std::string> shown, std::function<bool()> interrupted = nullptr);
  /// From now on the block is drawn only while nobody has taken the terminal (TakeTerminal with the other end of this
  /// pipe); none: it is nobody else's.
  void ShareThrough(std::optional<int> reading_end);
  /// Has `write`, which writes whole lines to stderr, do so above the block.
  void WriteAbove(absl::FunctionRef<void()> write);
  /// Writes `lines`, each ended by a line feed, to stderr, above the block.
  void WriteAbove(std::string_view lines);

 private:
  /// Whether a line that is written now would break the block.
  bool StandsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::FILE* const block_;
  std::FILE* const lines_;
  Mutex mutex_;
  std::optional<int> shared_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> shown_ ABSL_GUARDED_BY(mutex_);
  std::function<bool()> interrupted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::base
