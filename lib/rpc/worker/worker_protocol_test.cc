#include "lib/rpc/worker/worker_protocol.h"

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lib/base/clock.h"
#include "lib/policy/testing.h"
#include "lib/rpc/testing/said.h"
#include "proto/troupe/v1/weights.pb.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

class WorkerProtocolTest : public testing::Test {
 protected:
  absl::Duration now() const { return clock_.SteadyNow(); }
  WorkerProtocol::Due Due() {
    return protocol_.TakeDue(now(), [this] { return links_.Make(); });
  }
  v1::LearnerMessage Welcome(uint64_t learner_epoch = 1) const {
    v1::LearnerMessage message;
    message.mutable_welcome()->set_learner_epoch(learner_epoch);
    message.mutable_welcome()->set_worker_id(7);
    message.mutable_welcome()->set_credit_bytes(1000);
    return message;
  }
  /// Tries, and is welcomed.
  void Join(uint64_t learner_epoch = 1) {
    ASSERT_NE(Due().rollout.link, nullptr);
    protocol_.OnMessage(Welcome(learner_epoch), now());
  }
  void SetPolicies() {
    protocol_.weights().SetFirstPolicies(
        std::make_shared<const SlotPolicies>(policy::BySlot<policy::PolicySpec>{policy::SmallSpecForTesting()}));
  }
  /// The Rollout stream's link is done, and the next try due.
  void Lose(const absl::Status& status = absl::UnavailableError("lost")) {
    protocol_.OnLinkDone(protocol_.rollout_link().link().get(), status, now());
  }

  base::FakeClock clock_;
  IdleLinks links_;
  WorkerProtocol protocol_{
      {.name = "test", .incarnation = 81},
      {.address = "host:1", .reconnect_timeout = absl::Seconds(60), .tell_after = absl::Seconds(5)},
      {nullptr, "/rollout", {}, 1},
      {nullptr, "/weights", {}, 2},
      absl::ZeroDuration()};
};

// An acknowledgement made and freed some ten pieces of memory for nothing: what it handed on had a deque, which has
// memory while it is empty and makes some when it is moved from, so that its move may throw.
static_assert(std::is_nothrow_move_constructible_v<WorkerProtocol::Heard>);
static_assert(std::is_nothrow_move_constructible_v<RolloutSession::Dropped>);

TEST_F(WorkerProtocolTest, SubscribesOnceItIsRegisteredAndKnowsItsPolicies) {
  const WorkerProtocol::Due first = Due();
  ASSERT_NE(first.rollout.link, nullptr);
  EXPECT_STREQ(first.rollout.method, "/rollout");
  EXPECT_EQ(first.weights.link, nullptr);
  SetPolicies();
  EXPECT_EQ(Due().rollout.link, nullptr) << "one at a time";
  EXPECT_EQ(Due().weights.link, nullptr);
  protocol_.OnMessage(Welcome(), now());
  const WorkerProtocol::Due due = Due();
  ASSERT_NE(due.weights.link, nullptr);
  EXPECT_STREQ(due.weights.method, "/weights");
  EXPECT_TRUE(Said<v1::WorkerMessage>(protocol_.NextMessage(first.rollout.link.get(), now())).has_hello());
  EXPECT_EQ(Said<v1::SubscribeRequest>(protocol_.NextMessage(due.weights.link.get(), now())).worker_id(), 7u);
  EXPECT_FALSE(protocol_.NextMessage(links_.Make().get(), now()).has_value()) << "a link of before";
}

TEST_F(WorkerProtocolTest, ATryWithoutAWelcomeIsCancelledAfterTheHandshakesTime) {
  const auto link = Due().rollout.link;
  EXPECT_EQ(Due().next, absl::Seconds(5)) << "until it tells that the learner is away";
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(Due().away, "no learner, trying again learner=host:1 reason=\"no answer\"");
  EXPECT_EQ(Due().next, kHandshakeTimeout - absl::Seconds(5));
  clock_.Advance(kHandshakeTimeout);
  EXPECT_EQ(Due().cancel, link);
  EXPECT_EQ(Due().cancel, nullptr);
  Lose(absl::CancelledError("by this end"));
  EXPECT_EQ(protocol_.presence().Unavailable("is away").message(), "learner at host:1 is away: no answer");
  EXPECT_GT(Due().next, absl::ZeroDuration());
  clock_.Advance(absl::Seconds(1));
  const auto again = Due().rollout;
  EXPECT_NE(again.link, nullptr);
  EXPECT_TRUE(again.wait_for_ready);
  protocol_.OnMessage(Welcome(4), now());
  EXPECT_EQ(Due().there, 4u);
  EXPECT_EQ(Due().there, std::nullopt);
}

TEST_F(WorkerProtocolTest, BeatsWhileItIsJoined) {
  Join();
  EXPECT_EQ(Due().kick, nullptr);
  EXPECT_EQ(Due().next, kHeartbeatInterval);
  clock_.Advance(kHeartbeatInterval);
  const WorkerProtocol::Due due = Due();
  EXPECT_EQ(due.kick, protocol_.rollout_link().link());
  EXPECT_TRUE(Said<v1::WorkerMessage>(protocol_.NextMessage(due.kick.get(), now())).has_hello());
  EXPECT_TRUE(Said<v1::WorkerMessage>(protocol_.NextMessage(due.kick.get(), now())).has_heartbeat());
}

TEST_F(WorkerProtocolTest, ALearnerThatStaysAwayIsGoneForGood) {
  Join();
  clock_.Advance(absl::Hours(1));
  Lose();
  clock_.Advance(absl::Seconds(59));
  Due();
  Lose();
  EXPECT_FALSE(protocol_.ended());
  clock_.Advance(absl::Seconds(1));
  Due();
  Lose(absl::UnavailableError("refused"));
  EXPECT_EQ(protocol_.end_status(), absl::UnavailableError("learner at host:1 is gone: refused"));
}

TEST_F(WorkerProtocolTest, WhatNoOtherTryCanHealEndsIt) {
  for (const absl::Status& status :
       {absl::FailedPreconditionError("spec"), absl::InvalidArgumentError("words"), absl::UnimplementedError("no")}) {
    WorkerProtocol protocol({}, {.reconnect_timeout = absl::Hours(1)}, {nullptr, "/r", {}, 1}, {nullptr, "/w", {}, 2},
                            now());
    protocol.TakeDue(now(), [this] { return links_.Make(); });
    protocol.OnLinkDone(protocol.rollout_link().link().get(), status, now());
    EXPECT_EQ(protocol.end_status(), status);
  }
  Join();
  for (const absl::Status& status : {absl::OkStatus(), absl::AbortedError(""), absl::ResourceExhaustedError("")}) {
    Lose(status);
    EXPECT_FALSE(protocol_.ended());
    clock_.Advance(absl::Seconds(3));
    EXPECT_NE(Due().rollout.link, nullptr);
  }
}

TEST_F(WorkerProtocolTest, ARunThatIsOverIsADrainAndAnyOtherRefusalTheStreamsMatter) {
  Join();
  ASSERT_TRUE(protocol_.session().grants().Add({}).ok());
  v1::LearnerMessage refusal;
  refusal.mutable_refusal()->set_reason(v1::REFUSAL_REASON_REJECTED);
  refusal.mutable_refusal()->set_message("full");
  protocol_.OnMessage(refusal, now());
  EXPECT_FALSE(protocol_.ended());
  refusal.mutable_refusal()->set_reason(v1::REFUSAL_REASON_DRAINING);
  refusal.mutable_refusal()->set_message("the run is over");
  EXPECT_EQ(protocol_.OnMessage(refusal, now()).grants.size(), 1u);
  EXPECT_EQ(protocol_.end_status(), absl::CancelledError("the run is over"));
  EXPECT_EQ(protocol_.session().grants().close_reason(), "the run is over");
}

TEST_F(WorkerProtocolTest, AfterGoodbyeTheEndOfTheStreamIsTheEnd) {
  Join();
  protocol_.session().WantGoodbye();
  const ClientLink* const link = protocol_.rollout_link().link().get();
  EXPECT_TRUE(Said<v1::WorkerMessage>(protocol_.NextMessage(link, now())).has_hello());
  EXPECT_TRUE(Said<v1::WorkerMessage>(protocol_.NextMessage(link, now())).has_goodbye());
  Lose(absl::OkStatus());
  EXPECT_EQ(protocol_.end_status(), absl::CancelledError("drained"));
}

TEST_F(WorkerProtocolTest, WordsThatAreNoneEndIt) {
  Join();
  v1::LearnerMessage ack;
  ack.mutable_ack()->set_sequence(1);
  protocol_.OnMessage(ack, now());
  EXPECT_TRUE(absl::IsInvalidArgument(protocol_.end_status())) << protocol_.end_status();
  protocol_.End(absl::CancelledError("closed"));
  EXPECT_TRUE(absl::IsInvalidArgument(protocol_.end_status())) << "the first error counts";
}

TEST_F(WorkerProtocolTest, TheFirstAcceptedAndTheFirstInvalidFragmentAreTold) {
  Join();
  v1::LearnerMessage ack;
  const auto told = [&](v1::Disposition disposition) {
    ack.mutable_ack()->set_disposition(disposition);
    const WorkerProtocol::Heard heard = protocol_.OnMessage(ack, now());
    return std::vector<bool>{heard.first_accepted, heard.first_invalid};
  };
  EXPECT_EQ(told(v1::DISPOSITION_STALE), std::vector<bool>({false, false}));
  EXPECT_EQ(told(v1::DISPOSITION_INVALID), std::vector<bool>({false, true}));
  EXPECT_EQ(told(v1::DISPOSITION_INVALID), std::vector<bool>({false, false}));
  EXPECT_EQ(told(v1::DISPOSITION_ACCEPTED), std::vector<bool>({true, false}));
  EXPECT_EQ(told(v1::DISPOSITION_ACCEPTED), std::vector<bool>({false, false}));
}

TEST_F(WorkerProtocolTest, AnotherLearnerEpochBringsTheFirstPoliciesBack) {
  SetPolicies();
  Join(/*learner_epoch=*/1);
  const auto spec = policy::SmallSpecForTesting();
  const policy::PolicyTablePtr table =
      *(*policy::PolicyTable::Make({spec}, {true}, {{"*", {{spec.id, 1.0}}}}, {"agent"}))->SetTrains(spec.id, false);
  protocol_.weights().OnTable(table, std::make_shared<const SlotPolicies>(*table));
  v1::LearnerMessage grant;
  grant.mutable_grant()->add_lanes()->set_env_steps(1);
  protocol_.OnMessage(grant, now());
  EXPECT_EQ(protocol_.session().grants().Take().policies, table) << "a grant goes by the newest table";
  for (const uint64_t epoch : {1u, 2u}) {
    Lose();
    clock_.Advance(absl::Seconds(3));
    Join(epoch);
    EXPECT_EQ(protocol_.weights().table(), epoch == 1 ? table : nullptr);
  }
}

TEST_F(WorkerProtocolTest, WeightsAreWaitedForAsLongAsTheGrantAndTheClientLast) {
  SetPolicies();
  Join();
  const auto find = [this] { return protocol_.FindWeights(policy::PolicySlot(0), {1, 0}).status(); };
  sample::Grant grant;
  grant.id = sample::GrantId(11);
  ASSERT_TRUE(protocol_.session().grants().Add(grant).ok());
  protocol_.session().grants().Take();
  EXPECT_TRUE(find().ok());
  protocol_.session().grants().OnOver(sample::GrantId(11));
  EXPECT_TRUE(absl::IsAborted(find())) << find();
  ASSERT_TRUE(protocol_.session().grants().Add({}).ok());
  protocol_.session().grants().Take();
  protocol_.session().grants().Close("drained");
  EXPECT_EQ(find(), absl::CancelledError("drained"));
  protocol_.End(absl::UnavailableError("gone"));
  EXPECT_EQ(find(), absl::UnavailableError("gone"));
}

TEST_F(WorkerProtocolTest, AnotherSpecThanOursIsRefused) {
  v1::Welcome welcome;
  welcome.set_spec_hash(0xab);
  EXPECT_TRUE(protocol_.CheckSpec(welcome).ok()) << "not known yet";
  protocol_.session().SetSpecHash(0xcd);
  EXPECT_EQ(protocol_.CheckSpec(welcome),
            absl::FailedPreconditionError("the learner that answers now has spec ab, but this worker was built from "
                                          "cd: start the worker again"));
}

}  // namespace
}  // namespace troupe::rpc
