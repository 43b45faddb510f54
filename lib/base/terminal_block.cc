#include "lib/base/terminal_block.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"

namespace troupe::base {
namespace {

constexpr int kUsualColumns = 80;

/// Of the terminal as it is now.
int TerminalColumns(std::FILE* terminal) {
  winsize size{};
  return ::ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

void WriteOut(std::string_view text, std::FILE* to) {
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
}

constexpr absl::Duration kTakePoll = absl::Milliseconds(1);

/// Of the pipe as a whole, by one of its ends: a reading end can have it shared, a writing end alone. An open file
/// description's lock, so that threads of one process and copies of a descriptor do not take it from each other.
bool LockPipe(int fd, int16_t type) {
  struct flock lock {};
  lock.l_type = type;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/// Ours to draw while it is there, or taken.
class Turn {
 public:
  explicit Turn(std::optional<int> shared)
      : shared_(shared), ours_(!shared || LockPipe(*shared, F_RDLCK) || (errno != EAGAIN && errno != EACCES)) {}
  ~Turn() {
    if (shared_ && ours_) LockPipe(*shared_, F_UNLCK);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool ours() const { return ours_; }

 private:
  const std::optional<int> shared_;
  const bool ours_;
};

}  // namespace

int ColumnsOf(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string UpOver(const std::vector<std::string>& lines, int columns) {
  int rows = 0;
  for (const std::string& line : lines) rows += 1 + std::max(0, ColumnsOf(line) - 1) / std::max(1, columns);
  return rows > 0 ? absl::StrCat("\x1b[", rows, "A\r") : "";
}

bool IsSameTerminal(int one, int other) {
  struct stat first {};
  struct stat second {};
  return ::isatty(one) == 1 && ::isatty(other) == 1 && ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 &&
         first.st_rdev == second.st_rdev;
}

bool TakeTerminal(int writing_end, absl::Duration patience) {
  return AwaitPolling(kTakePoll, Deadline::After(patience), [&] { return LockPipe(writing_end, F_WRLCK); });
}

TerminalBlock& TerminalBlock::OfProcess() {
  // Never destroyed: a thread may log while the process ends.
  static TerminalBlock* const block = new TerminalBlock(stdout, stderr);
  return *block;
}

bool TerminalBlock::StandsLocked() const {
  if (shown_.empty() || (interrupted_ && interrupted_())) return false;
  return IsSameTerminal(fileno(block_), fileno(lines_));
}

void TerminalBlock::Draw(std::string_view text, std::vector<std::string> shown, std::function<bool()> interrupted) {
  MutexLock lock(&mutex_);
  const Turn turn(shared_);
  if (!turn.ours()) return;
  WriteOut(text, block_);
  shown_ = std::move(shown);
  interrupted_ = std::move(interrupted);
}

void TerminalBlock::ShareThrough(std::optional<int> reading_end) {
  MutexLock lock(&mutex_);
  shared_ = reading_end;
}

void TerminalBlock::WriteAbove(absl::FunctionRef<void()> write) {
  MutexLock lock(&mutex_);
  const Turn turn(shared_);
  const bool stands = turn.ours() && StandsLocked();
  if (stands) WriteOut(absl::StrCat(UpOver(shown_, TerminalColumns(block_)), "\x1b[J"), block_);
  write();
  if (!stands) return;
  std::fflush(lines_);
  std::string again;
  for (const std::string& line : shown_) absl::StrAppend(&again, line, "\n");
  WriteOut(again, block_);
}

void TerminalBlock::WriteAbove(std::string_view lines) {
  WriteAbove([this, lines] { WriteOut(lines, lines_); });
}

}  // namespace troupe::base
