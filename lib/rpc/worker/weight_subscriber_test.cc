#include "lib/rpc/worker/weight_subscriber.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/policy/testing.h"
#include "lib/rpc/testing/said.h"
#include "proto/troupe/v1/weights.pb.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using policy::PolicySlot;

policy::PolicySpec SpecOfId(const std::string& id) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.id = policy::PolicyId(id);
  return spec;
}

/// Policies "a" in slot 0 and "b" in slot 1, and tables in which "c" takes b's slot.
class WeightSubscriberTest : public testing::Test {
 protected:
  void SetUp() override {
    subscriber_.SetFirstPolicies(
        std::make_shared<const SlotPolicies>(policy::BySlot<policy::PolicySpec>{SpecOfId("a"), SpecOfId("b")}));
    first_ = *policy::PolicyTable::Make({SpecOfId("a"), SpecOfId("b")}, {true, true},
                                        {{"*", {{policy::PolicyId("a"), 1.0}}}}, {"agent"});
    const PolicySlot freed[] = {PolicySlot(1)};
    other_ = *(*(*first_->Remove(policy::PolicyId("b")))->Release(freed))->Add(SpecOfId("c"), true);
    subscriber_.BeginStream();
  }
  /// The next request in short: "2 +0,1 -3"; "" for none.
  std::string NextRequest() {
    const std::optional<LinkOwner::Outgoing> next = subscriber_.NextRequest(sample::WorkerId(7), 5);
    if (!next.has_value()) return "";
    const auto request = Said<v1::SubscribeRequest>(next);
    EXPECT_EQ(request.number() == 1, request.worker_id() == 7 && request.spec_hash() == 5 && request.has_protocol());
    std::string text = absl::StrCat(request.number());
    if (request.add_size() > 0) absl::StrAppend(&text, " +", absl::StrJoin(request.add(), ","));
    if (request.remove_size() > 0) absl::StrAppend(&text, " -", absl::StrJoin(request.remove(), ","));
    return text;
  }
  /// Whether weights that came while `policies` were expected are news.
  bool Receive(int32_t slot, policy::WeightVersion version, const SlotPolicies& policies) {
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->version = version;
    return subscriber_.OnUpdate({PolicySlot(slot), snapshot, version, 0}, policies).news;
  }
  bool Receive(int32_t slot, policy::WeightVersion version) {
    return Receive(slot, version, *subscriber_.reception().policies);
  }
  void Announce(uint64_t number, policy::WeightVersion version) {
    EXPECT_TRUE(subscriber_.OnUpdate({PolicySlot(), nullptr, version, number}, *subscriber_.reception().policies).news);
  }
  WeightSubscriber::Dropped Take(const policy::PolicyTablePtr& table) {
    EXPECT_TRUE(subscriber_.CheckTable(*table, 1).ok());
    return subscriber_.OnTable(table, std::make_shared<const SlotPolicies>(*table));
  }
  /// The version as of which the slot's weights are current, if that is at least `n` of epoch 1; -1: none, -2: gone.
  int64_t Find(int32_t slot, int64_t n = 0) {
    const auto found = subscriber_.Find(PolicySlot(slot), {1, n});
    if (!found.ok()) return -2;
    return found->has_value() ? (*found)->version.n : -1;
  }

  WeightSubscriber subscriber_;
  policy::PolicyTablePtr first_, other_;
};

TEST_F(WeightSubscriberTest, RequestsAreNumberedAndSayWhatHasChanged) {
  EXPECT_EQ(NextRequest(), "1") << "who has nothing to ask for says hello";
  EXPECT_EQ(NextRequest(), "");
  EXPECT_TRUE(subscriber_.Subscribe(PolicySlot(0)));
  EXPECT_FALSE(subscriber_.Subscribe(PolicySlot(0)));
  EXPECT_TRUE(subscriber_.Subscribe(PolicySlot(1)));
  EXPECT_EQ(NextRequest(), "2 +0,1");
  EXPECT_EQ(NextRequest(), "");
  EXPECT_TRUE(subscriber_.Unsubscribe(PolicySlot(1)).has_value());
  EXPECT_FALSE(subscriber_.Unsubscribe(PolicySlot(1)).has_value());
  EXPECT_TRUE(subscriber_.Subscribe(PolicySlot(1023)));
  EXPECT_EQ(NextRequest(), "3 +1023 -1");
  EXPECT_TRUE(subscriber_.Subscribe(PolicySlot(1)));
  EXPECT_TRUE(subscriber_.Unsubscribe(PolicySlot(1)).has_value());
  EXPECT_EQ(NextRequest(), "4") << "changes that cancel each other out";
  EXPECT_TRUE(subscriber_.Unsubscribe(PolicySlot(0)).has_value());
  EXPECT_TRUE(subscriber_.Subscribe(PolicySlot(0)));
  EXPECT_EQ(NextRequest(), "5 +0") << "its weights were dropped";
}

TEST_F(WeightSubscriberTest, AnotherStreamAsksForEverythingAgain) {
  subscriber_.Subscribe(PolicySlot(0));
  EXPECT_EQ(NextRequest(), "1 +0");
  const auto before = subscriber_.reception().assembler;
  EXPECT_TRUE(Receive(0, {1, 3}));
  Announce(1, {1, 5});
  EXPECT_EQ(Find(0), 5);
  subscriber_.BeginStream();
  EXPECT_NE(subscriber_.reception().assembler, before);
  EXPECT_EQ(Find(0), 3) << "what this stream announces is not known yet";
  EXPECT_EQ(NextRequest(), "1 +0");
}

TEST_F(WeightSubscriberTest, AnAnnouncementCoversWhatWasAskedForUpToItsNumber) {
  subscriber_.Subscribe(PolicySlot(0));
  EXPECT_EQ(NextRequest(), "1 +0");
  EXPECT_EQ(Find(0), -1);
  EXPECT_TRUE(Receive(0, {1, 3}));
  EXPECT_EQ(Find(0), 3);
  EXPECT_EQ(Find(0, 4), -1);
  Announce(1, {1, 4});
  EXPECT_EQ(Find(0, 4), 4);
  subscriber_.Subscribe(PolicySlot(1));
  EXPECT_TRUE(Receive(1, {1, 0})) << "it may come before the request is written: of an older one";
  EXPECT_EQ(NextRequest(), "2 +1");
  EXPECT_EQ(Find(1), 0) << "request 2 is not covered by announcement 1";
  Announce(2, {1, 4});
  EXPECT_EQ(Find(1), 4);
}

TEST_F(WeightSubscriberTest, WeightsNeverBecomeOlderAndOfWhatIsNotWantedAreNotKept) {
  EXPECT_FALSE(Receive(0, {1, 3}));
  subscriber_.Subscribe(PolicySlot(0));
  EXPECT_TRUE(Receive(0, {1, 3}));
  EXPECT_FALSE(Receive(0, {1, 3}));
  EXPECT_FALSE(Receive(0, {1, 2}));
  EXPECT_TRUE(Receive(0, {2, 0})) << "another epoch's are newer";
  const auto dropped = subscriber_.Unsubscribe(PolicySlot(0));
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ((*dropped)->version, (policy::WeightVersion{2, 0}));
  EXPECT_EQ(Find(0), -1);
}

TEST_F(WeightSubscriberTest, ATableThatBringsAnotherPolicyDropsTheWeightsOfItsSlot) {
  for (const int32_t slot : {0, 1}) subscriber_.Subscribe(PolicySlot(slot));
  EXPECT_EQ(NextRequest(), "1 +0,1");
  for (const int32_t slot : {0, 1}) EXPECT_TRUE(Receive(slot, {1, 3}));
  const SlotPoliciesPtr before = subscriber_.reception().policies;
  EXPECT_EQ(Take(other_).size(), 1u);
  EXPECT_EQ(Find(0), 3) << "the others stay";
  EXPECT_EQ(Find(1), -1);
  EXPECT_EQ(NextRequest(), "2 +1");
  EXPECT_FALSE(Receive(1, {1, 4}, *before)) << "begun before the table came";
  EXPECT_TRUE(Receive(0, {1, 4}, *before)) << "of the policy that it still has";
  EXPECT_TRUE(Receive(1, {1, 4}));
  EXPECT_TRUE(Take(other_).empty()) << "the same again, by another stream";
  EXPECT_EQ(Find(1), 4);
}

TEST_F(WeightSubscriberTest, ATableThatIsOlderIsRefusedUntilTheLearnerIsAnother) {
  const policy::PolicyTablePtr newer = *other_->Add(SpecOfId("d"), true);
  Take(newer);
  EXPECT_EQ(subscriber_.table(), newer);
  const absl::Status refused = subscriber_.CheckTable(*other_, 6);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(refused.message(), absl::StrCat("policy table: revision ", other_->revision(), " after ", newer->revision(),
                                            " in learner epoch 6"));
  subscriber_.Subscribe(PolicySlot(1));
  EXPECT_TRUE(Receive(1, {1, 3}));
  EXPECT_EQ(subscriber_.OnNewLearnerEpoch().size(), 1u) << "its policies are those of the run's start again";
  EXPECT_EQ(subscriber_.table(), nullptr);
  EXPECT_TRUE(subscriber_.CheckTable(*other_, 7).ok());
}

TEST_F(WeightSubscriberTest, AGrantGoesByThePoliciesOfItsTable) {
  for (const int32_t slot : {0, 1}) subscriber_.Subscribe(PolicySlot(slot));
  subscriber_.OnGrantTaken(nullptr);
  Take(other_);
  EXPECT_EQ(Find(0), -1);
  EXPECT_EQ(Find(1), -2) << "the grant's policy is gone";
  subscriber_.OnGrantTaken(other_);
  EXPECT_EQ(Find(1), -1);
  subscriber_.OnGrantTaken(first_->AtLeast(1));
  EXPECT_EQ(Find(1), -2) << "a grant that waited while a newer table came";
}

TEST(WeightSubscriberStartTest, ATableMayComeBeforeTheConfigurationIsRead) {
  const policy::PolicyTablePtr table =
      *policy::PolicyTable::Make({SpecOfId("a")}, {true}, {{"*", {{policy::PolicyId("a"), 1.0}}}}, {"agent"});
  const policy::PolicyTablePtr grown = *table->Add(SpecOfId("b"), true);
  WeightSubscriber subscriber;
  EXPECT_FALSE(subscriber.has_policies());
  subscriber.OnTable(grown, std::make_shared<const SlotPolicies>(*grown));
  EXPECT_FALSE(subscriber.has_policies());
  subscriber.SetFirstPolicies(std::make_shared<const SlotPolicies>(policy::BySlot<policy::PolicySpec>{SpecOfId("a")}));
  ASSERT_TRUE(subscriber.has_policies());
  EXPECT_EQ(subscriber.reception().policies->specs.size(), 2u);
}

}  // namespace
}  // namespace troupe::rpc
