// The returns that decide `best` and stop.episode_return.

#include "lib/learner/episode_book.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using testing::HasSubstr;

std::vector<sample::FinishedEpisode> Episodes(size_t count, float episode_return) {
  std::vector<sample::FinishedEpisode> finished(count);
  for (size_t i = 0; i < count; ++i) {
    finished[i].env_id = base::EnvId(0);
    finished[i].episode = static_cast<uint32_t>(i);
    finished[i].length = 10;
    finished[i].returns = {episode_return};
    finished[i].policies = policy::SlotsForTesting({0});
  }
  return finished;
}
ReportedEpisodes Own(size_t count, float episode_return) { return {.own = Episodes(count, episode_return)}; }
ReportedEpisodes By(uint64_t worker, size_t count, float episode_return) {
  ReportedEpisodes reported;
  reported.by_strangers[worker] = Episodes(count, episode_return);
  return reported;
}

class EpisodeBookTest : public testing::Test {
 protected:
  EpisodeBookTest() {
    config_.schema = sample::SimpleSchema(1);
    const policy::PolicySpec& spec = config_.schema.policies[policy::PolicySlot(0)];
    table_ = *policy::PolicyTable::Make({spec}, {true}, {{"*", {{spec.id}}}}, config_.schema.agent_ids);
    config_.stop.episode_return = {{Score{}, 2.0}};
  }
  std::optional<double> Best(EpisodeBook& book) const {
    ProgressRecord record;
    book.Tell(table_, &record);
    return record.best;
  }
  std::optional<double> SavedBest(EpisodeBook& book) const {
    LearnerState state;
    book.Save(*table_, &state);
    return state.has_best ? std::optional<double>(state.best_return) : std::nullopt;
  }

  LearnerConfig config_;
  policy::PolicyTablePtr table_;
};

// A changed worker said 1e11 for each episode: the run ended as a success, and `best` pointed at that moment.
TEST_F(EpisodeBookTest, WhatOneOrTwoStrangersReportDecidesNothingAndIsWarnedOfOnce) {
  EpisodeBook book(&config_);
  EXPECT_EQ(book.TakeWarning(*table_), std::nullopt);
  book.Add(By(7, 200, 1e11f));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt);
  EXPECT_EQ(Best(book), std::nullopt);
  EXPECT_EQ(SavedBest(book), std::nullopt);
  const std::optional<std::string> warning = book.TakeWarning(*table_);
  ASSERT_TRUE(warning.has_value());
  EXPECT_THAT(*warning, HasSubstr("workers over TCP report set neither \"best\" nor stop.episode_return"));
  EXPECT_THAT(*warning, HasSubstr("set evaluation.interval"));
  EXPECT_EQ(book.TakeWarning(*table_), std::nullopt);
  book.Add(By(8, 200, 1e11f));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt);
  ProgressRecord record;
  book.Tell(table_, &record);
  EXPECT_EQ(*record.return_sum, 1e11f) << "people see what was reported";
}

TEST_F(EpisodeBookTest, OfThreeStrangersTheMedianOfTheirMeansDecides) {
  EpisodeBook book(&config_);
  book.Add(By(1, 50, 1));
  book.Add(By(2, 50, 1e11f));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt);
  book.Add(By(3, 50, 3));
  EXPECT_EQ(book.StopByTraining(*table_), "stop.episode_return reached: 3 of 2");
  EXPECT_EQ(SavedBest(book), 3);
  book.Add(By(3, 100, 1));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt);
  EXPECT_EQ(book.TakeWarning(*table_), std::nullopt);
  EpisodeBook few(&config_);
  for (uint64_t worker = 1; worker <= 3; ++worker) few.Add(By(worker, 33, 5));
  EXPECT_EQ(few.StopByTraining(*table_), std::nullopt) << "99 episodes say little";
}

TEST_F(EpisodeBookTest, WhereOwnWorkersPlayTheyDecide) {
  EpisodeBook book(&config_);
  book.Add(Own(60, 3));
  for (uint64_t worker = 1; worker <= 5; ++worker) book.Add(By(worker, 100, 1e11f));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt) << "60 episodes say little";
  EXPECT_EQ(book.TakeWarning(*table_), std::nullopt);
  book.Add(Own(40, 3));
  EXPECT_EQ(book.StopByTraining(*table_), "stop.episode_return reached: 3 of 2");
  EXPECT_EQ(Best(book), 3);
  book.Add(Own(100, 1));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt);
}

TEST_F(EpisodeBookTest, TheFirstSuccessAfterAMillionZerosCounts) {
  EpisodeBook own(&config_);
  for (int i = 0; i < 100; ++i) own.Add(Own(10'000, 0));
  EXPECT_EQ(SavedBest(own), 0);
  own.Add(Own(1, 1));
  EXPECT_EQ(Best(own), 0.01);
  LearnerState state;
  EXPECT_TRUE(own.Save(*table_, &state));
  EXPECT_EQ(state.best_return, 0.01);

  EpisodeBook over_tcp(&config_);
  for (int i = 0; i < 100; ++i) {
    for (uint64_t worker = 1; worker <= 3; ++worker) over_tcp.Add(By(worker, 3334, 0));
  }
  EXPECT_EQ(SavedBest(over_tcp), 0);
  over_tcp.Add(By(1, 1, 1));
  EXPECT_EQ(SavedBest(over_tcp), 0) << "the word of one";
  over_tcp.Add(By(2, 1, 1));
  EXPECT_EQ(SavedBest(over_tcp), 0.01) << "the word of most";

  config_.best_by_evaluation = true;
  EpisodeBook evaluated(&config_);
  evaluated.Add(By(1, 100, 1e11f));
  EpisodeStats zeros(1, 1), success(1, 1);
  for (int i = 0; i < 10; ++i) {
    zeros.Add(10, {0}, policy::SlotsForTesting({0}));
    success.Add(10, {i == 0 ? 1.0 : 0.0}, policy::SlotsForTesting({0}));
  }
  EXPECT_EQ(evaluated.ReportEvaluation(zeros, *table_), std::nullopt);
  EXPECT_EQ(SavedBest(evaluated), 0);
  EXPECT_EQ(evaluated.ReportEvaluation(success, *table_), std::nullopt);
  EXPECT_EQ(SavedBest(evaluated), 0.1);
}

TEST_F(EpisodeBookTest, ARunThatEvaluatesIsJudgedByEvaluationsAlone) {
  config_.best_by_evaluation = true;
  EpisodeBook book(&config_);
  book.Add(Own(100, 5));
  book.Add(By(1, 100, 1e11f));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt);
  EXPECT_EQ(book.TakeWarning(*table_), std::nullopt);
  EpisodeStats evaluation(1, 1);
  evaluation.Add(10, {2.5}, policy::SlotsForTesting({0}));
  EXPECT_EQ(book.ReportEvaluation(evaluation, *table_), "stop.episode_return reached: 2.5 of 2");
}

TEST_F(EpisodeBookTest, AResumedRunKnowsWhatStrangersSaid) {
  EpisodeBook book(&config_);
  book.Add(By(1, 100, 1e11f));
  LearnerState state;
  book.Save(*table_, &state);
  EpisodeBook resumed(&config_);
  resumed.Restore(state, *table_);
  EXPECT_EQ(resumed.StopByTraining(*table_), std::nullopt);
  state.recent_by_strangers.clear();  // a checkpoint of an earlier version acts as before
  EpisodeBook earlier(&config_);
  earlier.Restore(state, *table_);
  EXPECT_TRUE(earlier.StopByTraining(*table_).has_value());
}

TEST_F(EpisodeBookTest, ClientsOverTcpMakeEveryWorkerAStranger) {
  config_.strangers_play = true;
  EpisodeBook book(&config_);
  book.Add(By(1, 100, 5));
  EXPECT_THAT(*book.TakeWarning(*table_), HasSubstr("clients over TCP (env.external.address) report"));
}

TEST_F(EpisodeBookTest, ReportersThatAreGoneForLongestAreForgotten) {
  EpisodeBook book(&config_);
  for (uint64_t worker = 1; worker <= 3; ++worker) book.Add(By(worker, 100, 5));
  EXPECT_TRUE(book.StopByTraining(*table_).has_value());
  for (uint64_t worker = 4; worker <= 3 + StrangersReturns::kMostReporters; ++worker) book.Add(By(worker, 100, 1));
  EXPECT_EQ(book.StopByTraining(*table_), std::nullopt);
}

}  // namespace
}  // namespace troupe::learner
