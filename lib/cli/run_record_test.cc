#include "lib/cli/run_record.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RunRecordTest : public testing::Test {
 protected:
  /// A run's folder, written `age` seconds ago.
  std::string Make(const std::string& name, const std::string& config, const std::string& progress,
                   const std::string& summary, int age = 0) {
    const std::string path = folder_.path() + "/" + name;
    fs::create_directories(path);
    std::ofstream(path + "/config.yaml") << config;
    if (!progress.empty()) std::ofstream(path + "/progress.jsonl") << progress;
    if (!summary.empty()) std::ofstream(path + "/summary.json") << summary;
    for (const auto& entry : fs::directory_iterator(path)) {
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::seconds(age));
    }
    return path;
  }

  const storage::ScratchDirectory folder_;
};

constexpr char kConfig[] =
    "seed: 7\nenv: {name: mpe/simple_spread, args: {N: 3}}\nalgorithm: {name: ippo, lr: 0.002}\n"
    "experiment: {wandb_kwargs: {api_key: CANARY}}\n";

TEST_F(RunRecordTest, ARunIsToldByItsFiles) {
  const std::string path = Make("a", kConfig,
                                "{\"env_steps\":10,\"return_sum\":null}\n"
                                "{\"env_steps\":20,\"updates\":2,\"return_sum\":-3.5,\"best_return\":-3,"
                                "\"wall_clock_s\":1.5,\"rewards_differ\":true}\n{\"env_st",
                                "{\"env_steps\":20,\"reason\":\"stop.env_steps reached: 20 of 20\"}\n");
  const RunRecord run = ReadRun(path + "/");
  EXPECT_THAT(run.problems, IsEmpty());
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.state, "finished");
  EXPECT_EQ(run.Key("env.name"), "mpe/simple_spread");
  EXPECT_EQ(run.Key("env.args.N"), "3");
  EXPECT_EQ(run.Key("seed"), "7");
  EXPECT_EQ(run.env_steps, 20) << "the half line at the end is being written";
  EXPECT_EQ(run.return_sum, -3.5);
  EXPECT_TRUE(run.rewards_differ);
  for (const auto& [key, value] : run.keys) EXPECT_THAT(value, testing::Not(HasSubstr("CANARY"))) << key;
  const auto written = WrittenKeys(run);
  EXPECT_EQ(written.at("algorithm.lr"), "0.002");
  EXPECT_EQ(written.count("algorithm.gamma"), 0U);
}

TEST_F(RunRecordTest, TheStateIsThatOfTheNewestLife) {
  const std::string later = "{\"env_steps\":30}\n";
  EXPECT_EQ(ReadRun(Make("killed", kConfig, later, "{\"env_steps\":20,\"reason\":\"stop.env_steps\"}")).state,
            "stopped");
  const RunRecord signal = ReadRun(Make("signal", kConfig, later, "{\"env_steps\":30,\"reason\":\"SIGTERM\"}"));
  EXPECT_EQ(signal.state, "stopped");
  EXPECT_EQ(signal.reason, "SIGTERM");
  EXPECT_EQ(ReadRun(Make("new", kConfig, "", "")).state, "stopped");
  EXPECT_EQ(ReadRun(Make("played", kConfig, "", "{\"evaluated_run\":\"a\"}")).state, "evaluation");
  const std::string away = Make("away", kConfig, later, "");
  std::ofstream(away + "/address") << "unix:/nowhere\ncontrol control/control.sock\nhost another-machine\n";
  const RunRecord elsewhere = ReadRun(away);
  EXPECT_EQ(elsewhere.state, "elsewhere");
  EXPECT_EQ(elsewhere.host, "another-machine");
}

TEST_F(RunRecordTest, WhatIsBrokenIsNamedAndTheOthersAreListed) {
  Make("good", kConfig, "{\"env_steps\":20}\n", "", 50);
  Make("no_yaml", "{[", "{\"env_steps\":20}\n", "", 10);
  Make("no_key", "algorithm: {name: ippo, lrr: 1}\n", "", "", 20);
  Make("no_json", kConfig, "env_steps\n", "[1]", 30);
  Make("huge", std::string((1 << 20) + 1, '#'), std::string(100'000, 'x'), std::string((1 << 20) + 1, ' '), 40);
  const std::string odd = Make("odd", kConfig, "", "", 60);
  fs::remove(odd + "/config.yaml");
  ASSERT_EQ(mkfifo((odd + "/config.yaml").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", odd + "/progress.jsonl");
  fs::create_directory(folder_.path() + "/not_a_run");
  std::ofstream(folder_.path() + "/notes.txt") << "x";
  const auto listing = ListRuns(folder_.path());
  ASSERT_TRUE(listing.ok()) << listing.status();
  std::map<std::string, RunRecord> runs;
  for (const RunRecord& run : listing->runs) runs[run.name] = run;
  ASSERT_EQ(runs.size(), 6U);
  EXPECT_THAT(runs["good"].problems, IsEmpty());
  EXPECT_EQ(runs["no_yaml"].problems.size(), 1U);
  EXPECT_EQ(runs["no_yaml"].env_steps, 20) << "what can be read is told";
  EXPECT_THAT(runs["no_key"].problems, ElementsAre(HasSubstr("lrr")));
  EXPECT_THAT(runs["no_json"].problems, ElementsAre(HasSubstr("no JSON object"), HasSubstr("summary.json")));
  EXPECT_THAT(runs["huge"].problems,
              ElementsAre(HasSubstr("config.yaml"), "progress.jsonl has no whole line in its last 64 KiB",
                          HasSubstr("summary.json")));
  EXPECT_THAT(runs["odd"].problems,
              ElementsAre(HasSubstr("config.yaml"), HasSubstr("progress.jsonl cannot be read: ")));
  EXPECT_THAT(listing->others, ElementsAre("not_a_run", "notes.txt"));
  EXPECT_EQ(listing->num_others, 2U);
  EXPECT_EQ(ListRuns(folder_.path() + "/nothing").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RunRecordTest, ARunThatHasWrittenNoWholeLineYetHasNoProblem) {
  EXPECT_THAT(ReadRun(Make("begins", kConfig, "{\"env_st", "")).problems, IsEmpty());
  const std::string path = Make("empty", kConfig, "", "");
  std::ofstream(path + "/progress.jsonl").flush();
  EXPECT_THAT(ReadRun(path).problems, IsEmpty());
}

TEST_F(RunRecordTest, NoMoreEntriesThanTheFirstAreLookedAt) {
  Make("run", kConfig, "", "");
  for (size_t i = 1; i < RunListing::kMostEntries; ++i) std::ofstream(folder_.path() + "/" + std::to_string(i)).flush();
  const auto whole = ListRuns(folder_.path());
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_FALSE(whole->is_cut);
  EXPECT_EQ(whole->runs.size(), 1U);
  EXPECT_EQ(whole->num_others, RunListing::kMostEntries - 1);
  EXPECT_THAT(whole->others, ElementsAre("1", "10", "100", "1000", "10000"));
  std::ofstream(folder_.path() + "/one more").flush();
  const auto cut = ListRuns(folder_.path());
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_TRUE(cut->is_cut);
  EXPECT_EQ(cut->runs.size() + cut->num_others, RunListing::kMostEntries);
}

TEST_F(RunRecordTest, NoMoreThanTheNewestAreRead) {
  for (size_t i = 0; i < RunListing::kMostRuns + 3; ++i) {
    const std::string path = folder_.path() + "/" + std::to_string(i);
    fs::create_directory(path);
    std::ofstream(path + "/config.yaml") << "[";
  }
  fs::last_write_time(folder_.path() + "/5/config.yaml", fs::file_time_type::clock::now() + std::chrono::hours(1));
  const auto listing = ListRuns(folder_.path());
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->runs.size(), RunListing::kMostRuns);
  EXPECT_EQ(listing->left_out, 3U);
  EXPECT_EQ(listing->runs[0].name, "5");
}

}  // namespace
}  // namespace troupe::cli
