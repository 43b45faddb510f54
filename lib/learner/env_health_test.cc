#include "lib/learner/env_health.h"

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::EnvIncident;
using sample::EnvReport;
using testing::HasSubstr;
using testing::SizeIs;

absl::Duration At(double second) { return absl::Seconds(second); }

EnvReport Failed(int32_t failed, int32_t ended, bool from_the_start = false) {
  EnvReport report;
  report.recent = {ended, failed};
  report.fails_from_the_start = from_the_start;
  if (failed > 0) report.incidents = {{EnvIncident::What::kFailure, "it broke", "step 7: it broke\nFile \"a\""}};
  return report;
}

TEST(EnvHealthTest, AKindIsToldOnceAndNoMoreThanSixtyFour) {
  EnvHealth health(0.5);
  health.Join(1, "a", /*own=*/true);
  health.Join(2, "b", /*own=*/true);
  EXPECT_THAT(health.Report(1, Failed(1, 5), At(0)).first_of_their_kind, SizeIs(1));
  EXPECT_THAT(health.Report(2, Failed(1, 5), At(0)).first_of_their_kind, SizeIs(0)) << "whoever tells it";
  size_t told = 1;
  for (int i = 0; i < 1000; ++i) {
    EnvReport report;
    report.incidents = {{EnvIncident::What::kOutsideSpace, absl::StrCat("agent ", i), "text"}};
    told += health.Report(1, report, At(0)).first_of_their_kind.size();
  }
  EXPECT_EQ(told, 64u);
}

TEST(EnvHealthTest, BeyondTheShareAWorkerStaysSoAndTheOthersGoOn) {
  EnvHealth health(0.5);
  EXPECT_FALSE(health.Join(1, "host:7", /*own=*/true));
  EXPECT_FALSE(health.Join(2, "other:8", /*own=*/true));
  EXPECT_FALSE(health.Report(1, Failed(19, 19), At(0)).beyond);
  EXPECT_FALSE(health.Report(2, Failed(0, 1), At(0)).beyond);
  EXPECT_EQ(health.End(At(0)), std::nullopt);
  EXPECT_TRUE(health.Report(1, Failed(20, 20), At(1)).beyond);
  EXPECT_FALSE(health.Report(1, Failed(21, 21), At(1)).beyond) << "said once";
  EXPECT_TRUE(health.beyond(1));
  EXPECT_EQ(health.Words(1), "worker 0.1 (host:7), 21 of its last 21 episodes failed, the first: step 7: it broke");
  EXPECT_EQ(health.End(At(100)), std::nullopt) << "the other trains on";
  health.Leave(1);
  EXPECT_TRUE(health.Join(1, "host:7", /*own=*/true)) << "its episodes are as they were";
  EXPECT_FALSE(health.Join(3, "host:9", /*own=*/true)) << "another process is judged by its own";
}

TEST(EnvHealthTest, TheRunEndsWhenEveryWorkerIsBeyond) {
  EnvHealth health(0.5);
  health.Join(1, "a", /*own=*/true);
  health.Join(2, "b", /*own=*/true);
  health.Report(1, Failed(60, 100), At(0));
  EXPECT_EQ(health.End(At(0)), std::nullopt);
  health.Report(2, Failed(51, 100), At(0));
  EXPECT_THAT(
      health.End(At(0)).value_or(""),
      HasSubstr("more than env.max_failed_share (0.5) of the last episodes failed at every worker: worker 0.1 (a), "
                "60 of its last 100 episodes failed, the first: step 7: it broke"));
  health.Leave(1);
  health.Leave(2);
  EXPECT_EQ(health.End(At(0)), std::nullopt) << "nobody is here to judge";
}

TEST(EnvHealthTest, TheRunEndsWhenTheShareOfAllIsBeyond) {
  EnvHealth health(0.5);
  for (uint64_t worker = 1; worker <= 3; ++worker) health.Join(worker, "a", /*own=*/true);
  health.Report(1, Failed(19, 19), At(0));
  health.Report(2, Failed(19, 19), At(0));
  health.Report(3, Failed(0, 21), At(0));
  EXPECT_EQ(health.End(At(0)), std::nullopt) << "59 are too few for three";
  health.Report(3, Failed(0, 22), At(0));
  EXPECT_THAT(health.End(At(0)).value_or(""),
              HasSubstr("of the last episodes of all workers failed, 38 of 60: worker 0.1"));
  health.Report(3, Failed(0, 38), At(0));
  EXPECT_EQ(health.End(At(0)), std::nullopt) << "the share itself is allowed";
}

TEST(EnvHealthTest, FailureFromTheStartEndsTheRunAtOnceWhereAllDo) {
  EnvHealth health(0.5);
  health.Join(1, "a", /*own=*/true);
  health.Report(1, Failed(3, 3, true), At(0));
  EXPECT_THAT(health.End(At(0)).value_or(""), HasSubstr("the first episode failed in every environment, and none ended "
                                                        "well anywhere: worker 0.1 (a), 3 of its last 3"));
}

TEST(EnvHealthTest, FailureFromTheStartWaitsForWhoMayShowThatEnvironmentsRun) {
  for (const bool runs : {false, true}) {
    EnvHealth health(0.5);
    health.Join(1, "a", /*own=*/true);
    health.Join(2, "b", /*own=*/true);
    health.Report(1, Failed(3, 3, true), At(10));
    EXPECT_EQ(health.End(At(13.9)), std::nullopt);
    if (runs) health.Delivered(2, /*episodes=*/0);
    EXPECT_EQ(health.End(At(14.1)).has_value(), !runs);
    health.Leave(1);
    EXPECT_EQ(health.End(At(14.1)).has_value(), !runs) << "also when it died of it";
    health.Delivered(2, /*episodes=*/1);
    EXPECT_EQ(health.End(At(14.1)), std::nullopt);
  }
}

// A stranger that comes before the honest workers do says what it likes.
TEST(EnvHealthTest, WhoCameOverTcpEndsTheRunOnlyWhereNobodyElseWorksForHalfAMinute) {
  for (const bool beyond : {false, true}) {
    EnvHealth health(0.5);
    health.Join(1, "stranger", /*own=*/false);
    health.Report(1, beyond ? Failed(20, 20) : Failed(3, 3, true), At(10));
    EXPECT_EQ(health.End(At(10)), std::nullopt);
    EXPECT_EQ(health.End(At(39.9)), std::nullopt);
    health.Join(2, "honest", /*own=*/false);
    health.Delivered(2, /*episodes=*/1);
    EXPECT_EQ(health.End(At(41)), std::nullopt);
    health.Leave(2);
    health.Report(1, Failed(100, 100), At(50));
    EXPECT_EQ(health.End(At(50)), std::nullopt) << "alone again: the time begins anew";
    EXPECT_EQ(health.End(At(79.9)), std::nullopt);
    EXPECT_TRUE(health.End(At(80.1)).has_value()) << "nobody shows that environments run";
  }
}

TEST(EnvHealthTest, AnOwnWorkerThatFailsNeedsNoStrangersGrace) {
  EnvHealth health(0.5);
  health.Join(1, "over tcp", /*own=*/false);
  health.Join(2, "own", /*own=*/true);
  health.Report(1, Failed(3, 3, true), At(0));
  EXPECT_EQ(health.End(At(0)), std::nullopt);
  health.Report(2, Failed(3, 3, true), At(1));
  EXPECT_TRUE(health.End(At(1)).has_value());
}

TEST(EnvHealthTest, StepsOfAWorkerThatFailsShowNothing) {
  EnvHealth health(0.5);
  health.Join(1, "a", /*own=*/true);
  health.Join(2, "b", /*own=*/true);
  health.Report(1, Failed(3, 3, true), At(0));
  health.Report(2, Failed(1, 1), At(0));
  health.Delivered(2, /*episodes=*/0);
  EXPECT_TRUE(health.End(At(5)).has_value());
}

TEST(EnvHealthTest, AShareOfOneEndsNothing) {
  EnvHealth health(1);
  health.Join(1, "a", /*own=*/true);
  EXPECT_FALSE(health.Report(1, Failed(100, 100, true), At(0)).beyond);
  EXPECT_EQ(health.End(At(100)), std::nullopt);
}

TEST(EnvHealthTest, RemembersABoundedNumberOfThoseThatLeft) {
  EnvHealth health(0.5);
  for (uint64_t worker = 1; worker <= EnvHealth::kMaxDeparted + 1; ++worker) {
    health.Join(worker, "a", /*own=*/true);
    health.Report(worker, Failed(20, 20), At(0));
    health.Leave(worker);
  }
  EXPECT_FALSE(health.Join(1, "a", /*own=*/true)) << "forgotten, it is judged by what it says next";
  EXPECT_TRUE(health.Join(2, "a", /*own=*/true));
}

}  // namespace
}  // namespace troupe::learner
