#include "services/learner/run_summary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::services {
namespace {

TEST(RunSummaryTest, WhatWasNotWrittenAtTheEndIsSaid) {
  RunSummary summary;
  summary.directory = "runs/run";
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["degraded"], nlohmann::json::array());
  EXPECT_EQ(SummaryText(summary).find("DEGRADED"), std::string::npos);
  summary.degraded = {"progress.jsonl cannot be written: No space left on device; 3 lines wait"};
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["degraded"], nlohmann::json(summary.degraded));
  EXPECT_NE(SummaryText(summary).find("DEGRADED: progress.jsonl cannot be written: No space left on device; 3 lines "
                                      "wait\nresults in runs/run\n"),
            std::string::npos)
      << SummaryText(summary);
}

TEST(RunSummaryTest, FailedEpisodesAndAFailedEvaluationAreSaid) {
  RunSummary summary;
  EXPECT_EQ(SummaryText(summary).find("ailed"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(SummaryJson(summary))["evaluation_error"].is_null());
  summary.progress.env_counters.errors = 12;
  summary.evaluation_error = "episode 3 failed 10 times";
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["env_errors"], 12);
  EXPECT_EQ(json["env_timeouts"], 0);
  EXPECT_EQ(json["evaluation_error"], "episode 3 failed 10 times");
  EXPECT_NE(SummaryText(summary).find("12 episodes failed: "), std::string::npos);
  EXPECT_NE(SummaryText(summary).find("evaluation FAILED: episode 3 failed 10 times\n"), std::string::npos);
}

}  // namespace
}  // namespace troupe::services
