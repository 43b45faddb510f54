#include "lib/learner/worker_standings.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

absl::Duration At(int64_t second) { return absl::Seconds(second); }

std::vector<uint64_t> Selected(const WorkerStandings& standings, int64_t second) {
  std::vector<uint64_t> workers;
  for (const WorkerStandings::Choice& choice : standings.Select(At(second))) workers.push_back(choice.worker);
  return workers;
}

/// 1 and 2 have delivered; 3 is new.
WorkerStandings TwoProvenAndANewcomer() {
  WorkerStandings standings;
  for (const uint64_t worker : {1, 2, 3}) standings.Join(worker);
  for (const uint64_t worker : {1, 2}) standings.Delivered(worker, At(1), At(60));
  return standings;
}

TEST(WorkerStandingsTest, EverybodyIsSelectedAsLongAsNobodyCostsTime) {
  WorkerStandings standings;
  EXPECT_THAT(Selected(standings, 0), IsEmpty());
  EXPECT_THAT(Selected(TwoProvenAndANewcomer(), 0), ElementsAre(1, 2, 3));
}

TEST(WorkerStandingsTest, WhatWasLostIsPaidForNineTimesWithProvenWorkers) {
  WorkerStandings standings = TwoProvenAndANewcomer();
  EXPECT_EQ(standings.Expired(3, /*grant=*/7, At(0), At(60)), 1);
  EXPECT_EQ(standings.expired_of(3), 1);
  EXPECT_EQ(standings.expired(), 1);
  EXPECT_THAT(Selected(standings, 60), ElementsAre(1, 2));
  EXPECT_THAT(Selected(standings, 599), ElementsAre(1, 2));
  EXPECT_THAT(Selected(standings, 600), ElementsAre(1, 2, 3));
  // A newcomer waits like the others, or coming again would be a way around it.
  standings.Leave(3, std::nullopt, At(60));
  standings.Join(4);
  EXPECT_THAT(Selected(standings, 599), ElementsAre(1, 2));
  // Without a proven worker there is nobody to wait for.
  standings.Leave(1, std::nullopt, At(70));
  standings.Leave(2, std::nullopt, At(70));
  EXPECT_THAT(Selected(standings, 70), ElementsAre(4));
}

TEST(WorkerStandingsTest, WhoIsExcludedIsNeverSelectedAgain) {
  WorkerStandings standings = TwoProvenAndANewcomer();
  standings.Exclude(1);
  EXPECT_THAT(Selected(standings, 0), ElementsAre(2, 3));
  standings.Leave(1, std::nullopt, At(1));
  standings.Join(1);
  standings.Delivered(1, At(1), At(60));
  EXPECT_THAT(Selected(standings, 1), ElementsAre(2, 3)) << "also when it comes again";
  standings.Exclude(2);
  EXPECT_TRUE(standings.anybody());
  standings.Exclude(3);
  EXPECT_THAT(Selected(standings, 1), IsEmpty());
  EXPECT_FALSE(standings.anybody());
  standings.Leave(3, std::nullopt, At(2));
  standings.Join(4);
  EXPECT_TRUE(standings.anybody());
}

TEST(WorkerStandingsTest, TimeThatSeveralLostTogetherCountsOnce) {
  WorkerStandings standings = TwoProvenAndANewcomer();
  standings.Join(4);
  standings.Expired(3, 7, At(0), At(60));
  standings.Expired(4, 8, At(10), At(70));
  EXPECT_THAT(Selected(standings, 60 + 9 * 70 - 1), ElementsAre(1, 2)) << "70 s, not 120";
  EXPECT_THAT(Selected(standings, 60 + 9 * 70), ElementsAre(1, 2, 3, 4));
}

TEST(WorkerStandingsTest, TimeThatPassedBeforeAnybodyDeliveredIsNobodysLoss) {
  WorkerStandings standings;
  for (const uint64_t worker : {1, 2, 3}) standings.Join(worker);
  standings.Expired(2, 7, At(0), At(60));
  standings.Delivered(1, At(61), At(60));
  EXPECT_THAT(Selected(standings, 61), ElementsAre(1, 3, 2));
}

TEST(WorkerStandingsTest, WhoLeavesWithAGrantUndoneHasLostTimeToo) {
  WorkerStandings standings = TwoProvenAndANewcomer();
  standings.Leave(2, At(100), At(110));
  standings.Join(2);
  EXPECT_THAT(Selected(standings, 199), ElementsAre(1));
  EXPECT_THAT(Selected(standings, 200), ElementsAre(1, 2, 3));
  // One that owes nothing comes back as it left.
  standings.Leave(1, std::nullopt, At(210));
  standings.Join(1);
  standings.Expired(3, 7, At(200), At(260));
  EXPECT_THAT(Selected(standings, 270), ElementsAre(1));
}

TEST(WorkerStandingsTest, ThreeInARowGetNoneWhileThereAreOthers) {
  WorkerStandings standings;
  standings.Join(1);
  standings.Join(2);
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(standings.Expired(1, 10 + i, At(0), At(i)), i);
  EXPECT_THAT(Selected(standings, 1000), ElementsAre(2));
  standings.Expired(2, 20, At(0), At(5));
  EXPECT_THAT(Selected(standings, 1000), ElementsAre(2)) << "it has missed fewer";
  standings.Leave(2, std::nullopt, At(6));
  EXPECT_THAT(Selected(standings, 1000), ElementsAre(1)) << "the only one";
  standings.Delivered(1, At(10), At(60));
  standings.Join(2);
  EXPECT_THAT(Selected(standings, 1000), ElementsAre(1, 2));
}

TEST(WorkerStandingsTest, AllThatAreLeftAreSelectedWhenNobodyIsBetter) {
  WorkerStandings standings;
  standings.Join(1);
  standings.Join(2);
  for (const uint64_t worker : {1, 2}) {
    for (int i = 1; i <= 4; ++i) standings.Expired(worker, i, At(0), At(i));
  }
  EXPECT_THAT(Selected(standings, 5), ElementsAre(1, 2));
}

TEST(WorkerStandingsTest, AFragmentOfAnExpiredGrantShowsThatItsWorkerLives) {
  WorkerStandings standings;
  standings.Join(1);
  standings.Join(2);
  for (const uint64_t grant : {11, 12, 13}) standings.Expired(1, grant, At(0), At(1));
  EXPECT_THAT(Selected(standings, 2), ElementsAre(2));
  standings.CameLate(1, 99);
  standings.CameLate(77, 11);
  EXPECT_THAT(Selected(standings, 2), ElementsAre(2)) << "another grant, another worker";
  standings.CameLate(1, 12);
  EXPECT_THAT(Selected(standings, 2), ElementsAre(1, 2));
  EXPECT_EQ(standings.Allow(1, At(60)), 8 * At(60)) << "but it is as slow as before";
}

TEST(WorkerStandingsTest, EachExpiryDoublesTheLimitAndADeliveryTakesBackWhatIsNotNeeded) {
  WorkerStandings standings;
  standings.Join(1);
  EXPECT_EQ(standings.Allow(1, At(60)), At(60));
  for (int i = 1; i <= 4; ++i) {
    standings.Expired(1, i, At(0), At(1));
    EXPECT_EQ(standings.Allow(1, At(60)), At(60) * (1 << i));
  }
  standings.Delivered(1, /*took=*/At(100), At(60));
  EXPECT_EQ(standings.Allow(1, At(60)), At(240)) << "twice what it took";
  standings.Delivered(1, At(2), At(60));
  EXPECT_EQ(standings.Allow(1, At(60)), At(60));
  for (int i = 0; i < 200; ++i) standings.Expired(1, i, At(0), At(1));
  EXPECT_GT(standings.Allow(1, At(600)), absl::Hours(24 * 365)) << "no overflow";
}

TEST(WorkerStandingsTest, TheAgeOfAFailedGrantGoesOnInTheNext) {
  WorkerStandings standings;
  standings.Join(1);
  EXPECT_EQ(standings.CountFrom(1, At(5)), At(5));
  standings.Failed(1, At(5));
  standings.Failed(1, At(8));
  EXPECT_EQ(standings.CountFrom(1, At(20)), At(5));
  standings.Delivered(1, At(1), At(60));
  EXPECT_EQ(standings.CountFrom(1, At(20)), At(20));
  standings.Failed(1, At(21));
  standings.Expired(1, 3, At(21), At(81));
  EXPECT_EQ(standings.CountFrom(1, At(81)), At(81)) << "an expiry is a new beginning";
}

TEST(WorkerStandingsTest, RemembersABoundedNumberOfThoseThatLeft) {
  WorkerStandings standings;
  standings.Join(1);
  standings.Expired(1, 5, At(0), At(1));
  standings.Leave(1, std::nullopt, At(1));
  EXPECT_EQ(standings.expired_of(1), 1);
  for (uint64_t worker = 2; worker < 2 + WorkerStandings::kMaxDeparted; ++worker) {
    standings.Join(worker);
    standings.Leave(worker, std::nullopt, At(1));
  }
  EXPECT_EQ(standings.expired_of(1), 0) << "the oldest id is forgotten";
  EXPECT_EQ(standings.expired(), 1);
}

}  // namespace
}  // namespace troupe::learner
