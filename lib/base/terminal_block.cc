#include "lib/base/terminal_block.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

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
  WriteOut(text, block_);
  shown_ = std::move(shown);
  interrupted_ = std::move(interrupted);
}

void TerminalBlock::WriteAbove(absl::FunctionRef<void()> write) {
  MutexLock lock(&mutex_);
  const bool stands = StandsLocked();
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
