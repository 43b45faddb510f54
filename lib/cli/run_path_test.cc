#include "lib/cli/run_path.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

class RunPathTest : public testing::Test {
 protected:
  RunPathTest() {
    std::string path = testing::TempDir() + "/run_path_XXXXXX";
    root_ = mkdtemp(path.data());
    fs::create_directories(root_ + "/runs/a");
    fs::create_directories(root_ + "/runs/empty");
    std::ofstream(root_ + "/runs/a/config.yaml") << "seed: 1\n";
  }
  ~RunPathTest() override { fs::remove_all(root_); }

  std::string root_;
};

TEST_F(RunPathTest, FindsAFolderAndAName) {
  EXPECT_EQ(*FindRunFolder(root_ + "/runs/a"), root_ + "/runs/a");
  EXPECT_EQ(*FindRunFolder("a", root_ + "/runs"), root_ + "/runs/a");
  const absl::Status missing = FindRunFolder("empty", root_ + "/runs").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "there is no run in \"empty\" nor in \"" + root_ +
                                   "/runs/empty\" (a run has a config.yaml); in \"" + root_ + "/runs\" there are a");
  EXPECT_FALSE(FindRunFolder("", root_ + "/runs").ok());
  EXPECT_EQ(FindRunFolder(root_ + "/nothing", "runs").status().message(),
            "there is no run in \"" + root_ +
                "/nothing\" (a run has a config.yaml); \"runs\" holds none, --directory says where runs lie");
  fs::create_directories(root_ + "/runs/cartpole");
  std::ofstream(root_ + "/runs/cartpole/config.yaml") << "seed: 1\n";
  EXPECT_THAT(std::string(FindRunFolder("cartpol", root_ + "/runs").status().message()),
              testing::HasSubstr("; the nearest is \"" + root_ + "/runs/cartpole\""));
  EXPECT_THAT(std::string(FindRunFolder("other", root_ + "/runs").status().message()),
              testing::HasSubstr("/runs\" there are a, cartpole"));
  for (const auto& [run, directory] : {std::pair("s3://bucket/a", "runs"), std::pair("a", "s3://bucket")}) {
    EXPECT_EQ(FindRunFolder(run, directory).status().code(), absl::StatusCode::kInvalidArgument) << run;
  }
}

TEST_F(RunPathTest, LastWholeLineOfProgress) {
  const std::string run = root_ + "/runs/a";
  EXPECT_EQ(LastProgressLine(run).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(run + "/progress.jsonl") << "{\"half";
  EXPECT_EQ(LastProgressLine(run).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(run + "/progress.jsonl") << "{\"a\": 1}\n";
  EXPECT_EQ(*LastProgressLine(run), "{\"a\": 1}");
  std::ofstream(run + "/progress.jsonl") << std::string(100000, 'x') << "\n{\"a\": 1}\n{\"a\": 2}\n{\"a\":";
  EXPECT_EQ(*LastProgressLine(run), "{\"a\": 2}");
  std::ofstream(run + "/progress.jsonl") << std::string((64 << 10) + 1, 'x');
  EXPECT_EQ(LastProgressLine(run).status(), absl::DataLossError("progress.jsonl has no whole line in its last 64 KiB"));
  fs::resize_file(run + "/progress.jsonl", 64 << 10);
  EXPECT_EQ(LastProgressLine(run).status().code(), absl::StatusCode::kNotFound) << "one that is being written";
  fs::remove(run + "/progress.jsonl");
  fs::create_symlink("/dev/zero", run + "/progress.jsonl");
  const absl::Status closed = LastProgressLine(run).status();
  EXPECT_EQ(closed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(closed.message()), testing::StartsWith("progress.jsonl cannot be read: "));
}

}  // namespace
}  // namespace troupe::cli
