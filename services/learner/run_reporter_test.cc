#include "services/learner/run_reporter.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace troupe::services {
namespace {

namespace fs = std::filesystem;

/// Lets no file of this process grow beyond `bytes` while it is there: writes fail with EFBIG, in their middle.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  const sighandler_t handler_;
  rlimit before_{};
};

class RunReporterTest : public testing::Test {
 protected:
  RunReporterTest() : directory_(fs::path(testing::TempDir()) / absl::StrCat("troupe-reporter-", getpid())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    config::ResolvedRun run;
    run.experiment.write_interval_env_steps = 100;
    auto reporter = RunReporter::Open(run, "run", directory_.string(), 0, &degradations_);
    EXPECT_TRUE(reporter.ok()) << reporter.status();
    reporter_ = *std::move(reporter);
  }
  ~RunReporterTest() override { fs::remove_all(directory_); }

  void Update(int64_t env_steps) {
    learner::ProgressRecord record;
    record.env_steps = env_steps;
    reporter_->Scalar("Loss/Policy loss", 0.5, env_steps);
    reporter_->OnProgress(record);
  }
  std::vector<std::string> Lines() const {
    std::ifstream in(directory_ / "progress.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  const fs::path directory_;
  Degradations degradations_;
  std::unique_ptr<RunReporter> reporter_;
};

TEST_F(RunReporterTest, LinesThatDidNotFitComeWhenThereIsRoomAgain) {
  Update(100);
  const size_t whole = fs::file_size(directory_ / "progress.jsonl");
  {
    const FileSizeLimit limit(whole + 40);
    for (int64_t env_steps = 200; env_steps <= 500; env_steps += 100) Update(env_steps);
    EXPECT_EQ(fs::file_size(directory_ / "progress.jsonl"), whole) << "half a line is there";
    const std::vector<std::string> degraded = degradations_.List();
    ASSERT_FALSE(degraded.empty());
    EXPECT_EQ(degraded.back(), "progress.jsonl cannot be written: File too large; 4 lines wait");
    for (const std::string& words : degraded) EXPECT_FALSE(absl::StrContains(words, "/")) << words;
  }
  Update(501);  // no line is due, and those that wait are written all the same
  EXPECT_TRUE(degradations_.List().empty());
  ASSERT_EQ(Lines().size(), 5u);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_TRUE(absl::StartsWith(Lines()[i], absl::StrCat("{\"env_steps\":", 100 * (i + 1), ",")));
}

TEST_F(RunReporterTest, AnUpdateThatChangedNothingIsDegraded) {
  learner::ProgressRecord record;
  record.env_steps = 100;
  record.policies.resize(3);
  record.policies[0].minibatch_steps = 8;
  record.policies[1].minibatch_steps = 7;
  record.policies[1].skipped_steps = 1;
  record.policies[2].skipped_steps = 8;
  reporter_->OnProgress(record);
  EXPECT_EQ(degradations_.List(),
            std::vector<std::string>{"the last update changed nothing in 1 of 3 policies: losses or gradients are not "
                                     "finite"});
  record.policies[2].minibatch_steps = 1;
  reporter_->OnProgress(record);
  EXPECT_TRUE(degradations_.List().empty());
}

TEST_F(RunReporterTest, TensorBoardsRecordsLikewise) {
  Update(100);
  fs::path events;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (absl::StartsWith(entry.path().filename().string(), "events.")) events = entry.path();
  }
  const size_t whole = fs::file_size(events);
  {
    const FileSizeLimit limit(whole + 7);
    Update(200);
    EXPECT_EQ(fs::file_size(events), whole);
    ASSERT_FALSE(degradations_.List().empty());
    EXPECT_EQ(degradations_.List().front(),
              "TensorBoard's event file cannot be written: File too large; 1 records wait");
  }
  Update(201);
  EXPECT_GT(fs::file_size(events), whole);
  EXPECT_TRUE(degradations_.List().empty());
}

}  // namespace
}  // namespace troupe::services
