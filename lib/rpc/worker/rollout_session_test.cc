#include "lib/rpc/worker/rollout_session.h"

#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/rpc/testing/said.h"
#include "lib/rpc/transport/convert.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

class RolloutSessionTest : public testing::Test {
 protected:
  v1::WorkerMessage Next() { return Said<v1::WorkerMessage>(session_.NextMessage(clock_.SteadyNow())); }
  /// Fragments are told apart by their sizes.
  size_t NextBytes() { return BytesSaid(session_.NextMessage(clock_.SteadyNow())); }
  bool SaysNothing() { return NextBytes() == 0; }
  void Submit(size_t bytes) { session_.fragments().Add(FragmentOfBytes(bytes)); }
  RolloutSession::Dropped Join(uint64_t watermark = 0, uint32_t heartbeat_interval_ms = 0) {
    v1::Welcome welcome;
    welcome.set_worker_id(7);
    welcome.set_learner_epoch(3);
    welcome.set_watermark(watermark);
    welcome.set_credit_bytes(1000);
    welcome.set_heartbeat_interval_ms(heartbeat_interval_ms);
    return session_.OnWelcome(welcome, clock_.SteadyNow());
  }
  /// Another stream, as far as its Welcome.
  RolloutSession::Dropped JoinAgain(uint64_t watermark = 0) {
    session_.EndStream();
    session_.BeginStream();
    EXPECT_TRUE(Next().has_hello());
    return Join(watermark);
  }
  void SetUp() override { session_.BeginStream(); }

  base::FakeClock clock_;
  RolloutSession session_{{.name = std::string(200, 'n'), .incarnation = 81, .permits = {4, 9}}};
};

TEST_F(RolloutSessionTest, SaysHelloAndNothingElseUntilItIsWelcomed) {
  Submit(100);
  session_.WantGoodbye();
  session_.ReportEnvs({.counters = {.errors = 1}});
  const v1::WorkerMessage hello = Next();
  ASSERT_TRUE(hello.has_hello());
  EXPECT_EQ(hello.hello().worker_id(), 0u);
  EXPECT_EQ(hello.hello().incarnation(), 81u);
  EXPECT_EQ(hello.hello().first_unacked(), 1u);
  EXPECT_EQ(hello.hello().next_sequence(), 2u);
  EXPECT_EQ(hello.hello().spec_hash(), 0u);
  EXPECT_EQ(hello.hello().name().size(), kMaxWorkerNameBytes);
  EXPECT_EQ(hello.hello().permits_size(), 2);
  EXPECT_TRUE(SaysNothing());
  Join();
  EXPECT_TRUE(session_.joined());
  EXPECT_EQ(session_.welcome().learner_epoch, 3u);
  EXPECT_TRUE(Next().has_heartbeat()) << "what it has to say of its environments comes first";
  EXPECT_EQ(NextBytes(), 100u);
  EXPECT_TRUE(SaysNothing()) << "no Goodbye while a fragment has no ack";
}

TEST_F(RolloutSessionTest, AnotherStreamBringsWhatHasNoAck) {
  Next();
  Join();
  session_.SetSpecHash(5);
  for (const size_t bytes : {101, 102, 103}) Submit(bytes);
  EXPECT_EQ(NextBytes(), 101u);
  EXPECT_EQ(NextBytes(), 102u);
  session_.fragments().OnAck({.sequence = 1, .watermark = 1});
  ASSERT_TRUE(session_.grants().Add({}).ok());
  session_.EndStream();
  EXPECT_FALSE(session_.joined());
  EXPECT_TRUE(SaysNothing());
  session_.BeginStream();
  const v1::WorkerMessage hello = Next();
  EXPECT_EQ(hello.hello().worker_id(), 7u);
  EXPECT_EQ(hello.hello().spec_hash(), 5u);
  EXPECT_EQ(hello.hello().first_unacked(), 2u);
  EXPECT_EQ(hello.hello().next_sequence(), 4u);
  const RolloutSession::Dropped dropped = Join(/*watermark=*/2);
  ASSERT_EQ(dropped.fragments.size(), 1u);
  EXPECT_EQ(dropped.fragments[0].payload_bytes, 102u);
  EXPECT_EQ(dropped.grants.size(), 1u) << "of the registration before";
  EXPECT_EQ(NextBytes(), 103u);
  EXPECT_TRUE(SaysNothing());
  EXPECT_EQ(session_.joins(), 2);
  EXPECT_EQ(JoinAgain().fragments.size(), 0u);
  EXPECT_EQ(NextBytes(), 103u);
}

TEST_F(RolloutSessionTest, BeatsWhenItHasBeenSilentForTheInterval) {
  Next();
  Join(/*watermark=*/0, /*heartbeat_interval_ms=*/1000);
  EXPECT_FALSE(session_.MaybeBeat(clock_.SteadyNow()));
  EXPECT_EQ(session_.UntilBeat(clock_.SteadyNow()), absl::Seconds(1));
  clock_.Advance(absl::Milliseconds(600));
  Submit(100);
  EXPECT_EQ(NextBytes(), 100u) << "a fragment is a sign of life, too";
  clock_.Advance(absl::Milliseconds(600));
  EXPECT_FALSE(session_.MaybeBeat(clock_.SteadyNow()));
  EXPECT_EQ(session_.UntilBeat(clock_.SteadyNow()), absl::Milliseconds(400));
  clock_.Advance(absl::Milliseconds(400));
  EXPECT_TRUE(SaysNothing());
  EXPECT_TRUE(session_.MaybeBeat(clock_.SteadyNow()));
  EXPECT_TRUE(Next().has_heartbeat());
  EXPECT_TRUE(SaysNothing());
  EXPECT_EQ(session_.UntilBeat(clock_.SteadyNow()), absl::Seconds(1));
}

TEST_F(RolloutSessionTest, NoLearnerMakesItBeatLikeMad) {
  Next();
  Join(/*watermark=*/0, /*heartbeat_interval_ms=*/1);
  EXPECT_EQ(session_.UntilBeat(clock_.SteadyNow()), kMinHeartbeatInterval);
}

TEST_F(RolloutSessionTest, IncidentsAreToldOnceToEachLearner) {
  const sample::EnvIncident broke = {sample::EnvIncident::What::kFailure, "it broke", "episode 1: it broke"};
  const sample::EnvIncident burned = {sample::EnvIncident::What::kFailure, "it burned", "episode 2: it burned"};
  Next();
  Join();
  EXPECT_TRUE(session_.ReportEnvs({.counters = {.errors = 1}, .incidents = {broke}}));
  EXPECT_EQ(Next().heartbeat().env_incidents_size(), 1);
  EXPECT_FALSE(session_.ReportEnvs({.counters = {.errors = 1}, .recent = {5, 1}})) << "the next heartbeat will do";
  EXPECT_TRUE(SaysNothing());
  Submit(100);
  EXPECT_TRUE(session_.ReportEnvs({.counters = {.errors = 2}, .incidents = {burned}}));
  const v1::WorkerMessage second = Next();
  ASSERT_EQ(second.heartbeat().env_incidents_size(), 1) << "before the fragment";
  EXPECT_EQ(second.heartbeat().env_incidents(0).kind(), "it burned");
  EXPECT_EQ(NextBytes(), 100u);
  JoinAgain(/*watermark=*/1);
  const v1::WorkerMessage again = Next();
  EXPECT_EQ(again.heartbeat().env_incidents_size(), 2);
  EXPECT_EQ(again.heartbeat().env_counters().errors(), 2);
}

TEST_F(RolloutSessionTest, WhatCallbacksTrackIsSaidInTotalsToEachLearner) {
  Next();
  Join();
  EXPECT_TRUE(session_.ReportEnvs({.tracked = {{"a", 3, 1}}}));
  EXPECT_EQ(Next().heartbeat().tracked(0).sum(), 3);
  EXPECT_FALSE(session_.ReportEnvs({.tracked = {{"a", 3, 1}}})) << "nothing is new";
  EXPECT_TRUE(session_.ReportEnvs({.tracked = {{"a", 5, 2}}, .callbacks_off = "it died"}));
  const v1::WorkerMessage second = Next();
  EXPECT_EQ(second.heartbeat().tracked(0).episodes(), 2);
  EXPECT_EQ(second.heartbeat().callbacks_off(), "it died");
  JoinAgain(/*watermark=*/0);
  EXPECT_TRUE(session_.ReportEnvs({.counters = {.errors = 1}, .tracked = {{"a", 5, 2}}, .callbacks_off = "it died"}));
  EXPECT_EQ(Next().heartbeat().tracked(0).episodes(), 2);
}

TEST_F(RolloutSessionTest, GoodbyeIsTheLastThingThatItSays) {
  Next();
  Join();
  Submit(100);
  session_.WantGoodbye();
  session_.grants().Close("drained");
  EXPECT_EQ(NextBytes(), 100u);
  EXPECT_TRUE(SaysNothing());
  session_.fragments().OnAck({.sequence = 1, .watermark = 1});
  EXPECT_FALSE(session_.said_goodbye());
  const std::optional<LinkOwner::Outgoing> goodbye = session_.NextMessage(clock_.SteadyNow());
  EXPECT_TRUE(goodbye.has_value() && goodbye->last);
  EXPECT_EQ(Said<v1::WorkerMessage>(goodbye).goodbye().reason(), "drained");
  EXPECT_TRUE(session_.said_goodbye());
  session_.MaybeBeat(clock_.SteadyNow() + absl::Hours(1));
  EXPECT_TRUE(SaysNothing());
}

TEST_F(RolloutSessionTest, TheWelcomeComesFirstAndOnce) {
  v1::LearnerMessage welcome, refusal, grant, over, ack, table, drain;
  welcome.mutable_welcome();
  refusal.mutable_refusal();
  drain.mutable_drain();
  grant.mutable_grant();
  over.mutable_grant_over();
  ack.mutable_ack();
  table.mutable_policy_table();
  for (const v1::LearnerMessage& message : {grant, over, ack, table}) {
    EXPECT_TRUE(absl::IsInvalidArgument(session_.CheckOrder(message))) << message.ShortDebugString();
  }
  for (const v1::LearnerMessage& message : {welcome, refusal, drain}) EXPECT_TRUE(session_.CheckOrder(message).ok());
  Join();
  EXPECT_TRUE(absl::IsInvalidArgument(session_.CheckOrder(welcome)));
  for (const v1::LearnerMessage& message : {refusal, drain, grant, over, ack, table}) {
    EXPECT_TRUE(session_.CheckOrder(message).ok()) << message.ShortDebugString();
  }
}

TEST_F(RolloutSessionTest, TheFirstAcceptedFragmentIsTakenOnce) {
  Submit(100);
  Submit(100);
  EXPECT_FALSE(session_.TakeFirstAccepted());
  session_.fragments().OnAck({1, 1, sample::Disposition::kStale, "too old"});
  EXPECT_FALSE(session_.TakeFirstAccepted());
  session_.fragments().OnAck({2, 2, sample::Disposition::kAccepted, ""});
  EXPECT_TRUE(session_.TakeFirstAccepted());
  EXPECT_FALSE(session_.TakeFirstAccepted());
}

}  // namespace
}  // namespace troupe::rpc
