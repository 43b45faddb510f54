#include "lib/learner/tracked_book.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/learner/testing/test_run.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using base::TrackedTotal;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

sample::EnvReport Report(std::vector<TrackedTotal> tracked, std::string off = "") {
  sample::EnvReport report;
  report.tracked = std::move(tracked);
  report.callbacks_off = std::move(off);
  return report;
}

TEST(TrackedBookTest, WhatWorkersSayInTotalsIsTakenAsWhatCameSince) {
  TrackedBook book;
  TrackedBook::Said first, second;
  EXPECT_FALSE(book.Report(Report({{"a", 10, 4}, {"b", 1, 1}}), false, &first));
  EXPECT_FALSE(book.Report(Report({{"a", 20, 6}}), false, &second));
  EXPECT_THAT(book.Take().tracked, ElementsAre(TrackedTotal{"a", 30, 10}, TrackedTotal{"b", 1, 1}));
  EXPECT_THAT(book.Take().tracked, IsEmpty());
  EXPECT_FALSE(book.Report(Report({{"a", 13, 5}, {"b", 1, 1}}), false, &first));
  EXPECT_FALSE(book.Report(Report({{"a", 13, 5}, {"b", 1, 1}}), false, &first)) << "said again";
  EXPECT_THAT(book.Take().tracked, ElementsAre(TrackedTotal{"a", 3, 1}));
  // Another process under the same number.
  EXPECT_FALSE(book.Report(Report({{"a", 2, 2}}), false, &first));
  EXPECT_THAT(book.Take().tracked, ElementsAre(TrackedTotal{"a", 2, 2}));
}

TEST(TrackedBookTest, AWorkerOfBeforeBeginsWhereItStands) {
  TrackedBook book;
  TrackedBook::Said said;
  book.Report(Report({{"a", 1000, 100}}), true, &said);
  EXPECT_THAT(book.Take().tracked, IsEmpty());
  book.Report(Report({{"a", 1003, 101}, {"b", 2, 1}}), true, &said);
  EXPECT_THAT(book.Take().tracked, ElementsAre(TrackedTotal{"a", 3, 1}, TrackedTotal{"b", 2, 1}));
}

TEST(TrackedBookTest, NamesAreBoundedOverAllWorkersAndSumsStayFinite) {
  TrackedBook book;
  TrackedBook::Said first, second;
  std::vector<TrackedTotal> many;
  for (size_t i = 0; i < base::kMaxTrackedNames; ++i) many.push_back({absl::StrCat("name ", i), 1, 1});
  book.Report(Report(many), false, &first);
  TrackedBook::News news = book.Take();
  EXPECT_THAT(news.tracked, SizeIs(base::kMaxTrackedNames));
  EXPECT_FALSE(news.leaves_out);
  book.Report(Report({{"another", 1, 1}, {"name 3", 1, 1}}), false, &second);
  news = book.Take();
  EXPECT_THAT(news.tracked, ElementsAre(TrackedTotal{"name 3", 1, 1}));
  EXPECT_TRUE(news.leaves_out);
  constexpr double kMost = std::numeric_limits<double>::max();
  book.Report(Report({{"name 3", kMost, 2}}), false, &first);
  book.Report(Report({{"name 3", kMost, 2}}), false, &second);
  EXPECT_THAT(book.Take().tracked, ElementsAre(TrackedTotal{"name 3", kMost - 1, 1}));
  EXPECT_TRUE(book.Take().leaves_out) << "a name that was left out stays so";
}

TEST(TrackedBookTest, AWorkersCallbacksAreOffOnce) {
  TrackedBook book;
  TrackedBook::Said first, second;
  EXPECT_TRUE(book.Report(Report({}, "on_episode_end: it died"), false, &first));
  EXPECT_FALSE(book.Report(Report({}, "on_episode_end: it died"), false, &first));
  EXPECT_EQ(book.Take().workers_off, 1);
  EXPECT_TRUE(book.Report(Report({}, "too"), false, &second));
  EXPECT_EQ(book.Take().workers_off, 2);
  EXPECT_EQ(book.Take().workers_off, 2);
}

TEST(TrackedBookTest, WhoHasLeftIsNotOffAndStaysCounted) {
  TrackedBook book;
  TrackedBook::Said first, second;
  EXPECT_TRUE(book.Report(Report({}, "it died"), false, &first));
  EXPECT_TRUE(book.Report(Report({}, "it died"), false, &second));
  book.Leave(&first);
  book.Leave(&first);
  TrackedBook::News news = book.Take();
  EXPECT_EQ(news.workers_off, 1);
  EXPECT_EQ(news.turned_off, 2);
  EXPECT_FALSE(book.Report(Report({}), false, &first));
  EXPECT_EQ(book.Take().workers_off, 1);
  EXPECT_FALSE(book.Report(Report({}, "it died"), false, &first)) << "it was told of before";
  news = book.Take();
  EXPECT_EQ(news.workers_off, 2);
  EXPECT_EQ(news.turned_off, 2);
}

using Counts = std::pair<int64_t, int64_t>;

/// How many workers are off, and have been.
Counts Off(TestRun& run) {
  const TrackedBook::News news = run.learner_->TakeTracked();
  return {news.workers_off, news.turned_off};
}

TEST(TrackedBookTest, AWorkerIsOffAsLongAsItIsHere) {
  TestRun run([](LearnerConfig& config) { config.episode_callbacks = true; });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  const WorkerHello again = {.worker_id = worker->ticket.worker_id};
  const auto fails = [&] { EXPECT_TRUE(run.learner_->Heartbeat(worker->ticket, Report({}, "it died")).ok()); };
  fails();
  EXPECT_EQ(Off(run), Counts(1, 1));
  run.learner_->Leave(worker->ticket);
  EXPECT_EQ(Off(run), Counts(0, 1));
  worker = run.Join(again);
  EXPECT_EQ(Off(run), Counts(0, 1));
  fails();
  EXPECT_EQ(Off(run), Counts(1, 1));
  worker = run.Join(again);  // its old stream has not been missed yet
  EXPECT_EQ(Off(run), Counts(0, 1));
  fails();
  EXPECT_EQ(Off(run), Counts(1, 1));
  run.clock_.Advance(run.config_.options.worker_timeout * 2);
  run.learner_->Tick();
  EXPECT_EQ(Off(run), Counts(0, 1)) << "it gave no sign of life";
  worker = run.Join(again);
  fails();
  run.learner_->RequestDrain("done");
  run.learner_->Leave(worker->ticket);
  EXPECT_EQ(Off(run), Counts(1, 1)) << "who leaves as the run ends was in it to its end";
}

// Whoever reaches the port may say so.
TEST(TrackedBookTest, ARunWithoutCallbacksOfEpisodesHearsOfNone) {
  for (const bool has_some : {false, true}) {
    TestRun run([has_some](LearnerConfig& config) { config.episode_callbacks = has_some; });
    ASSERT_TRUE(run.learner_->Start().ok());
    const auto worker = run.Join();
    EXPECT_TRUE(run.learner_->Heartbeat(worker->ticket, Report({{"a", 2, 1}}, "it died")).ok());
    const TrackedBook::News news = run.learner_->TakeTracked();
    EXPECT_EQ(news.tracked.size(), has_some ? 1u : 0u);
    EXPECT_EQ(news.workers_off, has_some ? 1 : 0);
  }
}

}  // namespace
}  // namespace troupe::learner
