#include "lib/learner/train_chooser.h"

#include <utility>
#include <vector>

#include "lib/learner/testing/test_run.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using testing::ElementsAre;
using testing::Pair;

/// Says no to every second batch.
class Chooser final : public TrainChooser {
 public:
  std::vector<bool> Choose(const BatchFacts& batch) override {
    heard.push_back(batch);
    return std::vector<bool>(batch.policies.size(), batch.updates % 2 == 0);
  }
  std::vector<BatchFacts> heard;
};

TEST(TrainChooserTest, IsAskedForEachBatchAndWhoDoesNotTrainIsCountedAllTheSame) {
  Chooser chooser;
  TestRun run([](LearnerConfig&) {}, &chooser);
  ASSERT_TRUE(run.learner_->Start().ok());
  const auto worker = run.Join();
  for (int64_t update = 0; update < 3; ++update) {
    run.Work(*worker);
    ASSERT_EQ(run.Step().kind, StepOutcome::Kind::kUpdated);
    EXPECT_THAT(run.trainer_->last_train(), ElementsAre(update % 2 == 0));
    ASSERT_EQ(chooser.heard.size(), static_cast<size_t>(update) + 1);
    const BatchFacts& batch = chooser.heard.back();
    EXPECT_EQ(batch.updates, update);
    EXPECT_EQ(batch.env_steps, 40);
    ASSERT_EQ(batch.policies.size(), 1u);
    EXPECT_EQ(batch.policies[0].id, policy::PolicyId("shared"));
    EXPECT_EQ(batch.policies[0].rows, 80);
    EXPECT_THAT(batch.policies[0].agents, ElementsAre(Pair("agent_0", 40), Pair("agent_1", 40)));
    EXPECT_THAT(batch.active, ElementsAre(policy::PolicyId("shared")));
  }
  const learner::LearnerStatus status = run.learner_->Status();
  EXPECT_EQ(status.progress.env_steps, 120);
  EXPECT_EQ(status.progress.rows.trained, 240) << "as rows of policies that do not train are";
}

TEST(TrainChooserTest, NobodyIsAskedOfWhoDoesNotTrainAnyway) {
  Chooser chooser;
  TestRun run([](LearnerConfig& config) { config.options.trains = {false}; }, &chooser);
  ASSERT_TRUE(run.learner_->Start().ok());
  const auto worker = run.Join();
  run.Work(*worker);
  ASSERT_EQ(run.Step().kind, StepOutcome::Kind::kUpdated);
  ASSERT_EQ(chooser.heard.size(), 1u);
  EXPECT_TRUE(chooser.heard[0].policies.empty());
  EXPECT_THAT(chooser.heard[0].active, ElementsAre(policy::PolicyId("shared")));
  EXPECT_THAT(run.trainer_->last_train(), ElementsAre(false));
}

}  // namespace
}  // namespace troupe::learner
