#include "lib/learner/training_stats.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using testing::ElementsAre;
using testing::Pair;

PolicyUpdateReport Report(int32_t slot, int64_t rows, double loss, double seconds) {
  PolicyUpdateReport report;
  report.policy = policy::PolicySlot(slot);
  report.trained_rows = rows;
  report.train_time_s = seconds;
  if (rows > 0) report.metrics = {{"Loss/Policy loss", loss}, {"Policy/Entropy", 2 * loss}};
  return report;
}

TEST(TrainingStatsTest, MeansAreOverThePoliciesThatTrained) {
  const std::vector<PolicyUpdateReport> reports = {Report(0, 10, 1, 0), Report(1, 0, 100, 0), Report(2, 90, 3, 0)};
  EXPECT_THAT(MeanMetrics(reports), ElementsAre(Pair("Loss/Policy loss", 2.0), Pair("Policy/Entropy", 4.0)));
  EXPECT_TRUE(MeanMetrics({}).empty());
}

TEST(TrainingStatsTest, TrainTimesAreJoinedAsAsked) {
  const std::vector<PolicyUpdateReport> reports = {Report(0, 10, 1, 2.0), Report(1, 0, 0, 0), Report(2, 5, 1, 5.0),
                                                   Report(3, 5, 1, 0.5)};
  EXPECT_EQ(JoinTrainTimes(reports, TrainTimeAggregator::kMin), 0.5);
  EXPECT_EQ(JoinTrainTimes(reports, TrainTimeAggregator::kMax), 5.0);
  EXPECT_EQ(JoinTrainTimes(reports, TrainTimeAggregator::kMean), 2.5);
  EXPECT_EQ(JoinTrainTimes({reports[1]}, TrainTimeAggregator::kMax), std::nullopt);
}

TEST(TrainingStatsTest, AnAgentHasTheLossesOfThePoliciesThatPlayedIt) {
  TrainBatch batch;
  batch.policies.resize(3);
  const auto add = [&](size_t policy, int32_t agent, int64_t rows) {
    TrainSegment segment;
    segment.slot = base::AgentSlot(agent);
    segment.rows = rows;
    batch.policies[policy].segments.push_back(segment);
  };
  add(0, 0, 10);
  add(0, 0, 20);
  add(0, 1, 5);
  add(1, 0, 10);
  add(2, 2, 7);  // does not train
  const std::vector<PolicyUpdateReport> reports = {Report(0, 35, 1, 0), Report(4, 10, 5, 0), Report(7, 0, 9, 0)};
  const std::vector<std::string> agents = {"x", "y", "z"};
  EXPECT_THAT(AgentLosses(batch, reports, agents),
              ElementsAre(Pair("x/Loss/Policy loss", (30 * 1.0 + 10 * 5.0) / 40), Pair("y/Loss/Policy loss", 1.0)));
}

TEST(TrainingStatsTest, APolicyTrainsOnDeadAgentsRowsAlone) {
  PolicyUpdateReport report = Report(0, 0, 0, 4.0);
  report.minibatch_steps = 3;
  report.metrics = {{"Loss/Value loss", 2}};
  EXPECT_EQ(JoinTrainTimes({report}, TrainTimeAggregator::kMean), 4.0);
  TrainBatch batch;
  batch.policies.resize(1);
  PolicyTrainBatch& policy = batch.policies[0];
  const std::vector<uint8_t> mask = {0, 0, 0};
  policy.agent_mask = mask;
  policy.segments.resize(2);
  policy.segments[0].rows = 2;
  policy.segments[1] = policy.segments[0];
  policy.segments[1].first_row = 2;
  policy.segments[1].rows = 1;
  policy.segments[1].slot = base::AgentSlot(1);
  policy.segments[1].trains = false;
  const std::vector<std::string> agents = {"x", "y"};
  EXPECT_THAT(AgentLosses(batch, {report}, agents), ElementsAre(Pair("x/Loss/Value loss", 2.0)));
  report.minibatch_steps = 0;
  EXPECT_TRUE(AgentLosses(batch, {report}, agents).empty());
}

TEST(TrainingStatsTest, AThousandAgentsDoNotFloodTheRun) {
  TrainBatch batch;
  batch.policies.resize(1);
  std::vector<std::string> agents;
  for (int32_t agent = 0; agent < 1000; ++agent) {
    agents.push_back(std::to_string(agent));
    TrainSegment segment;
    segment.slot = base::AgentSlot(agent);
    segment.rows = 1 + (agent * 7) % 1000;
    batch.policies[0].segments.push_back(segment);
  }
  const std::vector<PolicyUpdateReport> reports = {Report(0, 1, 1, 0)};
  const std::vector<TaggedValue> losses = AgentLosses(batch, reports, agents);
  ASSERT_EQ(losses.size(), kMaxAgentsWithLosses);
  for (const auto& [tag, value] : losses) {
    EXPECT_GE((std::stoi(tag) * 7) % 1000, 900) << tag << " has few rows";
  }
}

TEST(TrainingStatsTest, RowsThatAreMaskedOutAreNoPartOfAnAgentsLosses) {
  TrainBatch batch;
  batch.policies.resize(1);
  PolicyTrainBatch& policy = batch.policies[0];
  const std::vector<uint8_t> mask = {1, 1, 0, 0, 0};
  policy.agent_mask = mask;
  policy.segments.resize(2);
  policy.segments[0].rows = 3;
  policy.segments[1] = policy.segments[0];
  policy.segments[1].first_row = 3;
  policy.segments[1].rows = 2;
  policy.segments[1].slot = base::AgentSlot(1);
  const std::vector<PolicyUpdateReport> reports = {Report(0, 2, 1, 0)};
  const std::vector<std::string> agents = {"x", "y"};
  EXPECT_THAT(AgentLosses(batch, reports, agents), ElementsAre(Pair("x/Loss/Policy loss", 1.0)));
}

}  // namespace
}  // namespace troupe::learner
