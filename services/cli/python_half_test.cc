#include "services/cli/python_half.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace troupe::services {
namespace {

/// In a process of its own: 0 where stdin is `text` afterwards, and stays open for what the process becomes.
int ReadBack(const std::string& text, bool is_closed) {
  if (is_closed) close(STDIN_FILENO);
  if (!PutOnStdin(text).ok()) return 1;
  if ((fcntl(STDIN_FILENO, F_GETFD) & FD_CLOEXEC) != 0) return 2;
  std::string read_back(text.size() + 1, '\0');
  const ssize_t got = read(STDIN_FILENO, read_back.data(), read_back.size());
  return got == static_cast<ssize_t>(text.size()) && read_back.compare(0, text.size(), text) == 0 ? 0 : 3;
}

TEST(PythonHalfTest, StdinIsTheTextWhereItWasOpenAndWhereItWasClosed) {
  const std::string text(100'000, 'x');
  for (const bool is_closed : {false, true}) {
    EXPECT_EXIT(_exit(ReadBack(text, is_closed)), testing::ExitedWithCode(0), "") << is_closed;
  }
}

}  // namespace
}  // namespace troupe::services
