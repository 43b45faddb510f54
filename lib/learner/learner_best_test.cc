// Which state of a run is the best, and the returns that this is judged by.

#include <memory>
#include <optional>
#include <string>

#include "lib/learner/learner.h"
#include "lib/learner/testing/test_run.h"
#include "lib/policy/testing/slots.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using testing::HasSubstr;
using Kind = StepOutcome::Kind;

/// An evaluation of one episode, in which both agents together got as much, both played by the first policy.
EpisodeStats Evaluation(double return_sum) {
  EpisodeStats evaluation(2, 1);
  evaluation.Add(10, {return_sum - 1, 1}, policy::SlotsForTesting({0, 0}));
  return evaluation;
}

TEST(LearnerBestTest, BestFollowsTheWindowOrTheEvaluation) {
  TestRun by_evaluation([](LearnerConfig& config) { config.best_by_evaluation = true; });
  ASSERT_TRUE(by_evaluation.learner_->Start().ok());
  auto is_best = [&] { return by_evaluation.learner_->SnapshotState()->is_best; };
  EXPECT_TRUE(is_best()) << "nothing was scored yet";
  by_evaluation.learner_->ReportEvaluation(Evaluation(-50));
  EXPECT_TRUE(is_best());
  EXPECT_FALSE(is_best()) << "not evaluated again";
  by_evaluation.learner_->ReportEvaluation(Evaluation(-60));
  EXPECT_FALSE(is_best());
  by_evaluation.learner_->ReportEvaluation(Evaluation(-40));
  const auto snapshot = by_evaluation.learner_->SnapshotState();
  EXPECT_TRUE(snapshot->is_best);
  EXPECT_TRUE(snapshot->state.has_best);
  EXPECT_EQ(snapshot->state.best_return, -40);

  TestRun by_window([](LearnerConfig& config) { config.best_by = Score{}; });
  ASSERT_TRUE(by_window.learner_->Start().ok());
  auto worker = by_window.Join();
  for (int i = 0; i < 12; ++i) {
    by_window.Work(*worker);
    ASSERT_EQ(by_window.Step().kind, Kind::kUpdated);
  }
  EXPECT_FALSE(by_window.learner_->SnapshotState()->state.has_best) << "96 episodes are no window yet";
  by_window.Work(*worker);
  ASSERT_EQ(by_window.Step().kind, Kind::kUpdated);
  const auto full = by_window.learner_->SnapshotState();
  EXPECT_TRUE(full->is_best);
  EXPECT_EQ(full->state.best_return, *by_window.listener_.records_.back().return_sum);
  EXPECT_EQ(full->state.best_by, "sum");
  EXPECT_FALSE(by_window.learner_->SnapshotState()->is_best) << "no better than itself";
}

/// Updates until more than a hundred episodes have ended.
void Fill(TestRun& run) {
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  for (int i = 0; i < 13; ++i) {
    run.Work(*worker);
    ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  }
}

// The fake rollout gives every agent rewards of its own.
TEST(LearnerBestTest, WhereRewardsDifferNothingIsTheBestUnlessSomebodySaysByWhat) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  EXPECT_TRUE(run.learner_->SnapshotState()->is_best) << "nobody knows yet";
  auto worker = run.Join();
  for (int i = 0; i < 13; ++i) {
    run.Work(*worker);
    ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  }
  const ProgressRecord& record = run.listener_.records_.back();
  EXPECT_TRUE(record.rewards_differ);
  EXPECT_EQ(record.best_by, "");
  EXPECT_EQ(record.best, std::nullopt);
  const auto saved = run.learner_->SnapshotState();
  EXPECT_FALSE(saved->is_best);
  EXPECT_FALSE(saved->state.has_best);
  EXPECT_EQ(saved->state.best_by, "") << "what was the best before is none";
  EXPECT_TRUE(saved->state.rewards_differ);
}

TEST(LearnerBestTest, ACommonRewardIsOneReward) {
  TestRun run([](LearnerConfig& config) { config.options.common_reward = CommonReward::kMean; });
  Fill(run);
  EXPECT_FALSE(run.listener_.records_.back().rewards_differ);
  EXPECT_EQ(run.listener_.records_.back().best_by, "sum");
  EXPECT_TRUE(run.learner_->SnapshotState()->is_best);
}

TEST(LearnerBestTest, BestByAPolicyOrByAgents) {
  for (const char* by : {"policy:shared", "agent:agent_1", "mean"}) {
    SCOPED_TRACE(by);
    TestRun run([by](LearnerConfig& config) { config.best_by = ParseScore(by); });
    Fill(run);
    const ProgressRecord& record = run.listener_.records_.back();
    const auto saved = run.learner_->SnapshotState();
    EXPECT_TRUE(saved->is_best);
    const Spread& of_policy = record.window.policies[policy::PolicySlot(0)];
    const std::optional<double> expected = std::string(by) == "mean"            ? record.window.return_mean.mean()
                                           : std::string(by) == "policy:shared" ? of_policy.mean()
                                                                                : record.window.agents[1].mean();
    EXPECT_EQ(saved->state.best_return, *expected);
    EXPECT_EQ(saved->state.best_by, by);
    EXPECT_EQ(record.best, expected) << "the first full window";
  }
}

TEST(LearnerBestTest, AResumedRunKeepsItsBestAndThatRewardsDiffer) {
  const auto by = [](const char* score) {
    return [score](LearnerConfig& config) {
      if (std::string(score) != "") config.best_by = ParseScore(score);
    };
  };
  TestRun first(by("policy:shared"));
  Fill(first);
  const LearnerState state = first.learner_->SnapshotState()->state;
  const auto resumed = [&](const char* score) {
    auto run = std::make_unique<TestRun>([&](LearnerConfig& config) {
      by(score)(config);
      config.learner_epoch = 2;
    });
    EXPECT_TRUE(run->learner_->Restore(state).ok());
    EXPECT_TRUE(run->learner_->Start().ok());
    return run;
  };
  const auto same = resumed("policy:shared");
  EXPECT_TRUE(same->learner_->Status().progress.rewards_differ);
  EXPECT_EQ(same->learner_->Status().progress.best, state.best_return);
  EXPECT_FALSE(same->learner_->SnapshotState()->is_best) << "as good as itself, by the window that was kept";
  EXPECT_TRUE(resumed("sum")->learner_->SnapshotState()->is_best) << "by another return it is another one";
  EXPECT_FALSE(resumed("")->learner_->SnapshotState()->is_best) << "rewards still differ";
}

TEST(LearnerBestTest, AWorkerOverTcpEndsNoRunAndSetsNoBest) {
  for (const bool own : {true, false}) {
    TestRun run([](LearnerConfig& config) {
      config.stop.episode_return = {{Score{}, -1e9}};
      config.best_by = Score{};
    });
    ASSERT_TRUE(run.learner_->Start().ok());
    auto worker = run.Join({.own = own});
    for (int i = 0; i < 13; ++i) {
      run.Work(*worker);
      ASSERT_EQ(run.Step().kind, Kind::kUpdated) << i;
    }
    EXPECT_EQ(run.learner_->ends(), own);
    EXPECT_EQ(run.learner_->SnapshotState()->state.has_best, own);
  }
}

TEST(LearnerBestTest, AnEvaluationThatReachesTheReturnEndsTheRun) {
  TestRun run([](LearnerConfig& config) {
    config.best_by_evaluation = true;
    config.stop.episode_return = {{Score{}, 3}};
  });
  ASSERT_TRUE(run.learner_->Start().ok());
  run.learner_->ReportEvaluation(Evaluation(2));
  EXPECT_FALSE(run.learner_->ends());
  run.learner_->ReportEvaluation(Evaluation(4));
  const StepOutcome end = run.Step();
  EXPECT_EQ(end.kind, Kind::kStopped);
  EXPECT_EQ(end.reason, "stop.episode_return reached: 4 of 3");
}

TEST(LearnerBestTest, StopsAtTheReturnOfAPolicy) {
  TestRun run([](LearnerConfig& config) {
    config.stop.episode_return = {{*ParseScore("policy:shared"), -1e9}, {*ParseScore("sum"), -1e9}};
  });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  for (int i = 0; i < 13; ++i) {
    run.Work(*worker);
    ASSERT_EQ(run.Step().kind, Kind::kUpdated) << i;
  }
  const StepOutcome end = run.Step();
  EXPECT_EQ(end.kind, Kind::kStopped) << "the window is full";
  EXPECT_THAT(end.reason, HasSubstr("stop.episode_return reached: policy:shared "));
}

TEST(LearnerBestTest, ARunThatHasReachedItsReturnIsNotTrainedOn) {
  const auto stop_at = [](double at_least) {
    return [at_least](LearnerConfig& config) {
      config.stop.episode_return = {{*ParseScore("policy:shared"), at_least}};
    };
  };
  TestRun first(stop_at(-1e9));
  Fill(first);
  const StepOutcome end = first.Step();
  ASSERT_EQ(end.kind, Kind::kStopped);
  const LearnerState state = first.learner_->SnapshotState()->state;
  for (const bool further : {false, true}) {
    TestRun resumed([&](LearnerConfig& config) {
      stop_at(further ? 1e9 : -1e9)(config);
      config.learner_epoch = 2;
    });
    ASSERT_TRUE(resumed.learner_->Restore(state).ok());
    ASSERT_TRUE(resumed.learner_->Start().ok());
    const StepOutcome outcome = resumed.Step();
    EXPECT_EQ(outcome.kind, further ? Kind::kWaiting : Kind::kStopped);
    EXPECT_EQ(outcome.reason, further ? "" : end.reason);
  }
}

TEST(LearnerBestTest, AResumedRunKeepsTheLargestMeanThatWasBetweenTwoCheckpoints) {
  for (const bool by_evaluation : {false, true}) {
    SCOPED_TRACE(by_evaluation);
    const auto by = [by_evaluation](const char* score) {
      return [by_evaluation, score](LearnerConfig& config) {
        config.best_by = ParseScore(score);
        config.best_by_evaluation = by_evaluation;
      };
    };
    TestRun first(by("sum"));
    ASSERT_TRUE(first.learner_->Start().ok());
    auto worker = first.Join();
    const auto best = [&first] { return first.listener_.records_.back().best; };
    for (int i = 0; i < 40; ++i) {
      first.Work(*worker);
      ASSERT_EQ(first.Step().kind, Kind::kUpdated);
      if (best() && *best() > *first.listener_.records_.back().return_sum) break;
    }
    ASSERT_GT(*best(), *first.listener_.records_.back().return_sum) << "it has been better, which no checkpoint had";
    const LearnerState state = first.learner_->SnapshotState()->state;
    const auto resumed = [&](const char* score, const LearnerState& from) {
      TestRun run([&](LearnerConfig& config) {
        by(score)(config);
        config.learner_epoch = 2;
      });
      EXPECT_TRUE(run.learner_->Restore(from).ok());
      return run.learner_->Status().progress.best;
    };
    EXPECT_EQ(resumed("sum", state), best());
    EXPECT_EQ(resumed("mean", state), first.listener_.records_.back().return_mean)
        << "by another return it begins anew";
    LearnerState older = state;
    older.best_window.reset();
    EXPECT_EQ(resumed("sum", older), first.listener_.records_.back().return_sum) << "of an earlier version";
  }
}

}  // namespace
}  // namespace troupe::learner
