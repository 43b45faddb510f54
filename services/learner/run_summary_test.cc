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

}  // namespace
}  // namespace troupe::services
