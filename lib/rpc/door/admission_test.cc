#include "lib/rpc/door/admission.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using Progress = FrameGuard::Progress;
constexpr absl::Duration kNow = absl::Seconds(100);

class AdmissionTest : public ::testing::Test {
 protected:
  /// The newcomer's id, or 0 when it was refused; evicted_ is who went for it.
  int64_t Come(const std::string& host, bool own = false, bool host_of_worker = false) {
    const Admission::Decision decision = admission_.Decide({host, own, host_of_worker});
    evicted_ = decision.evict.value_or(0);
    kept_ = decision.kept;
    if (decision.evict) admission_.Remove(*decision.evict);
    if (!decision.admit) return 0;
    admission_.Add(++last_id_, host);
    return last_id_;
  }
  int64_t ComeAndAsk(const std::string& host) {
    const int64_t id = Come(host);
    admission_.SetProgress(id, Progress::kServed);
    return id;
  }

  Admission admission_{{.total = 20, .per_host = 10, .kept = 4, .newcomers = 5, .unserved = 3}};
  int64_t last_id_ = 0;
  int64_t evicted_ = 0;
  bool kept_ = false;
};

TEST_F(AdmissionTest, AFloodOfSilentConnectionsReplacesItself) {
  for (int i = 0; i < 100; ++i) ASSERT_NE(Come("a"), 0) << i;
  EXPECT_EQ(evicted_, 95) << "the oldest goes";
  EXPECT_EQ(admission_.size(), 5);
}

TEST_F(AdmissionTest, WhoHasComeFurtherStays) {
  const int64_t greeted = Come("a");
  admission_.SetProgress(greeted, Progress::kGreeted);
  const int64_t asked = Come("a");
  admission_.SetProgress(asked, Progress::kAsked);
  const int64_t served = ComeAndAsk("a");
  for (int i = 0; i < 50; ++i) {
    Come("a");
    EXPECT_NE(evicted_, greeted);
    EXPECT_NE(evicted_, asked);
    EXPECT_NE(evicted_, served);
  }
  EXPECT_EQ(admission_.size(), 6);
}

TEST_F(AdmissionTest, TheHostThatCrowdsPaysFirst) {
  const int64_t other = Come("b");
  for (int i = 0; i < 50; ++i) {
    const int64_t id = Come("a");
    admission_.SetProgress(id, Progress::kAsked);
    EXPECT_NE(evicted_, other) << "silent and the oldest, but alone on its host";
  }
}

TEST_F(AdmissionTest, WhomGrpcHasIsNoNewcomer) {
  const int64_t silent = Come("a");
  admission_.SetProgress(silent, Progress::kGreeted);
  admission_.HandedOver(silent, kNow);
  EXPECT_EQ(admission_.num_newcomers(), 0);
  EXPECT_EQ(admission_.FirstUnservedToGo(kNow), silent);
  for (int i = 0; i < 50; ++i) {
    Come("a");
    EXPECT_NE(evicted_, silent) << "newcomers go for newcomers";
  }
  int64_t asked = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(admission_.unserved_full());
    asked = Come("b");
    admission_.SetProgress(asked, Progress::kAsked);
    admission_.HandedOver(asked, kNow);
  }
  EXPECT_TRUE(admission_.unserved_full());
  EXPECT_EQ(admission_.FirstUnservedToGo(kNow), asked - 1) << "the oldest of the host with more than half";
  admission_.SetProgress(asked, Progress::kServed);
  EXPECT_FALSE(admission_.unserved_full());
  EXPECT_EQ(admission_.FirstUnservedToGo(kNow), silent) << "nobody has more than half: the least far";
}

TEST_F(AdmissionTest, WhoseTimeIsOverGoesBeforeWhoseIsNot) {
  int64_t id[3];
  for (int i = 0; i < 3; ++i) {
    id[i] = Come("a");
    admission_.SetProgress(id[i], i == 2 ? Progress::kGreeted : Progress::kAsked);
  }
  // The second was handed over before the first.
  admission_.HandedOver(id[1], kNow - absl::Seconds(3));
  admission_.HandedOver(id[0], kNow - absl::Seconds(2));
  admission_.HandedOver(id[2], kNow - absl::Seconds(1));
  EXPECT_EQ(admission_.FirstUnservedToGo(kNow - absl::Seconds(1)), id[2]) << "the least far";
  EXPECT_EQ(admission_.FirstUnservedToGo(kNow - absl::Seconds(2)), id[0]) << "the oldest of those whose time is over";
  EXPECT_EQ(admission_.FirstUnservedToGo(kNow - absl::Seconds(9)), id[1]) << "nobody's is: the next whose it will be";
}

TEST_F(AdmissionTest, AHostHasItsHalf) {
  for (int i = 0; i < 10; ++i) ASSERT_NE(ComeAndAsk("a"), 0);
  EXPECT_EQ(ComeAndAsk("a"), 0);
  EXPECT_NE(ComeAndAsk("b"), 0);
  admission_.Remove(1);
  EXPECT_NE(ComeAndAsk("a"), 0);
}

TEST_F(AdmissionTest, KnowsWhoseConnectionsStandInTheWay) {
  EXPECT_EQ(admission_.WhereNoPlaceIs("a", 100), std::nullopt);
  for (int i = 0; i < 10; ++i) ASSERT_NE(ComeAndAsk("a"), 0);
  EXPECT_EQ(admission_.WhereNoPlaceIs("a", 100), "a") << "it has its half";
  EXPECT_EQ(admission_.WhereNoPlaceIs("b", 100), std::nullopt);
  for (int i = 0; i < 6; ++i) ASSERT_NE(ComeAndAsk("b"), 0);
  EXPECT_EQ(admission_.WhereNoPlaceIs("b", 100), "a") << "all places are taken, most of them by a";
  EXPECT_EQ(admission_.WhereNoPlaceIs("c", 100), "a");
  admission_.Remove(1);
  EXPECT_EQ(admission_.WhereNoPlaceIs("c", 16), std::nullopt);
  EXPECT_EQ(admission_.WhereNoPlaceIs("c", 15), "a") << "fifteen are many";
}

TEST_F(AdmissionTest, AFullHostGivesUpItsSilentOnes) {
  for (int i = 0; i < 9; ++i) ASSERT_NE(ComeAndAsk("a"), 0);
  const int64_t silent = Come("a");
  const int64_t silent_elsewhere = Come("b");
  EXPECT_NE(ComeAndAsk("a"), 0);
  EXPECT_EQ(evicted_, silent);
  EXPECT_NE(evicted_, silent_elsewhere);
}

TEST_F(AdmissionTest, PlacesAreKeptForWorkersThatReturnAndForTheProcessItself) {
  for (int i = 0; i < 8; ++i) {
    ASSERT_NE(ComeAndAsk("a"), 0);
    ASSERT_NE(ComeAndAsk("b"), 0);
  }
  EXPECT_EQ(Come("c"), 0);
  for (int i = 0; i < 3; ++i) {
    const int64_t worker = Come("w", false, true);
    ASSERT_NE(worker, 0) << i;
    EXPECT_TRUE(kept_);
    admission_.SetProgress(worker, Progress::kServed);
  }
  EXPECT_EQ(Come("w", false, true), 0) << "the last place is the process's own";
  EXPECT_NE(Come("127.0.0.1", true), 0);
  EXPECT_TRUE(kept_);
}

TEST_F(AdmissionTest, WhoGoesLeavesAPlace) {
  for (int i = 0; i < 10; ++i) ComeAndAsk("a");
  for (int64_t id = 1; id <= last_id_; ++id) admission_.Remove(id);
  admission_.Remove(1);
  EXPECT_EQ(admission_.size(), 0);
  for (int i = 0; i < 10; ++i) EXPECT_NE(ComeAndAsk("a"), 0);
}

TEST(AdmissionLimitsTest, FollowTheDescriptors) {
  EXPECT_EQ(AdmissionLimitsFor(1 << 20).total, kMaxConnections);
  EXPECT_EQ(AdmissionLimitsFor(1 << 20).per_host, kMaxConnections * 5 / 8);
  EXPECT_EQ(AdmissionLimitsFor(1 << 20).newcomers, kMaxNewcomers);
  EXPECT_EQ(AdmissionLimitsFor(1 << 20).unserved, kMaxUnservedConnections);
  EXPECT_EQ(AdmissionLimitsFor(1 << 20).kept, kKeptConnections);
  // A worker has two connections: 64 of them fit behind one address.
  EXPECT_EQ(AdmissionLimitsFor(1024).total, 256);
  EXPECT_GE(AdmissionLimitsFor(1024).per_host, 2 * 64);
  EXPECT_EQ(AdmissionLimitsFor(64).total, 10);
  EXPECT_GE(AdmissionLimitsFor(0).total, 1);
}

}  // namespace
}  // namespace troupe::rpc
