#include "lib/run/learner/run_reporter.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::run {
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
    Open(run);
  }
  ~RunReporterTest() override { fs::remove_all(directory_); }

  void Open(const config::ResolvedRun& run) {
    auto reporter = RunReporter::Open(run, "run", directory_.string(), 0, {&degradations_, &clock_});
    EXPECT_TRUE(reporter.ok()) << reporter.status();
    reporter_ = *std::move(reporter);
  }
  void Update(int64_t env_steps) {
    learner::ProgressRecord record;
    record.env_steps = env_steps;
    reporter_->Scalar("Loss/Policy loss", 0.5, env_steps);
    reporter_->OnProgress(record);
    reporter_->Settle();
  }
  std::vector<std::string> Lines() const {
    std::ifstream in(directory_ / "progress.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  const fs::path directory_;
  base::FakeClock clock_;
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

TEST_F(RunReporterTest, MemoryOfALineIsAtMostASecondOld) {
  Update(100);
  const std::vector<char> more(64 << 20, 'x');
  clock_.Advance(absl::Milliseconds(999));
  Update(200);
  clock_.Advance(absl::Milliseconds(1));
  Update(300);
  std::vector<int64_t> rss_bytes;
  for (const std::string& line : Lines()) rss_bytes.push_back(nlohmann::json::parse(line)["rss_bytes"].get<int64_t>());
  ASSERT_EQ(rss_bytes.size(), 3u);
  EXPECT_EQ(rss_bytes[1], rss_bytes[0]);
  EXPECT_GT(rss_bytes[2], rss_bytes[1] + static_cast<int64_t>(more.size()) / 2);
}

TEST_F(RunReporterTest, AnUpdateThatChangedNothingIsDegraded) {
  learner::ProgressRecord record;
  record.env_steps = 100;
  std::vector<learner::PolicyUpdateReport> reports(3);
  reports[0].minibatch_steps = 8;
  reports[1].minibatch_steps = 7;
  reports[1].skipped_steps = 1;
  reports[2].skipped_steps = 8;
  record.policies = std::make_shared<const std::vector<learner::PolicyUpdateReport>>(reports);
  reporter_->OnProgress(record);
  EXPECT_EQ(degradations_.List(),
            std::vector<std::string>{"the last update changed nothing in 1 of 3 policies: losses or gradients are not "
                                     "finite"});
  reports[2].minibatch_steps = 1;
  record.policies = std::make_shared<const std::vector<learner::PolicyUpdateReport>>(reports);
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

// A run that is planned for 100 M env steps and ended after 12 s had one line.
TEST_F(RunReporterTest, ALineIsDueAfterAWhileHoweverFarTheNextMultipleIs) {
  config::ResolvedRun run;
  run.experiment.write_interval_env_steps = 1'000'000;
  run.experiment.longest_write_pause = absl::Seconds(5);
  Open(run);
  std::vector<int64_t> written;
  for (int64_t second = 1; second <= 12; ++second) {
    clock_.Advance(absl::Seconds(1));
    Update(2000 * second);
  }
  for (const std::string& line : Lines()) written.push_back(nlohmann::json::parse(line)["env_steps"].get<int64_t>());
  EXPECT_EQ(written, (std::vector<int64_t>{10'000, 20'000}));
  // By the multiple as well, and the pause begins with the last line.
  Update(1'000'000);
  clock_.Advance(absl::Seconds(4.9));
  Update(1'000'100);
  EXPECT_EQ(Lines().size(), 3u);
  run.experiment.longest_write_pause = absl::InfiniteDuration();
  Open(run);
  clock_.Advance(absl::Hours(1000));
  Update(2000);
  EXPECT_TRUE(Lines().empty()) << "an interval of one's own is kept; the lines of before were rolled back";
}

learner::ProgressRecord Rivals() {
  std::vector<policy::PolicySpec> specs(2, sample::SimpleSchema().policies[policy::PolicySlot(0)]);
  specs[0].id = policy::PolicyId("hunter");
  specs[1].id = policy::PolicyId("runner");
  learner::ProgressRecord record;
  record.env_steps = 100;
  record.table =
      *policy::PolicyTable::Make(specs, {true, true}, {{"*", {{specs[0].id}}}}, {"agent_0", "agent_1", "agent_2"});
  record.window = learner::EpisodeStats(3, 2);
  record.window.Add(25, {2, 4, -6}, policy::SlotsForTesting({0, 0, 1}));
  record.window.Add(15, {1, -1, 0}, policy::SlotsForTesting({0, 0, 1}));
  record.return_sum = record.window.return_sum.mean();
  record.rewards_differ = true;
  std::vector<learner::PolicyUpdateReport> reports(1);
  reports[0].trained_rows = 30;
  reports[0].metrics = {{"Loss/Value loss", 0.25}, {"Policy/Entropy", 1.5}};
  record.policies = std::make_shared<const std::vector<learner::PolicyUpdateReport>>(reports);
  return record;
}

TEST_F(RunReporterTest, ALineHasReturnsAndLossesByName) {
  config::ResolvedRun run;
  run.experiment.write_interval_env_steps = 100;
  run.schema = sample::SimpleSchema();
  Open(run);
  const learner::ProgressRecord record = Rivals();
  reporter_->OnProgress(record);
  reporter_->Settle();
  const nlohmann::json line = nlohmann::json::parse(Lines().at(0));
  EXPECT_EQ(line["return_sum"], 0);
  EXPECT_EQ(line["return_sum_min"], 0);
  EXPECT_EQ(line["episode_length_min"], 15);
  EXPECT_EQ(line["episode_length_max"], 25);
  EXPECT_EQ(line["rewards_differ"], true);
  EXPECT_TRUE(line["best_return"].is_null());
  EXPECT_EQ(line["policy/hunter/return_mean"], 1.5);
  EXPECT_EQ(line["policy/hunter/return_min"], -1);
  EXPECT_EQ(line["policy/hunter/return_max"], 4);
  EXPECT_EQ(line["policy/runner/return_mean"], -3);
  EXPECT_EQ(line["policy/hunter/Loss/Value loss"], 0.25);
  EXPECT_EQ(line["policy/hunter/rows"], 30);
  EXPECT_FALSE(line.contains("policy/hunter/Policy/Entropy")) << "TensorBoard has it";
  EXPECT_EQ(line["agent/agent_2/return_mean"], -3);

  rollout::EvaluationResult evaluation;
  evaluation.agents.resize(3);
  evaluation.each.resize(1);
  evaluation.each[0].length = 7;
  evaluation.each[0].returns = {1, 1, std::numeric_limits<double>::quiet_NaN()};
  evaluation.each[0].policies = policy::SlotsForTesting({0, 1, -1});
  learner::ProgressRecord next = Rivals();
  next.env_steps = 200;
  reporter_->OnProgress(next);
  reporter_->OnEvaluation(evaluation, *record.table, 200);
  reporter_->Settle();
  const nlohmann::json second = nlohmann::json::parse(Lines().at(1));
  EXPECT_EQ(second["env_steps"], 200) << "an evaluation stands in the line of its own env step";
  EXPECT_EQ(second["evaluation_return_sum"], 2);
  EXPECT_EQ(second["evaluation_return_mean"], 1);
  EXPECT_EQ(second["evaluation_episode_length_max"], 7);
  EXPECT_EQ(second["evaluation/policy/runner/return_mean"], 1);
  EXPECT_EQ(second["evaluation/agent/agent_1/return_max"], 1);
  EXPECT_FALSE(second.contains("evaluation/agent/agent_2/return_mean")) << "it never appeared";
  EXPECT_FALSE(nlohmann::json::parse(Lines().at(0)).contains("evaluation_return_sum"));
}

rollout::EvaluationResult OneEpisode(float first, float second) {
  rollout::EvaluationResult evaluation;
  evaluation.agents.resize(2);
  evaluation.each.resize(1);
  evaluation.each[0].length = 7;
  evaluation.each[0].returns = {first, second};
  evaluation.each[0].policies = policy::SlotsForTesting({0, 1});
  return evaluation;
}

std::string AllOf(const fs::path& directory, const char* prefix) {
  std::string all;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!absl::StartsWith(entry.path().filename().string(), prefix)) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

// The evaluation of the last weights, which papers quote, was in no line; the others came a line late.
TEST_F(RunReporterTest, EachEvaluationHasALineOfItsOwnEnvStep) {
  const learner::ProgressRecord record = Rivals();
  Update(100);
  Update(130);  // no line is due
  reporter_->OnEvaluation(OneEpisode(1, 2), *record.table, 130);
  reporter_->Settle();
  Update(200);
  reporter_->OnEvaluation(OneEpisode(3, 4), *record.table, 200);  // that of the end: the line is written
  reporter_->Finish();
  std::vector<std::pair<int64_t, double>> evaluated;
  for (const std::string& text : Lines()) {
    const nlohmann::json line = nlohmann::json::parse(text);
    evaluated.emplace_back(line["env_steps"], line.value("evaluation_return_sum", -1.0));
    for (const char* const always : {"updates", "return_sum", "rows_trained"}) EXPECT_TRUE(line.contains(always));
  }
  EXPECT_EQ(evaluated, (std::vector<std::pair<int64_t, double>>{{100, -1}, {130, 3}, {200, -1}, {200, 7}}));
  ASSERT_FALSE(reporter_->evaluation_values().empty());
  const std::string events = AllOf(directory_, "events.");
  for (const auto& [name, value] : reporter_->evaluation_values()) {
    EXPECT_NE(events.find(name), std::string::npos) << name << " has another name in TensorBoard";
  }
  EXPECT_NE(events.find("Test-Results/Episode-Rewards/Mean-Score"), std::string::npos) << "the older name";
}

// With callbacks the last line was written twice, whatever they did.
TEST_F(RunReporterTest, SettingsOfALiveRunHaveTheirLine) {
  Update(100);
  reporter_->OnSettings({policy::PolicyId("a"), {"algorithm.lr=0.5", "algorithm.gamma=0.9"}});
  reporter_->OnSettings({policy::PolicyId("b"), {"algorithm.lr=1"}});
  reporter_->Settle();
  Update(200);
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_FALSE(nlohmann::json::parse(lines[0]).contains("settings"));
  const nlohmann::json told = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(told["env_steps"], 100);
  EXPECT_EQ(told["settings"], "a algorithm.lr=0.5; a algorithm.gamma=0.9; b algorithm.lr=1");
  EXPECT_FALSE(nlohmann::json::parse(lines[2]).contains("settings"));
}

TEST_F(RunReporterTest, TheLastLineIsRepeatedForNewsAlone) {
  std::vector<learner::NamedValue> tracked;
  double errors = 0;
  const auto open = [&] {
    config::ResolvedRun run;
    run.experiment.write_interval_env_steps = 100;
    RunReporter::Deps deps{&degradations_, &clock_};
    deps.tracked = [&] {
      std::vector<learner::NamedValue> values = std::exchange(tracked, {});
      values.push_back({"callback_errors", "Callbacks/Errors", errors});
      return values;
    };
    reporter_ = *RunReporter::Open(run, "run", directory_.string(), 0, std::move(deps));
  };
  open();
  learner::ProgressRecord record;
  record.env_steps = 100;
  reporter_->OnProgress(record);
  tracked = {{"Custom/speed", "Custom/speed", 5}};  // before its line is settled
  reporter_->Settle();
  reporter_->Finish();
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(Lines()[0])["Custom/speed"], 5);
  EXPECT_EQ(nlohmann::json::parse(Lines()[0])["callback_errors"], 0);
  for (const bool by_error : {false, true}) {
    fs::remove(directory_ / "progress.jsonl");
    open();
    Update(100);
    if (by_error) {
      ++errors;
    } else {
      tracked = {{"Custom/end", "Custom/end", 6}};
    }
    reporter_->Finish();
    ASSERT_EQ(Lines().size(), 2u) << "what came after the line would be lost";
    EXPECT_EQ(nlohmann::json::parse(Lines()[1]).contains("Custom/end"), !by_error);
  }
}

TEST_F(RunReporterTest, APolicyThatLosesRowsIsDegraded) {
  learner::ProgressRecord record;
  record.env_steps = 100;
  record.losing_rows = {"policy \"a\" lost 9 of 10 rows", "policy \"b\" lost 8 of 10 rows"};
  reporter_->OnProgress(record);
  EXPECT_EQ(degradations_.List(), std::vector<std::string>{"policy \"a\" lost 9 of 10 rows. policy \"b\" lost 8 of 10 "
                                                           "rows"});
  record.losing_rows = {};
  reporter_->OnProgress(record);
  EXPECT_TRUE(degradations_.List().empty());
}

TEST_F(RunReporterTest, PeopleSeeTheLearningRateBesideTheLosses) {
  testing::internal::CaptureStdout();
  config::ResolvedRun run;
  run.schema = sample::SimpleSchema();
  Open(run);
  learner::ProgressRecord record = Rivals();
  record.losses = {{"Policy/Learning rate", 7e-4}, {"Policy/Critic learning rate", 1e-3}, {"Policy/KL", 0.01}};
  reporter_->OnProgress(record);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_NE(shown.find("kl 0.01"), std::string::npos) << shown;
  EXPECT_NE(shown.find("  lr 0.0007  "), std::string::npos) << shown;
}

}  // namespace
}  // namespace troupe::run
