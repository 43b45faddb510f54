#include "lib/base/terminal_block.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "lib/base/log.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

/// A terminal of its own, which changes nothing of what is written.
class PseudoTerminal {
 public:
  explicit PseudoTerminal(uint16_t columns = 40) : ours_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    EXPECT_EQ(grantpt(ours_), 0);
    EXPECT_EQ(unlockpt(ours_), 0);
    its_ = open(ptsname(ours_), O_RDWR | O_NOCTTY);
    termios settings{};
    EXPECT_EQ(tcgetattr(its_, &settings), 0);
    cfmakeraw(&settings);
    EXPECT_EQ(tcsetattr(its_, TCSANOW, &settings), 0);
    const winsize size = {24, columns, 0, 0};
    EXPECT_EQ(ioctl(its_, TIOCSWINSZ, &size), 0);
  }
  ~PseudoTerminal() {
    close(its_);
    close(ours_);
  }
  int fd() const { return its_; }
  /// What was written since the last call.
  std::string Take() {
    std::string text;
    char bytes[4096];
    for (ssize_t got; (got = read(ours_, bytes, sizeof(bytes))) > 0;) text.append(bytes, static_cast<size_t>(got));
    return text;
  }

 private:
  const int ours_;
  int its_ = -1;
};

/// A pipe whose ends are closed with it.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe(fds), 0); }
  ~Pipe() {
    close(fds[0]);
    close(fds[1]);
  }
  int fds[2];
};

/// A file of a descriptor that stays open.
struct File {
  explicit File(int fd) : file(fdopen(dup(fd), "w")) {}
  ~File() { std::fclose(file); }
  std::FILE* const file;
};

TEST(TerminalBlockTest, ALineErasesTheBlockIsWholeAndTheBlockIsDrawnAgain) {
  PseudoTerminal terminal;
  const File out(terminal.fd()), err(terminal.fd());
  TerminalBlock block(out.file, err.file);
  block.WriteAbove("before\n");
  block.Draw("one\ntwo\n", {"one", "two"});
  EXPECT_EQ(terminal.Take(), "before\none\ntwo\n");
  block.WriteAbove("a line\n");
  EXPECT_EQ(terminal.Take(), "\x1b[2A\r\x1b[Ja line\none\ntwo\n");
  block.WriteAbove("another\n");
  EXPECT_EQ(terminal.Take(), "\x1b[2A\r\x1b[Janother\none\ntwo\n");
  block.Draw("the end\n", {});
  block.WriteAbove("behind\n");
  EXPECT_EQ(terminal.Take(), "the end\nbehind\n");
}

TEST(TerminalBlockTest, AWideLineOfTheBlockTakesSeveralRows) {
  PseudoTerminal terminal(/*columns=*/10);
  const File out(terminal.fd()), err(terminal.fd());
  TerminalBlock block(out.file, err.file);
  const std::string ten = "ten \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4";
  block.Draw("", {std::string(21, 'x'), ten, ""});
  block.WriteAbove("a line\n");
  EXPECT_EQ(terminal.Take(), "\x1b[5A\r\x1b[Ja line\n" + std::string(21, 'x') + "\n" + ten + "\n\n");
}

TEST(TerminalBlockTest, AnInterruptedBlockStaysAsItIs) {
  PseudoTerminal terminal;
  const File out(terminal.fd()), err(terminal.fd());
  TerminalBlock block(out.file, err.file);
  bool interrupted = false;
  block.Draw("one\n", {"one"}, [&interrupted] { return interrupted; });
  block.WriteAbove("above\n");
  interrupted = true;
  block.WriteAbove("below\n");
  EXPECT_EQ(terminal.Take(), "one\n\x1b[1A\r\x1b[Jabove\none\nbelow\n");
}

// A signal that ends a run reached the learner later than what its parent said of it the terminal: that was drawn over.
TEST(TerminalBlockTest, NobodyDrawsOnATerminalThatWasTaken) {
  PseudoTerminal terminal;
  const File out(terminal.fd()), err(terminal.fd());
  const Pipe ends;
  TerminalBlock block(out.file, err.file);
  block.ShareThrough(ends.fds[0]);
  block.Draw("one\n", {"one"});
  block.WriteAbove("above\n");
  EXPECT_EQ(terminal.Take(), "one\n\x1b[1A\r\x1b[Jabove\none\n");
  EXPECT_TRUE(TakeTerminal(ends.fds[1], absl::ZeroDuration()));
  block.Draw("\x1b[1A\rtwo\n", {"two"});
  block.WriteAbove("below\n");
  EXPECT_EQ(terminal.Take(), "below\n");
  block.ShareThrough(std::nullopt);
  block.Draw("end\n", {});
  EXPECT_EQ(terminal.Take(), "end\n");
}

TEST(TerminalBlockTest, WhoTakesTheTerminalWaitsForWhatIsBeingWritten) {
  PseudoTerminal terminal;
  const File out(terminal.fd()), err(terminal.fd());
  const Pipe ends;
  TerminalBlock block(out.file, err.file);
  block.ShareThrough(ends.fds[0]);
  block.WriteAbove([&] { EXPECT_FALSE(TakeTerminal(ends.fds[1], absl::Milliseconds(5))) << "it is in use"; });
  EXPECT_TRUE(TakeTerminal(ends.fds[1], absl::ZeroDuration()));
}

TEST(TerminalBlockTest, WhereLinesGoElsewhereTheBlockIsLeftAlone) {
  PseudoTerminal terminal, another;
  const Pipe ends;
  for (const int elsewhere : {another.fd(), ends.fds[1]}) {
    const File out(terminal.fd()), err(elsewhere);
    TerminalBlock block(out.file, err.file);
    block.Draw("one\n", {"one"});
    block.WriteAbove("a line\n");
    EXPECT_EQ(terminal.Take(), "one\n");
  }
  EXPECT_EQ(another.Take(), "a line\n");
  char bytes[16];
  EXPECT_EQ(read(ends.fds[0], bytes, sizeof(bytes)), 7);
}

/// stdout and stderr are `fd` while it is there.
class Redirected {
 public:
  explicit Redirected(int fd) {
    std::fflush(stdout);
    for (const int own : {STDOUT_FILENO, STDERR_FILENO}) {
      kept_.push_back(dup(own));
      dup2(fd, own);
    }
  }
  ~Redirected() {
    std::fflush(stdout);
    for (const int own : {STDOUT_FILENO, STDERR_FILENO}) {
      dup2(kept_[static_cast<size_t>(own - STDOUT_FILENO)], own);
      close(kept_[static_cast<size_t>(own - STDOUT_FILENO)]);
    }
  }

 private:
  std::vector<int> kept_;
};

// "worker left", and "policies changed" in the middle of a run, were drawn over.
TEST(TerminalBlockTest, ALogLineStandsAboveTheBlockOfTheProcess) {
  PseudoTerminal terminal;
  {
    const Redirected redirected(terminal.fd());
    InitLogging("block_test", "info");
    TerminalBlock::OfProcess().Draw("one\n", {"one"});
    TROUPE_INFO("worker left id={}", 3);
    TerminalBlock::OfProcess().Draw("", {});
    TROUPE_INFO("behind");
  }
  InitLogging("block_test", "info");
  EXPECT_THAT(terminal.Take(),
              testing::MatchesRegex("one\n\x1b\\[1A\r\x1b\\[J[^\n]*worker left id=3\none\n[^\n]*behind\n"));
}

}  // namespace
}  // namespace troupe::base
