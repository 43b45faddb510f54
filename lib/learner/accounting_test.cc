#include "lib/learner/accounting.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::GroupOfSlot;
using policy::PolicySlot;
using sample::Disposition;

TEST(AccountingTest, EveryRowHasOneFate) {
  Accounting accounting(2);
  accounting.BookArrival(Disposition::kAccepted, {{PolicySlot(0), 10}, {PolicySlot(1), 5}});
  accounting.BookArrival(Disposition::kDuplicate, {{PolicySlot(0), 10}, {PolicySlot(1), 5}});
  accounting.BookArrival(Disposition::kStale, {{PolicySlot(1), 3}});
  accounting.BookArrival(Disposition::kInvalid, {{PolicySlot(0), 2}, {PolicySlot(7), 4}});
  accounting.BookUndecodable();
  accounting.BookBatch({{.policy = PolicySlot(0), .trained = 8, .aged = 2, .uses = 8}});
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
  EXPECT_EQ(accounting.of_policy(PolicySlot(0)).trained, 8);
  EXPECT_EQ(accounting.of_policy(PolicySlot(1)).queued, 5);
  EXPECT_TRUE(CheckConservation(accounting.of_policy(PolicySlot(0))).ok());
  EXPECT_TRUE(CheckConservation(accounting.of_policy(PolicySlot(1))).ok());
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

std::optional<policy::GroupId> GroupNamed(const char* id) { return policy::GroupId(id); }

/// Of the group, which is there.
GroupRows RowsOfGroup(const Accounting& accounting, const std::string& id) {
  const RowBooks books = accounting.Books();
  EXPECT_EQ(CheckConservation(books), absl::OkStatus());
  if (id.empty()) return books.groupless;
  for (const GroupRows& rows : books.groups) {
    if (rows.id.value() == id) return rows;
  }
  ADD_FAILURE() << "no group '" << id << "'";
  return {};
}

TEST(AccountingTest, GroupsShareTheFatesOfTheirRowsAndCountUsesApart) {
  Accounting accounting(4);
  accounting.SetGroups(GroupOfSlot({GroupNamed("team"), GroupNamed("team"), GroupNamed("solo"), std::nullopt}));
  accounting.BookArrival(Disposition::kAccepted,
                         {{PolicySlot(0), 10}, {PolicySlot(1), 5}, {PolicySlot(2), 7}, {PolicySlot(3), 4}});
  accounting.BookArrival(Disposition::kStale, {{PolicySlot(0), 3}});
  accounting.BookBatch({{.policy = PolicySlot(0), .trained = 6, .aged = 1, .uses = 6},
                        {.policy = PolicySlot(3), .trained = 4, .uses = 4}});
  accounting.BookBatch({{.policy = PolicySlot(0), .trained = 1, .evicted = 2, .uses = 7},
                        {.policy = PolicySlot(1), .trained = 5, .uses = 5}});
  accounting.BookEvicted({{PolicySlot(2), 3}});
  accounting.BookGivenUp({{.policy = PolicySlot(2), .trained = 2, .aged = 1, .uses = 9}});
  EXPECT_EQ(RowsOfGroup(accounting, "team"), (GroupRows{policy::GroupId("team"), 15, 0, 12, 1, 2, 18}));
  EXPECT_EQ(RowsOfGroup(accounting, "solo"), (GroupRows{policy::GroupId("solo"), 7, 1, 0, 1, 5, 0}));
  EXPECT_EQ(RowsOfGroup(accounting, ""), (GroupRows{policy::GroupId(), 4, 0, 4, 0, 0, 4}));
  EXPECT_EQ(accounting.totals().accepted, 26);
  EXPECT_EQ(accounting.totals().trained, 16);
  EXPECT_EQ(accounting.totals().dropped, 9);
  EXPECT_EQ(accounting.totals().queued, 1);
}

TEST(AccountingTest, WhatWaitsGoesAlongWhenGroupsChange) {
  Accounting accounting(2);
  accounting.SetGroups(GroupOfSlot({GroupNamed("a"), GroupNamed("b")}));
  accounting.BookArrival(Disposition::kAccepted, {{PolicySlot(0), 10}, {PolicySlot(1), 20}});
  accounting.BookBatch(
      {{.policy = PolicySlot(0), .trained = 4, .uses = 4}, {.policy = PolicySlot(1), .trained = 5, .uses = 5}});
  // b is gone: its policy is a's now, and what was trained of it is nobody's.
  accounting.SetGroups(GroupOfSlot({GroupNamed("a"), GroupNamed("a")}));
  EXPECT_EQ(RowsOfGroup(accounting, "a"), (GroupRows{policy::GroupId("a"), 25, 21, 4, 0, 0, 4}));
  EXPECT_EQ(RowsOfGroup(accounting, ""), (GroupRows{policy::GroupId(), 5, 0, 5, 0, 0, 5}));
  // And neither is trained: the slots stay, and one is more.
  accounting.SetGroups(GroupOfSlot({std::nullopt, GroupNamed("a"), std::nullopt}));
  EXPECT_EQ(RowsOfGroup(accounting, "a").queued, 15);
  EXPECT_EQ(RowsOfGroup(accounting, "").queued, 6);
  accounting.BookBatch(
      {{.policy = PolicySlot(0), .trained = 6, .uses = 6}, {.policy = PolicySlot(1), .trained = 15, .uses = 15}});
  accounting.BookArrival(Disposition::kAccepted, {{PolicySlot(2), 1}});
  EXPECT_EQ(RowsOfGroup(accounting, "").queued, 1);
  EXPECT_EQ(RowsOfGroup(accounting, "a").queued, 0);
}

TEST(AccountingTest, GroupsAddUpToTheTotalsAfterARestart) {
  Accounting accounting(1);
  RowCounters saved;
  saved.received = saved.accepted = 100;
  saved.trained = 60;
  saved.dropped = 10;
  saved.queued = 30;
  accounting.Restore(saved);
  accounting.SetGroups(GroupOfSlot({GroupNamed("a")}));
  accounting.BookArrival(Disposition::kAccepted, {{PolicySlot(0), 7}});
  EXPECT_EQ(RowsOfGroup(accounting, "a").accepted, 7) << "of this learner epoch";
  EXPECT_EQ(accounting.totals().accepted, 107);
}

TEST(CheckConservationTest, NamesTheGroupAndWhatDoesNotAddUp) {
  using testing::HasSubstr;
  RowBooks books;
  books.totals.received = books.totals.accepted = books.totals.trained = 5;
  EXPECT_THAT(std::string(CheckConservation(books).message()), HasSubstr("accepted is 5, but the groups' add up to 0"));
  books.groups = {{policy::GroupId("a"), 5, 0, 5, 0, 0, 4}};
  EXPECT_THAT(std::string(CheckConservation(books).message()), HasSubstr("group 'a': trained 5 rows in 4 uses"));
  books.groups[0].uses = 5;
  EXPECT_EQ(CheckConservation(books), absl::OkStatus());
  books.groups[0].evicted = -1;
  EXPECT_THAT(std::string(CheckConservation(books).message()), HasSubstr("a counter is -1"));
  books.groups[0].evicted = 0;
  books.groups[0].aged = 1;
  EXPECT_THAT(std::string(CheckConservation(books).message()),
              HasSubstr("group 'a': accepted 5, but trained + queued + aged + evicted = 6"));
  books.groups[0] = {policy::GroupId("a"), 5, 1, 4, 0, 0, 4};
  EXPECT_THAT(std::string(CheckConservation(books).message()), HasSubstr("queued is 0, but the groups' add up to 1"));
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
