#include "lib/cli/run_curves.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

RunRecord WithKeys(std::map<std::string, std::string> keys) {
  RunRecord run;
  run.keys = std::move(keys);
  return run;
}

TEST(RunCurvesTest, ACurveIsReadFromLines) {
  const storage::ScratchDirectory folder;
  std::ofstream(folder.path() + "/progress.jsonl")
      << "{\"env_steps\":10,\"return_sum\":null,\"updates\":1}\n{\"env_steps\":20,\"return_sum\":1}\nnot json\n"
      << "{\"env_steps\":30,\"return_sum\":2}\n{\"env_steps\":40,\"return_sum\":9}\n"
      << "{\"env_steps\":30,\"return_sum\":3}\n{\"env_steps\":50,\"return_sum\":5}\n{\"env_steps\":60,\"retu";
  const auto curve = ReadCurve(folder.path(), "return_sum", "env_steps", kMostPoints);
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_THAT(curve->x, ElementsAre(20, 30, 50)) << "what was trained again after a resume counts";
  EXPECT_THAT(curve->values, ElementsAre(1, 3, 5));
  EXPECT_EQ(curve->At(40), 4);
  EXPECT_EQ(curve->At(20), 1);
  EXPECT_EQ(curve->At(19), std::nullopt);
  EXPECT_EQ(curve->At(51), std::nullopt);
  // A run's files may hold any numbers; of these sums and squares would be none.
  const storage::ScratchDirectory odd;
  std::ofstream(odd.path() + "/progress.jsonl")
      << "{\"env_steps\":-1,\"return_sum\":1}\n{\"env_steps\":1,\"return_sum\":1e300}\n"
      << "{\"env_steps\":2,\"return_sum\":-1e99}\n{\"env_steps\":1e300,\"return_sum\":1}\n";
  const auto kept = ReadCurve(odd.path(), "return_sum", "env_steps", kMostPoints);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->x, ElementsAre(2));
  const absl::Status missing = ReadCurve(folder.path(), "return_som", "env_steps", kMostPoints).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("the nearest is \"return_sum\""));
  EXPECT_EQ(ReadCurve(folder.path() + "/none", "return_sum", "env_steps", kMostPoints).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(RunCurvesTest, WhatWasTrainedAgainIsGoneWhereTheNewLinesLackTheMetric) {
  const storage::ScratchDirectory folder;
  std::ofstream file(folder.path() + "/progress.jsonl");
  file << "{\"env_steps\":10}\n{\"env_steps\":20,\"seldom\":2}\n{\"env_steps\":30}\n{\"env_steps\":40,\"seldom\":4}\n"
       << "{\"env_steps\":20}\n{\"env_steps\":30,\"seldom\":null}\n"
       << std::flush;
  const auto curve = ReadCurve(folder.path(), "seldom", "env_steps", kMostPoints);
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_THAT(curve->x, ElementsAre(20)) << "a line of the same step without it leaves it";
  file << "{\"env_steps\":50,\"seldom\":5}\n" << std::flush;
  const auto later = ReadCurve(folder.path(), "seldom", "env_steps", kMostPoints);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_THAT(later->x, ElementsAre(20, 50));
  EXPECT_THAT(later->values, ElementsAre(2, 5));
  file << "{\"env_steps\":15}\n" << std::flush;
  const absl::Status none = ReadCurve(folder.path(), "seldom", "env_steps", kMostPoints).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("were trained again, and none has it since then"));
}

TEST(RunCurvesTest, OfManyMetricsTheFirstAreNamed) {
  const storage::ScratchDirectory folder;
  std::ofstream(folder.path() + "/progress.jsonl")
      << "{\"m0\":0,\"m1\":0,\"m2\":0,\"m3\":0,\"m4\":0,\"m5\":0,\"m6\":0,\"m7\":0,\"m8\":0,\"m9\":0}\n";
  const absl::Status missing = ReadCurve(folder.path(), "return_sum", "env_steps", kMostPoints).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("there are m0, m1, m2, m3, m4, m5, m6, m7 and 2 more"));
}

TEST(RunCurvesTest, FilesAndLinesHaveALargestSize) {
  const storage::ScratchDirectory folder;
  const std::string path = folder.path() + "/progress.jsonl";
  std::ofstream(path) << "{\"a\":\"" << std::string(kMostLineBytes + (2 << 20), 'x') << "\",\"env_steps\":1,\"r\":1}\n"
                      << "{\"env_steps\":2,\"r\":2}\n";
  const auto curve = ReadCurve(folder.path(), "r", "env_steps", kMostPoints);
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_THAT(curve->x, ElementsAre(2));
  std::filesystem::resize_file(path, static_cast<uintmax_t>(kMostProgressBytes) + 1);  // a hole
  EXPECT_EQ(ReadCurve(folder.path(), "r", "env_steps", kMostPoints).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(RunCurvesTest, CurvesTogetherHaveAMostOfPoints) {
  const storage::ScratchDirectory folder;
  std::ofstream(folder.path() + "/progress.jsonl")
      << "{\"env_steps\":1,\"r\":1}\n{\"env_steps\":2,\"r\":2}\n{\"env_steps\":2,\"r\":3}\n";
  const auto whole = ReadCurve(folder.path(), "r", "env_steps", 2);
  ASSERT_TRUE(whole.ok()) << "of a step that was trained again one is kept: " << whole.status();
  EXPECT_THAT(whole->values, ElementsAre(1, 3));
  const absl::Status too_many = ReadCurve(folder.path(), "r", "env_steps", 1).status();
  EXPECT_EQ(too_many.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(too_many.message()), HasSubstr("expected at most 10000000 of all runs together"));
}

TEST(RunCurvesTest, OfManyKeysALabelHasThoseThatDiffer) {
  std::vector<RunRecord> runs;
  for (int i = 0; i < 20; ++i) {
    std::map<std::string, std::string> keys = {{"algorithm.lr", std::to_string(i)}};
    for (int key = 0; key < 300; ++key) keys["key." + std::to_string(key)] = "same";
    runs.push_back(WithKeys(std::move(keys)));
  }
  const std::vector<RunGroup> groups = GroupRuns(runs);
  ASSERT_EQ(groups.size(), 20u);
  EXPECT_EQ(groups[19].label, "algorithm.lr: 19");
}

TEST(RunCurvesTest, AMeanHasStudentsInterval) {
  const SeedMean mean = MeanOf({1, 2, 3, 4});
  EXPECT_EQ(mean.mean, 2.5);
  // scipy.stats.t.interval(0.95, 3, 2.5, scipy.stats.sem([1, 2, 3, 4])): (0.4457, 4.5543)
  ASSERT_TRUE(mean.half_width.has_value());
  EXPECT_NEAR(*mean.half_width, 2.0543, 5e-4);
  EXPECT_EQ(MeanOf({3}).half_width, std::nullopt);
  EXPECT_EQ(MeanOf({}).seeds, 0U);
  // scipy.stats.t.ppf(0.975, n)
  EXPECT_NEAR(StudentT(1), 12.706, 1e-3);
  EXPECT_NEAR(StudentT(30), 2.0423, 5e-4);
  EXPECT_NEAR(StudentT(31), 2.0395, 5e-4);
  EXPECT_NEAR(StudentT(1000), 1.9623, 5e-4);
}

TEST(RunCurvesTest, RunsOfAGroupDifferByTheirSeed) {
  const std::vector<RunRecord> runs = {
      WithKeys({{"seed", "1"}, {"algorithm.lr", "0.1"}, {"experiment.experiment_name", "a"}, {"gamma", "1"}}),
      WithKeys({{"seed", "1"}, {"algorithm.lr", "0.2"}, {"experiment.experiment_name", "b"}, {"gamma", "1"}}),
      WithKeys({{"seed", "2"}, {"algorithm.lr", "0.1"}, {"stop.env_steps", "9"}, {"gamma", "1"}}),
      WithKeys({{"seed", "2"}, {"algorithm.lr", "0.2"}, {"gamma", "1"}, {"env.args.N", "3"}})};
  const std::vector<RunGroup> groups = GroupRuns(runs);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_THAT(groups[0].runs, ElementsAre(0, 2));
  EXPECT_EQ(groups[0].label, "algorithm.lr: 0.1, env.args.N: -");
  EXPECT_EQ(groups[2].label, "algorithm.lr: 0.2, env.args.N: 3");
  const std::vector<RunRecord> alike = {runs[0], runs[2]};
  EXPECT_EQ(GroupRuns(alike)[0].label, "");
  std::vector<RunRecord> far_apart = {runs[0], runs[1]};
  for (size_t i = 0; i < 2; ++i) {
    far_apart[i].name = i == 0 ? "first" : "second";
    far_apart[i].keys["env.name"] = std::string(kMostLabelBytes, i == 0 ? 'x' : 'y');
  }
  EXPECT_EQ(GroupRuns(far_apart)[1].label, "second");
  RunRecord unread;
  unread.name = "unread";
  const std::vector<RunRecord> with_unread = {runs[0], unread};
  ASSERT_EQ(GroupRuns(with_unread).size(), 2U);
  EXPECT_EQ(GroupRuns(with_unread)[1].label, "unread");
}

TEST(RunCurvesTest, ABandIsWhereAllCurvesAre) {
  const std::vector<Curve> curves = {{{0, 10}, {0, 10}}, {{5, 20}, {7, 22}}};
  const auto band = BandOf(curves, 3);
  ASSERT_TRUE(band.ok());
  EXPECT_THAT(band->x, ElementsAre(5, 7.5, 10));
  EXPECT_THAT(band->mean, ElementsAre(DoubleNear(6, 1e-9), DoubleNear(8.5, 1e-9), DoubleNear(11, 1e-9)));
  EXPECT_NEAR(band->high[0] - band->mean[0], 12.706, 1e-3);
  const auto single = BandOf({curves.data(), 1}, 3);
  EXPECT_THAT(single->x, ElementsAre(0, 10));
  EXPECT_TRUE(single->low.empty());
  const std::vector<Curve> apart = {{{0, 1}, {0, 1}}, {{2, 3}, {0, 1}}};
  EXPECT_EQ(BandOf(apart).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RunCurvesTest, WhereRewardsDifferPoliciesAreCompared) {
  const RunGroup group{.label = "", .runs = {1, 2}};
  std::vector<RunRecord> runs(3);
  EXPECT_THAT(UsualMetrics(group, runs), ElementsAre("return_sum")) << "none has begun";
  runs[2].last_line =
      "{\"return_sum\":0,\"policy/a/return_mean\":1,\"policy/a/return_min\":1,\"policy/b/return_mean\":2}";
  EXPECT_THAT(UsualMetrics(group, runs), ElementsAre("return_sum"));
  runs[2].rewards_differ = true;
  EXPECT_THAT(UsualMetrics(group, runs), ElementsAre("policy/a/return_mean", "policy/b/return_mean"))
      << "the first of the group has not begun";
  runs[1].last_line = "{";
  for (char policy = 'a'; policy < 'j'; ++policy) {
    runs[1].last_line += std::string("\"policy/") + policy + "/return_mean\":1,";
  }
  runs[1].last_line += "\"return_sum\":0}";
  runs[1].rewards_differ = true;
  const std::vector<std::string> metrics = UsualMetrics(group, runs);
  ASSERT_EQ(metrics.size(), kMostPolicies);
  EXPECT_EQ(metrics.back(), "policy/f/return_mean");
}

}  // namespace
}  // namespace troupe::cli
