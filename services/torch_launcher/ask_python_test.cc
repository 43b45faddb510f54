#include "services/torch_launcher/ask_python.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/base/testing/made_up_folder.h"
#include <gmock/gmock.h>

namespace troupe::services {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

/// A python3 that is this machine's own and has `site` as its only foreign folder.
std::string RealPython(const base::MadeUpFolder& folder) {
  return folder.Python(absl::StrCat("unset PYTHONSAFEPATH\nPATH='", std::getenv("PATH"), "' PYTHONPATH='",
                                    folder / "site", "' exec python3 -S \"$@\""));
}

TEST(AskPython, FindsThePackageWithoutImportingIt) {
  const base::MadeUpFolder folder;
  folder.Write("site/torch/__init__.py", "raise RuntimeError('imported')\n");
  EXPECT_EQ(AskPythonForTorch(RealPython(folder), kLong).value(), folder / "site/torch");
}

TEST(AskPython, HasNoTorch) {
  const base::MadeUpFolder folder;
  const absl::Status status = AskPythonForTorch(RealPython(folder), kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), absl::StrCat("python3 (", folder / "bin/python3", ") has no package torch"));
}

TEST(AskPython, AFolderCalledTorchIsNoPackage) {
  const base::MadeUpFolder folder;
  folder.Write("site/torch/checkpoints/latest.pt", "");
  EXPECT_EQ(AskPythonForTorch(RealPython(folder), kLong).status().code(), absl::StatusCode::kNotFound);
  // Nor is what lies where we were started, though python3 -c looks there first.
  folder.Write("here/torch/__init__.py", "");
  char before[4096];
  ASSERT_NE(getcwd(before, sizeof before), nullptr);
  ASSERT_EQ(chdir((folder / "here").c_str()), 0);
  EXPECT_EQ(AskPythonForTorch(RealPython(folder), kLong).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(chdir(before), 0);
}

TEST(AskPython, ThereIsNone) {
  const base::MadeUpFolder folder;
  for (const std::string& path : {std::string(), folder.root()}) {
    const absl::Status status = AskPythonForTorch(path, kLong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(status.message(), "there is no python3 on the PATH");
  }
}

TEST(AskPython, TheFirstOnThePathIsAsked) {
  const base::MadeUpFolder first, second;
  const std::string path = absl::StrCat("/nowhere::", first.Python("echo troupe-libtorch:/first"), ":",
                                        second.Python("echo troupe-libtorch:/second"));
  EXPECT_EQ(AskPythonForTorch(path, kLong).value(), "/first");
}

TEST(AskPython, AFileThatIsNoProgramIsPassedBy) {
  const base::MadeUpFolder first, second;
  first.Write("python3", "");
  EXPECT_EQ(AskPythonForTorch(first.root() + ":" + second.Python("echo troupe-libtorch:/second"), kLong).value(),
            "/second");
}

TEST(AskPython, WhatElseIsPrintedDoesNotMatter) {
  const base::MadeUpFolder folder;
  EXPECT_EQ(
      AskPythonForTorch(folder.Python("echo hello; echo warning >&2; echo troupe-libtorch:/a folder; echo bye"), kLong)
          .value(),
      "/a folder");
}

TEST(AskPython, GarbageIsShownInOneLine) {
  const base::MadeUpFolder folder;
  const absl::Status status =
      AskPythonForTorch(folder.Python("echo one; printf 'two\\033[31m\\n\\n'; exit 3"), kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it ended with 3 and said \"two\\x1b[31m\""));
  const absl::Status silent = AskPythonForTorch(folder.Python("exit 0"), kLong).status();
  EXPECT_THAT(std::string(silent.message()), HasSubstr("it ended with 0 and said \"nothing\""));
  const absl::Status traceback =
      AskPythonForTorch(folder.Python("echo one; echo SyntaxError >&2; exit 1"), kLong).status();
  EXPECT_THAT(std::string(traceback.message()), HasSubstr("it ended with 1 and said \"SyntaxError\""));
  const absl::Status killed = AskPythonForTorch(folder.Python("kill -9 $$"), kLong).status();
  EXPECT_THAT(std::string(killed.message()), HasSubstr("it ended with signal 9"));
  const absl::Status failed = AskPythonForTorch(folder.Python("echo troupe-libtorch:/x; exit 1"), kLong).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
}

TEST(AskPython, EndlessOutputIsCutOff) {
  const base::MadeUpFolder folder;
  const absl::Status status =
      AskPythonForTorch(folder.Python("head -c 100000000 /dev/zero | tr '\\0' x"), kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_LT(status.message().size(), 1000U);
}

TEST(AskPython, OneThatHangsIsKilledWithWhatItStarted) {
  const base::MadeUpFolder folder;
  // Both keep the pipe open; the second is a process of its own. exec, so that its pid is that of sleep.
  const std::string path =
      folder.Python(absl::StrCat("sleep 1000 & echo $! > '", folder / "pid", "'; exec sleep 1000"));
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  const absl::Status status = AskPythonForTorch(path, absl::Seconds(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not say within 1s where its package torch is"));
  EXPECT_LT(base::Clock::Real().SteadyNow() - begin, absl::Seconds(30));
  pid_t started = 0;
  std::ifstream(folder / "pid") >> started;
  ASSERT_GT(started, 0);
  // It is gone, or a zombie that nobody has reaped yet.
  const auto runs = [&] {
    std::string line;
    std::getline(std::ifstream(absl::StrCat("/proc/", started, "/stat")), line);
    return !line.empty() && line.find(") Z") == std::string::npos;
  };
  EXPECT_TRUE(
      base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(absl::Seconds(10)), [&] { return !runs(); }));
}

TEST(AskPython, OneThatClosesItsOutputAndHangsIsKilled) {
  const base::MadeUpFolder folder;
  const absl::Status status =
      AskPythonForTorch(folder.Python("exec sleep 1000 > /dev/null 2>&1"), absl::Seconds(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace troupe::services
