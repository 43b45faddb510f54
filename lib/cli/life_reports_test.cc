#include "lib/cli/life_reports.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "lib/run/life_report.h"
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

class LifeReportsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(reports_.Open().ok()); }
  void Write(const std::string& text) {
    ASSERT_EQ(write(reports_.worker_fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  LifeReports reports_;
};

TEST_F(LifeReportsTest, AWorkersReportArrives) {
  EXPECT_TRUE(reports_.Take().empty());
  absl::StatusOr<run::LifeReport> worker = run::LifeReport::Adopt(dup(reports_.worker_fd()));
  ASSERT_TRUE(worker.ok()) << worker.status();
  worker->Fruitful();
  EXPECT_EQ(reports_.Take(), std::vector<pid_t>{getpid()});
  EXPECT_TRUE(reports_.Take().empty());
}

TEST_F(LifeReportsTest, LinesMayComeInParts) {
  Write("12");
  EXPECT_TRUE(reports_.Take().empty());
  Write("3\n45\n6");
  EXPECT_EQ(reports_.Take(), (std::vector<pid_t>{123, 45}));
}

TEST_F(LifeReportsTest, WhatIsNoReportIsLeftOut) {
  Write("nobody\n\n99999999999999999999\n" + std::string(3000, '7') + "\n17\n");
  EXPECT_EQ(reports_.Take(), std::vector<pid_t>{17});
}

TEST_F(LifeReportsTest, AFullPipeHoldsNobodyUp) {
  absl::StatusOr<run::LifeReport> worker = run::LifeReport::Adopt(dup(reports_.worker_fd()));
  ASSERT_TRUE(worker.ok()) << worker.status();
  for (int i = 0; i < 100'000; ++i) worker->Fruitful();
  EXPECT_GT(reports_.Take().size(), 1000u);
}

TEST(LifeReportTest, OnlyAPipeIsTaken) {
  const int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_EQ(run::LifeReport::Adopt(file).status().code(), absl::StatusCode::kInvalidArgument);
  close(file);
  EXPECT_EQ(run::LifeReport::Adopt(file).status().code(), absl::StatusCode::kInvalidArgument)
      << "nothing is open there";
}

TEST_F(LifeReportsTest, TheWorkersOwnChildrenDoNotInheritIt) {
  const int fd = dup(reports_.worker_fd());
  const absl::StatusOr<run::LifeReport> worker = run::LifeReport::Adopt(fd);
  ASSERT_TRUE(worker.ok());
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

}  // namespace
}  // namespace troupe::cli
