#include "lib/config/ingest_budget.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/learner/feed.h"
#include "lib/learner/ingest.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using IngestBudgetTest = ResolveFixture;

/// The number that follows `words`.
int64_t NumberAfter(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  int64_t number = -1;
  if (at == std::string::npos) return number;
  const size_t begin = at + words.size();
  EXPECT_TRUE(absl::SimpleAtoi(text.substr(begin, text.find_first_not_of("0123456789", begin) - begin), &number));
  return number;
}

TEST_F(IngestBudgetTest, AutoIsEnoughForTheBatches) {
  EXPECT_EQ(Resolve("env: {name: team}").learner.ingest_budget_bytes, kLeastAutoIngestBudgetBytes);
  // 4 million env steps of three small agents take more than that.
  const std::string yaml = "env: {name: team}\nalgorithm: {train_batch_size: 4000000}";
  const int64_t budget = Resolve(yaml).learner.ingest_budget_bytes;
  EXPECT_GT(budget, kLeastAutoIngestBudgetBytes);
  EXPECT_LT(budget, kMostAutoIngestBudgetBytes);
  EXPECT_EQ(Resolve(yaml, {absl::StrCat("learner.ingest_budget_bytes=", budget)}).learner.ingest_budget_bytes, budget);
  const std::string less = ErrorOf(yaml, {absl::StrCat("learner.ingest_budget_bytes=", budget - 1)});
  EXPECT_EQ(NumberAfter(less, "expected at least "), budget) << "no more than it takes";
}

// Each row may begin a segment, with what was remembered before it: two layers of 256 units, output and cell.
TEST_F(IngestBudgetTest, WhatActorsRememberCounts) {
  const auto budget = [this](const std::string& core) {
    return Resolve("env: {name: team}\nalgorithm: {train_batch_size: 1000000}\nmodel: {core_size: 256, core_layers: 2}",
                   {"model." + core})
        .learner.ingest_budget_bytes;
  };
  EXPECT_GE(budget("actor_core=lstm"), int64_t{1000000} * 3 * 2 * 2 * 256 * 4);
  EXPECT_GE(budget("actor_core=gru"), int64_t{1000000} * 3 * 2 * 256 * 4);
  EXPECT_LT(budget("actor_core=gru"), budget("actor_core=lstm"));
  EXPECT_LT(budget("critic_core=lstm"), 2 * kLeastAutoIngestBudgetBytes) << "a critic's memory is the learner's";
}

TEST_F(IngestBudgetTest, OneThatIsTooSmallNamesTheBatchThatFits) {
  for (const char* const more : {"seed=1", "algorithm.max_policy_lag=1", "multi_agent.count_steps_by=agent_steps"}) {
    const std::vector<std::string> overrides = {"algorithm.train_batch_size=800000",
                                                "learner.ingest_budget_bytes=30000000", more};
    const std::string error = ErrorOf("env: {name: team}", overrides);
    EXPECT_NE(error.find("--set learner.ingest_budget_bytes=30000000: learner.ingest_budget_bytes: got 30000000"),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("and auto is as much as it takes"), std::string::npos) << error;
    const int64_t fits = NumberAfter(error, "(algorithm.train_batch_size) of at most ");
    ASSERT_GT(fits, 0) << error;
    const auto with_batch = [&](int64_t batch) {
      std::vector<std::string> changed = overrides;
      changed[0] = absl::StrCat("algorithm.train_batch_size=", batch);
      return changed;
    };
    EXPECT_EQ(ErrorOf("env: {name: team}", with_batch(fits)), "OK");
    EXPECT_NE(ErrorOf("env: {name: team}", with_batch(fits + 1)), "OK");
  }
}

TEST_F(IngestBudgetTest, AutoIsWhatALearnerTakes) {
  for (const int workers : {1, 127, 256, 1000}) {
    for (const int batch : {8000, 1000000}) {
      for (const char* const more :
           {"seed=1", "algorithm.max_policy_lag=1", "multi_agent.count_steps_by=agent_steps"}) {
        const ResolvedRun run =
            Resolve("env: {name: team}\nnum_envs_per_worker: 1",
                    {absl::StrCat("num_workers=", workers), absl::StrCat("algorithm.train_batch_size=", batch), more});
        const absl::Status checked = learner::Ingest::CheckBudget(run.learner, run.schema, sample::BatchLimits(),
                                                                  learner::AheadFor(run.learner.max_policy_lag));
        EXPECT_TRUE(checked.ok()) << workers << " workers, batch " << batch << ", " << more << ": " << checked;
      }
    }
  }
}

TEST_F(IngestBudgetTest, AutoHasABound) {
  const std::string error = ErrorOf("env: {name: team}", {"algorithm.train_batch_size=1000000000"});
  EXPECT_NE(
      error.find("default: learner.ingest_budget_bytes: got auto, which is at most 17179869184, expected at least "),
      std::string::npos)
      << error;
  EXPECT_GT(NumberAfter(error, "(algorithm.train_batch_size) of at most "), 4000000) << error;
  EXPECT_NE(ErrorOf("env: {name: team}", {"learner.ingest_budget_bytes=1048576"}).find("no batch would fit"),
            std::string::npos);
}

}  // namespace
}  // namespace troupe::config
