#include "lib/run/watched_evaluation.h"

#include <atomic>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "lib/base/await.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using rollout::EvaluationRequest;
using rollout::EvaluationResult;
using testing::HasSubstr;

constexpr absl::Duration kPoll = absl::Milliseconds(1);

absl::StatusOr<EvaluationResult> Whole(const EvaluationRequest& request) {
  EvaluationResult result;
  result.episodes = request.episodes;
  return result;
}

/// Plays until it is cancelled, as an evaluation of a task without an end.
absl::StatusOr<EvaluationResult> Endless(const EvaluationRequest& request) {
  const bool told =
      base::AwaitPolling(kPoll, base::Deadline::After(absl::Minutes(1)), [&] { return request.cancelled->load(); });
  return told ? absl::CancelledError("cancelled") : absl::InternalError("nobody has cancelled it");
}

TEST(WatchedEvaluationTest, ReturnsWhatWasPlayed) {
  EXPECT_EQ(PlayWatched({}, {.episodes = 7}, Whole)->episodes, 7);
  const absl::Status failed = PlayWatched({}, {}, [](const EvaluationRequest&) -> absl::StatusOr<EvaluationResult> {
                                return absl::UnavailableError("no environment");
                              }).status();
  EXPECT_EQ(failed, absl::UnavailableError("no environment"));
}

TEST(WatchedEvaluationTest, AnInterruptEndsIt) {
  EvaluationWatch watch;
  watch.interrupted = [] { return true; };
  const absl::Status status = PlayWatched(watch, {.episodes = 7}, Endless).status();
  EXPECT_EQ(status, absl::CancelledError("interrupted after 0 of 7 episodes"));
}

TEST(WatchedEvaluationTest, WhatWaitsForPythonIsAbandoned) {
  std::atomic<bool> abandoned{false};
  EvaluationWatch watch;
  watch.interrupted = [] { return true; };
  watch.abandoned = &abandoned;
  const auto play = [&](const EvaluationRequest&) -> absl::StatusOr<EvaluationResult> {
    EXPECT_TRUE(base::AwaitPolling(kPoll, base::Deadline::After(absl::Minutes(1)), [&] { return abandoned.load(); }));
    return absl::UnavailableError("its process was killed");
  };
  EXPECT_TRUE(absl::IsCancelled(PlayWatched(watch, {}, play).status()));
  EXPECT_FALSE(abandoned) << "of the next evaluation";
}

TEST(WatchedEvaluationTest, ItsTimeLimitEndsIt) {
  base::FakeClock clock;
  EvaluationWatch watch;
  watch.clock = &clock;
  watch.options.time_limit = absl::Seconds(60);
  watch.tell = [&](const EvaluationProgress&) { clock.Advance(absl::Seconds(59)); };
  const absl::Status status = PlayWatched(watch, {.episodes = 7}, Endless).status();
  EXPECT_EQ(status, absl::DeadlineExceededError("evaluation.time_limit_s (1m) is over after 0 of 7 episodes; "
                                                "env.max_episode_steps ends the episodes of a task without an end"));
}

// An evaluation that takes long is honest while its episodes end.
TEST(WatchedEvaluationTest, APauseWithoutAnEndEndsItAndLongEvaluationsGoOn) {
  base::FakeClock clock;
  std::atomic<std::atomic<int64_t>*> ended{nullptr};
  std::vector<int64_t> told;
  EvaluationWatch watch;
  watch.clock = &clock;
  watch.options.longest_pause = absl::Hours(1);
  watch.tell = [&](const EvaluationProgress& progress) {
    if (ended == nullptr) return;  // it has not begun
    told.push_back(progress.ended);
    clock.Advance(absl::Minutes(59));
    if (progress.ended < 5) ++*ended.load();
  };
  const auto play = [&](const EvaluationRequest& request) {
    ended = request.ended;
    return Endless(request);
  };
  const absl::Status status = PlayWatched(watch, {.episodes = 7}, play).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("given up after 5 of 7 episodes: none has ended for 1h"));
  EXPECT_GE(told.size(), 6u);
}

TEST(WatchedEvaluationTest, ProgressNamesTheRemedyWhereNoEpisodeEnds) {
  EXPECT_EQ((EvaluationProgress{3, 100, absl::Hours(1)}).Text(), "evaluating, 3 of 100 episodes");
  EXPECT_EQ((EvaluationProgress{0, 100, absl::Seconds(9)}).Text(), "evaluating, 0 of 100 episodes");
  EXPECT_EQ((EvaluationProgress{0, 100, absl::Seconds(10)}).Text(),
            "evaluating, 0 of 100 episodes: none has ended yet; if none can, env.max_episode_steps ends the episodes "
            "of a task "
            "without an end");
}

}  // namespace
}  // namespace troupe::run
