#include "lib/learner/accounting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::Disposition;

TEST(AccountingTest, EveryRowHasOneFate) {
  Accounting accounting(2);
  accounting.BookArrival(Disposition::kAccepted, {{0, 10}, {1, 5}});
  accounting.BookArrival(Disposition::kDuplicate, {{0, 10}, {1, 5}});
  accounting.BookArrival(Disposition::kStale, {{1, 3}});
  accounting.BookArrival(Disposition::kInvalid, {{0, 2}, {7, 4}});
  accounting.BookUndecodable();
  accounting.BookTrained({{0, 8}});
  accounting.BookDropped({{0, 2}});
  const RowCounters& totals = accounting.totals();
  EXPECT_EQ(totals.received, 39);
  EXPECT_EQ(totals.accepted, 15);
  EXPECT_EQ(totals.duplicate, 15);
  EXPECT_EQ(totals.stale, 3);
  EXPECT_EQ(totals.invalid, 6) << "also rows of a policy that there is not";
  EXPECT_EQ(totals.trained, 8);
  EXPECT_EQ(totals.dropped, 2);
  EXPECT_EQ(totals.queued, 5);
  EXPECT_TRUE(CheckConservation(totals).ok());
  EXPECT_EQ(accounting.of_policy(0).trained, 8);
  EXPECT_EQ(accounting.of_policy(1).queued, 5);
  EXPECT_TRUE(CheckConservation(accounting.of_policy(0)).ok());
  EXPECT_TRUE(CheckConservation(accounting.of_policy(1)).ok());
  const FragmentCounters& fragments = accounting.fragments();
  EXPECT_EQ(fragments.received, 5);
  EXPECT_EQ(fragments.accepted + fragments.duplicate + fragments.stale + fragments.invalid, 5);
  EXPECT_EQ(fragments.invalid, 2);
}

TEST(AccountingTest, ARestartRollsBackWhatWasQueued) {
  Accounting accounting(1);
  RowCounters saved;
  saved.received = saved.accepted = 100;
  saved.trained = 70;
  saved.queued = 30;
  accounting.Restore(saved);
  EXPECT_EQ(accounting.totals().rolled_back, 30);
  EXPECT_EQ(accounting.totals().queued, 0);
  EXPECT_TRUE(CheckConservation(accounting.totals()).ok());
  accounting.BookGap(4, /*restarted=*/true);
  accounting.BookGap(2, /*restarted=*/false);
  EXPECT_EQ(accounting.fragments().rolled_back, 4);
  EXPECT_EQ(accounting.fragments().unknown, 2);
}

TEST(CheckConservationTest, NamesTheBrokenEquation) {
  RowCounters rows;
  rows.received = 1;
  EXPECT_THAT(std::string(CheckConservation(rows).message()), testing::HasSubstr("received 1"));
  rows.accepted = 1;
  EXPECT_THAT(std::string(CheckConservation(rows).message()), testing::HasSubstr("accepted 1"));
  rows.queued = 2;
  rows.dropped = -1;
  EXPECT_THAT(std::string(CheckConservation(rows).message()), testing::HasSubstr("a counter is -1"));
}

}  // namespace
}  // namespace troupe::learner
