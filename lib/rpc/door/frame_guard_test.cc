#include "lib/rpc/door/frame_guard.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/rpc/door/frame.h"
#include "lib/rpc/door/testing/frame_guard_fixture.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using FrameGuardTest = FrameGuardFixture;

TEST_F(FrameGuardTest, AnHonestCallPasses) {
  EXPECT_EQ(guard_->progress(), Progress::kSilent);
  EXPECT_TRUE(Send(kHello + FrameOf(kSettingsFrame, 0, 0)));
  EXPECT_EQ(guard_->progress(), Progress::kGreeted);
  EXPECT_TRUE(Send(Call(1)));
  EXPECT_EQ(guard_->progress(), Progress::kAsked);
  EXPECT_FALSE(guard_->request_pending());
  EXPECT_TRUE(Send(FrameOf(kDataFrame, kEndStream, 1, MessageOf(1000, std::string(1000, 'x')))));
  EXPECT_TRUE(guard_->request_pending());
  EXPECT_EQ(totals_.unserved_calls, 1);
  EXPECT_EQ(totals_.silent_calls, 0);
  Serve(FrameOf(kSettingsFrame, 0, 0) + Answer(1));
  EXPECT_EQ(guard_->progress(), Progress::kServed);
  EXPECT_FALSE(guard_->request_pending());
  EXPECT_FALSE(guard_->has_open_calls());
  EXPECT_EQ(Why(), "");
}

TEST_F(FrameGuardTest, ARefusedCallIsNoServedOne) {
  EXPECT_TRUE(Send(kHello + Call(1)));
  Serve(Refusal(1));
  EXPECT_EQ(guard_->progress(), Progress::kAsked);
  EXPECT_FALSE(guard_->has_open_calls());
}

TEST_F(FrameGuardTest, AnotherProtocolIsRefusedAtItsFirstByte) {
  EXPECT_FALSE(Send("GET / HTTP/1.1"));
  EXPECT_EQ(Why(), "no HTTP/2 connection preface");
}

TEST_F(FrameGuardTest, HalfAFrameHeaderWaits) {
  const std::string call = Call(1);
  EXPECT_FALSE(Send(kHello.substr(0, 10)));
  EXPECT_EQ(held_.size(), 10u);
  EXPECT_FALSE(Send(kHello.substr(10) + call.substr(0, 5)));
  EXPECT_EQ(held_, call.substr(0, 5));
  EXPECT_TRUE(Send(call.substr(5)));
}

TEST_F(FrameGuardTest, ATooLargeMessageIsRefusedAtItsPrefix) {
  EXPECT_TRUE(Send(kHello + Call(1) + Call(3)));
  EXPECT_FALSE(Send(FrameOf(kDataFrame, 0, 3, MessageOf(1001, "x"))));
  EXPECT_EQ(Why(), "a message of 1001 bytes, at most 1000");
  EXPECT_EQ(guard_->violation()->stream, 3u);
}

// Message and frame have nothing to do with each other: a prefix may lie across frames, and two messages in one.
TEST_F(FrameGuardTest, AMessageMayLieAnyhowInFrames) {
  EXPECT_TRUE(Send(kHello + Call(1)));
  const std::string two = MessageOf(3, "abc") + MessageOf(0, "") + MessageOf(1000, std::string(1000, 'x'));
  for (const char byte : two) EXPECT_TRUE(Send(FrameOf(kDataFrame, 0, 1, std::string(1, byte))));
  EXPECT_TRUE(Send(FrameOf(kDataFrame, 0, 1, two + MessageOf(1001, "").substr(0, 4))));
  EXPECT_FALSE(Send(FrameOf(kDataFrame, 0, 1, MessageOf(1001, "").substr(4))));
  EXPECT_EQ(Why(), "a message of 1001 bytes, at most 1000");
}

TEST_F(FrameGuardTest, PaddingIsNoPartOfAMessage) {
  EXPECT_TRUE(Send(kHello + Call(1)));
  const std::string padded = std::string(1, '\x3') + MessageOf(2, "ab") + std::string(3, '\xff');
  EXPECT_TRUE(Send(FrameOf(kDataFrame, kPadded, 1, padded)));
  EXPECT_TRUE(Send(FrameOf(kDataFrame, 0, 1, MessageOf(1, "c"))));
  EXPECT_FALSE(Send(FrameOf(kDataFrame, kPadded, 1, "\x05xyz")));
  EXPECT_EQ(Why(), "a frame of data with more padding than bytes");
}

TEST_F(FrameGuardTest, MessagesThatAreNotWholeAreBoundedTogether) {
  limits_.max_unfinished_bytes = 1500;
  Restart();
  const auto part = [](uint32_t stream, const std::string& bytes) { return FrameOf(kDataFrame, 0, stream, bytes); };
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3) + Call(5)));
  ASSERT_TRUE(Send(part(1, MessageOf(1000, std::string(900, 'x')))));
  ASSERT_TRUE(Send(part(3, MessageOf(1000, std::string(600, 'x')))));
  EXPECT_EQ(guard_->unfinished_bytes(), 1500u);
  ASSERT_TRUE(Send(part(1, std::string(100, 'x'))));
  EXPECT_EQ(guard_->unfinished_bytes(), 600u) << "the first one is whole";
  ASSERT_TRUE(Send(part(5, MessageOf(1000, std::string(900, 'x')))));
  ASSERT_TRUE(Send(Reset(3)));
  EXPECT_EQ(guard_->unfinished_bytes(), 900u) << "nobody waits for the second one";
  ASSERT_TRUE(Send(part(1, MessageOf(1000, std::string(600, 'x')))));
  EXPECT_FALSE(Send(part(5, "x")));
  EXPECT_EQ(Why(), "1501 bytes of messages that are not whole, at most 1500");
  EXPECT_EQ(guard_->violation()->stream, 5u);
}

TEST_F(FrameGuardTest, AConnectionIsSlowWhenAMessageTakesLongAndLittleComes) {
  const auto slow = [this] { return guard_->IsSlow(now_, absl::Seconds(2), 100); };
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3)));
  now_ += absl::Seconds(60);
  EXPECT_FALSE(slow()) << "a call without a message may last";
  EXPECT_EQ(Holding(), 0);
  ASSERT_TRUE(Send(FrameOf(kDataFrame, 0, 1, MessageOf(1000, std::string(95, 'x')))));
  now_ += absl::Seconds(2);
  EXPECT_FALSE(slow());
  now_ += absl::Seconds(1);
  EXPECT_TRUE(slow());
  EXPECT_NEAR(Holding(), 3, 1e-9);
  ASSERT_TRUE(Send(FrameOf(kDataFrame, 0, 3, MessageOf(900, std::string(200, 'x')))));
  EXPECT_FALSE(slow()) << "all messages share the connection: 300 bytes in 3 s";
  now_ += absl::Seconds(2);
  EXPECT_TRUE(slow());
  ASSERT_TRUE(Send(FrameOf(kDataFrame, 0, 1, std::string(905, 'x'))));
  EXPECT_FALSE(slow()) << "it is whole, and the other one has just begun";
  now_ += absl::Seconds(20);
  EXPECT_TRUE(slow());
  guard_->RestartMessages(now_);
  EXPECT_FALSE(slow());
  now_ += absl::Seconds(20);
  for (uint32_t stream = 5; stream < 9; stream += 2) ASSERT_TRUE(Send(Call(stream) + Reset(stream)));
  ASSERT_TRUE(Send(Reset(3)));
  EXPECT_FALSE(slow()) << "its client waits for it no more";
}

TEST_F(FrameGuardTest, ResetsBeyondTheirRateAreHeldUntilTheirTimeComes) {
  StartServed();
  const std::string five = Reset(3) + Reset(5) + Reset(7) + Reset(9) + Reset(11);
  ASSERT_TRUE(Send(Call(3) + Call(5) + Call(7) + Call(9) + Call(11) + Call(13) + five + Reset(11)));
  EXPECT_EQ(passed_, Call(3) + Call(5) + Call(7) + Call(9) + Call(11) + Call(13) + five.substr(0, 4 * Reset(1).size()));
  EXPECT_TRUE(guard_->holds_resets());
  guard_->ReleaseResets(now_);
  EXPECT_EQ(Injected(), "");
  now_ += absl::Seconds(1);
  ASSERT_TRUE(Send(FrameOf(kDataFrame, 0, 13, MessageOf(9, "12345")).substr(0, 12)));
  guard_->ReleaseResets(now_);
  EXPECT_FALSE(guard_->client_between_frames());
  EXPECT_EQ(guard_->for_server(), Reset(11)) << "between two frames of the client";
  EXPECT_FALSE(guard_->holds_resets());
  passed_.clear();
  EXPECT_FALSE(Send(FrameOf(kDataFrame, 0, 13, MessageOf(9, "12345")).substr(12) + Call(15)));
  EXPECT_EQ(held_, Call(15)) << "the reset has to go first";
  EXPECT_TRUE(guard_->client_between_frames());
  Injected();
  EXPECT_TRUE(Send(""));
  EXPECT_EQ(Why(), "");
}

// Bytes of a call that was reset never become whole, and lie in gRPC until it hears of the reset.
TEST_F(FrameGuardTest, WhoHasBytesBehindAHeldResetIsTheSlowest) {
  StartServed();
  for (uint32_t stream = 3; stream < 11; stream += 2) ASSERT_TRUE(Send(Call(stream) + Reset(stream)));
  ASSERT_TRUE(Send(Call(11) + FrameOf(kDataFrame, 0, 11, MessageOf(900, std::string(500, 'x')))));
  EXPECT_LT(Holding(), 10);
  ASSERT_TRUE(Send(Reset(11)));
  ASSERT_TRUE(guard_->holds_resets());
  EXPECT_GT(Holding(), 1e9);
}

TEST_F(FrameGuardTest, AHeldResetIsOverWhenTheServerEndsTheCall) {
  StartServed();
  for (uint32_t stream = 3; stream < 13; stream += 2) ASSERT_TRUE(Send(Call(stream) + Reset(stream)));
  ASSERT_TRUE(guard_->holds_resets());
  Serve(Refusal(11));
  EXPECT_FALSE(guard_->holds_resets());
  EXPECT_FALSE(guard_->has_open_calls());
  now_ += absl::Seconds(10);
  guard_->ReleaseResets(now_);
  EXPECT_EQ(Injected(), "");
}

TEST_F(FrameGuardTest, BeforeTheFirstAnswerFewResetsGoOn) {
  ASSERT_TRUE(Send(kHello + Call(1) + Reset(1) + Call(3) + Reset(3)));
  EXPECT_FALSE(guard_->holds_resets());
  ASSERT_TRUE(Send(Call(5) + Reset(5)));
  EXPECT_TRUE(guard_->holds_resets());
  EXPECT_EQ(totals_.resets.Level(now_), 20) << "they take none from the others";
}

TEST_F(FrameGuardTest, OnceAllHaveResetManyEachMayResetFew) {
  StartServed();
  while (totals_.resets.Take(now_)) continue;
  ASSERT_TRUE(Send(Call(3) + Reset(3) + Call(5) + Reset(5)));
  EXPECT_FALSE(guard_->holds_resets());
  ASSERT_TRUE(Send(Call(7) + Reset(7)));
  EXPECT_TRUE(guard_->holds_resets());

  Restart();
  ASSERT_TRUE(Send(kHello));
  uint32_t stream = 1;
  for (int i = 0; i < 3; ++i, stream += 2) {
    ASSERT_TRUE(Send(Call(stream)));
    Serve(Answer(stream));
  }
  for (int i = 0; i < 3; ++i, stream += 2) ASSERT_TRUE(Send(Call(stream) + Reset(stream)));
  EXPECT_FALSE(guard_->holds_resets()) << "as many as were answered";
  ASSERT_TRUE(Send(Call(stream) + Reset(stream)));
  EXPECT_TRUE(guard_->holds_resets());
}

TEST_F(FrameGuardTest, AnAnsweredCallPermitsAReset) {
  ASSERT_TRUE(Send(kHello));
  for (uint32_t stream = 1; stream < 101; stream += 4) {
    ASSERT_TRUE(Send(Call(stream) + Call(stream + 2) + Reset(stream + 2))) << stream;
    ASSERT_FALSE(guard_->holds_resets());
    Serve(Answer(stream));
  }
}

// A stream that is asked once, and let go of.
TEST_F(FrameGuardTest, ACallThatWasAnsweredMayBeReset) {
  ASSERT_TRUE(Send(kHello));
  for (uint32_t stream = 1; stream < 201; stream += 2) {
    ASSERT_TRUE(Send(Call(stream)));
    Serve(FrameOf(kDataFrame, 0, stream, "answer"));
    ASSERT_TRUE(Send(Reset(stream)));
    ASSERT_FALSE(guard_->holds_resets()) << stream;
  }
}

// A deadline passes on both sides: the server ends the call, and the client's reset comes after that.
TEST_F(FrameGuardTest, WhatComesForACallThatIsOverGoesNowhere) {
  ASSERT_TRUE(Send(kHello + Call(1)));
  Serve(Refusal(1));
  passed_.clear();
  ASSERT_TRUE(Send(Reset(1) + FrameOf(kWindowUpdateFrame, 0, 1, "1234") + Reset(7)));
  EXPECT_EQ(passed_, "");
  ASSERT_TRUE(Send(FrameOf(kDataFrame, 0, 1, "late") + FrameOf(kWindowUpdateFrame, 0, 0, "1234")));
  EXPECT_EQ(passed_, FrameOf(kDataFrame, 0, 1, "late") + FrameOf(kWindowUpdateFrame, 0, 0, "1234"))
      << "gRPC counts the data, and the window is the connection's";
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Send(Reset(1)));
  EXPECT_EQ(Why(), "");
}

TEST_F(FrameGuardTest, WorkWithoutAnAnswerHasARate) {
  limits_.work = {100, 1000};
  const std::vector<std::string> floods = {FrameOf(kSettingsFrame, 1, 0),
                                           FrameOf(kPingFrame, 1, 0, "12345678"),
                                           FrameOf(kWindowUpdateFrame, 0, 0, "1234"),
                                           FrameOf(kDataFrame, 0, 1),
                                           FrameOf(kDataFrame, 0, 1, MessageOf(0, "")),
                                           FrameOf(2, 0, 1, "12345"),
                                           FrameOf(77, 0, 1, "12345"),
                                           Call(1),
                                           Reset(99)};
  for (const std::string& frame : floods) {
    Restart();
    ASSERT_TRUE(Send(kHello + Call(1)));
    int before = 0;
    while (before <= 1000 && Send(frame)) ++before;
    EXPECT_LE(before, 1000) << static_cast<int>(frame[3]);
    EXPECT_TRUE(guard_->waits());
    EXPECT_EQ(held_, frame);
    now_ += absl::Milliseconds(100);
    EXPECT_TRUE(Send("")) << "it is slowed down, not closed";
    EXPECT_EQ(Why(), "");
  }
}

TEST_F(FrameGuardTest, AllConnectionsTogetherHaveARateOfWorkAndWhoeverUsesLittleIsNotSlowed) {
  FrameLimits limits = limits_;
  limits.work = {200, 1};
  limits.work_of_all = {100, 1};
  FrameTotals few(limits, now_);
  FrameGuard busy(limits, &few, "10.0.0.1", now_), other(limits, &few, "10.0.0.1", now_);
  std::string calls = kHello + Call(1) + Call(3) + Call(5) + Call(7);
  EXPECT_EQ(busy.OnClientBytes(calls.data(), calls.size(), now_).taken, calls.size() - Call(7).size());
  EXPECT_TRUE(busy.waits());
  std::string bytes = kHello + Call(1);
  EXPECT_EQ(other.OnClientBytes(bytes.data(), bytes.size(), now_).taken, bytes.size());
  EXPECT_FALSE(other.waits());
}

TEST_F(FrameGuardTest, AnAddressHasARateOfWorkAndOthersAreNotSlowed) {
  FrameLimits limits = limits_;
  limits.work = {100, 1};
  limits.work_of_address = {100, 1};
  FrameTotals totals(limits, now_);
  const auto taken = [this](FrameGuard& guard) {
    std::string calls = kHello + Call(1) + Call(3) + Call(5);
    return guard.OnClientBytes(calls.data(), calls.size(), now_).taken / Call(1).size();
  };
  const size_t all = (kHello + Call(1) + Call(3) + Call(5)).size() / Call(1).size();
  FrameGuard first(limits, &totals, "10.0.0.1", now_), second(limits, &totals, "10.0.0.1", now_);
  EXPECT_EQ(taken(first), all);
  EXPECT_EQ(taken(second), all - 1) << "it has used half of its own, and its address all";
  FrameGuard other(limits, &totals, "10.0.0.2", now_);
  EXPECT_EQ(taken(other), all);
  EXPECT_EQ(totals.addresses.size(), 2u);
}

// grpc-go and grpc-java send a PING for each answer; 16 query streams 2.56 window updates for each.
TEST_F(FrameGuardTest, WhatTheServerSendsPaysForWhatItsClientSends) {
  limits_.work = {100, 0.001};
  Restart();
  ASSERT_TRUE(Send(kHello));
  for (uint32_t stream = 1; stream < 20'001; stream += 2) {
    ASSERT_TRUE(Send(Call(stream) + FrameOf(kPingFrame, 0, 0, "12345678") + FrameOf(kWindowUpdateFrame, 0, 0, "1234") +
                     FrameOf(kWindowUpdateFrame, 0, stream, "1234") + FrameOf(kWindowUpdateFrame, 0, stream, "1234")))
        << stream;
    Serve(Answer(stream) + FrameOf(kPingFrame, 1, 0, "12345678"));
  }
}

TEST_F(FrameGuardTest, WhoDoesNotReadWhatItIsOwedIsNotRead) {
  const std::string ping = FrameOf(kPingFrame, 0, 0, "12345678"), settings = FrameOf(kSettingsFrame, 0, 0);
  ASSERT_TRUE(Send(kHello + ping + settings + ping));
  for (const std::string& frame : {ping, settings}) {
    EXPECT_FALSE(Send(frame));
    EXPECT_TRUE(guard_->waits());
    Serve(FrameOf(kSettingsFrame, 0, 0) + FrameOf(kPingFrame, 0, 0, "12345678"));
    EXPECT_FALSE(Send("")) << "that was no answer";
    Serve(FrameOf(frame == ping ? kPingFrame : kSettingsFrame, 1, 0));
    EXPECT_TRUE(Send(""));
  }
  EXPECT_TRUE(Send(FrameOf(kPingFrame, 1, 0, "12345678") + FrameOf(kSettingsFrame, 1, 0))) << "answers need none";
  EXPECT_EQ(Why(), "");
}

TEST_F(FrameGuardTest, HeadersAreBounded) {
  ASSERT_TRUE(Send(kHello));
  EXPECT_FALSE(Send(FrameOf(kHeadersFrame, kEndHeaders, 1, std::string(101, 'x'))));
  EXPECT_EQ(Why(), "headers of 101 bytes, at most 100");

  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersFrame, 0, 1, std::string(90, 'x'))));
  EXPECT_FALSE(Send(FrameOf(kContinuationFrame, 0, 1, std::string(11, 'x'))));
  EXPECT_EQ(Why(), "headers of more than 100 bytes");

  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersFrame, 0, 1)));
  ASSERT_TRUE(Send(FrameOf(kContinuationFrame, 0, 1) + FrameOf(kContinuationFrame, 0, 1)));
  EXPECT_FALSE(Send(FrameOf(kContinuationFrame, 0, 1)));
  EXPECT_EQ(Why(), "headers in more than 3 frames");

  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersFrame, 0, 1)));
  EXPECT_FALSE(Send(Call(3)));
  EXPECT_EQ(Why(), "a header block without its end");
}

// An indexed field is one byte, of 32 KiB that a block may have, and gRPC keeps memory for each: 4 connections took
// 270 MiB in 6 s.
TEST_F(FrameGuardTest, FieldsOfHeadersAreBounded) {
  limits_.max_header_fields = 10;
  const auto fields = [](size_t count) { return std::string(count, '\xbe'); };
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersFrame, kEndHeaders, 1, fields(10))));
  ASSERT_TRUE(Send(FrameOf(kHeadersFrame, kEndHeaders, 3, fields(10)))) << "each block has its own";
  EXPECT_FALSE(Send(FrameOf(kHeadersFrame, kEndHeaders, 5, fields(11))));
  EXPECT_EQ(Why(), "headers of more than 10 fields");

  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersFrame, 0, 1, fields(6)) + FrameOf(kContinuationFrame, 0, 1, fields(4))));
  EXPECT_FALSE(Send(FrameOf(kContinuationFrame, kEndHeaders, 1, fields(1))));
  EXPECT_EQ(Why(), "headers of more than 10 fields");

  // A text is no field, wherever the frames are cut, and the five bytes of a priority are none.
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersFrame, kPriority, 1, "\xbe\xbe\xbe\xbe\xbe\x40\x01n\x20" + fields(12))));
  ASSERT_TRUE(Send(FrameOf(kContinuationFrame, kEndHeaders, 1, fields(20 + 9))));
  ASSERT_TRUE(Send(FrameOf(kHeadersFrame, kEndHeaders, 3, "\x40\x01n")));
  EXPECT_TRUE(Send(FrameOf(kHeadersFrame, kEndHeaders, 5, "\x40\x01n\x1f"))) << "a block that broke off is over";

  Restart();
  EXPECT_FALSE(Send(kHello + FrameOf(kHeadersFrame, kEndHeaders | kPadded, 1, "\x01\xbe\xbe")));
  EXPECT_EQ(Why(), "headers with padding");

  Restart();
  EXPECT_FALSE(Send(kHello + FrameOf(kHeadersFrame, kEndHeaders, 1, "\xff\x80\x80\x80\x80\x80\x01")));
  EXPECT_EQ(Why(), "headers that are not HPACK");
}

TEST_F(FrameGuardTest, AGuardThatGoesTakesItsCallsAlong) {
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3)));
  EXPECT_EQ(totals_.silent_calls, 2);
  EXPECT_EQ(totals_.unserved_calls, 2);
  guard_.reset();
  EXPECT_EQ(totals_.silent_calls, 0);
  EXPECT_EQ(totals_.unserved_calls, 0);
}

TEST_F(FrameGuardTest, KnowsWhetherTheServerIsBetweenFrames) {
  ASSERT_TRUE(Send(kHello + Call(1)));
  EXPECT_TRUE(guard_->server_between_frames());
  const std::string answer = Answer(1);
  size_t boundaries = 0;
  std::string held;
  for (const char byte : answer) {
    held += byte;
    held.erase(0, TryServe(held));
    boundaries += held.empty() && guard_->server_between_frames() ? 1 : 0;
  }
  EXPECT_EQ(boundaries, 3u);
  EXPECT_EQ(served_, answer);
}

TEST_F(FrameGuardTest, TheConnectionsWindowGoesOnWhenItIsGranted) {
  const std::string settings = FrameOf(kSettingsFrame, 0, 0), of_a_call = Window(1, 500);
  ASSERT_TRUE(Send(kHello + Call(1) + FrameOf(kDataFrame, 0, 1, MessageOf(700, std::string(700, 'x')))));
  EXPECT_EQ(guard_->window(), 65535u - 705);
  Serve(settings + Window(0, 705) + of_a_call + Window(0, 1000));
  EXPECT_EQ(served_, settings + of_a_call);
  EXPECT_EQ(guard_->withheld(), 1705u);
  guard_->Grant(1700);
  EXPECT_EQ(Said(), Window(0, 1700));
  EXPECT_EQ(guard_->withheld(), 5u);
  EXPECT_EQ(guard_->window(), 65535u - 705 + 1700);
  guard_->GrantAll();
  EXPECT_EQ(Said(), Window(0, 5));
  Serve(Window(0, 70));
  EXPECT_EQ(served_, settings + of_a_call + Window(0, 70));
  EXPECT_EQ(guard_->window(), 65535u - 705 + 1775);
}

TEST_F(FrameGuardTest, DataBeyondTheWindowAreAViolation) {
  ASSERT_TRUE(Send(kHello + Call(1) + FrameOf(kDataFrame, 0, 3, std::string(65535, 'x'))));
  EXPECT_FALSE(Send(FrameOf(kDataFrame, 0, 1, "x")));
  EXPECT_EQ(Why(), "more data than the connection's window");
}

TEST_F(FrameGuardTest, RequestsWaitUntilTheyAreAnswered) {
  const auto request = [](uint32_t stream) {
    return FrameOf(kDataFrame, 0, stream, MessageOf(100, std::string(100, 'x')));
  };
  const std::string answer = FrameOf(kDataFrame, 0, 1, MessageOf(2, "hi"));
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3) + request(1) + request(3)));
  EXPECT_EQ(guard_->waiting_bytes(), 200u);
  now_ += absl::Seconds(3);
  EXPECT_NEAR(Holding(), 3, 1e-9);
  Serve(FrameOf(kHeadersFrame, kEndHeaders, 1, "ok") + answer.substr(0, answer.size() - 1));
  EXPECT_EQ(guard_->waiting_bytes(), 200u) << "half an answer";
  Serve(answer.substr(answer.size() - 1));
  EXPECT_EQ(guard_->waiting_bytes(), 100u);
  EXPECT_NEAR(Holding(), 0, 1e-9);
  Serve(FrameOf(kHeadersFrame, kEndHeaders | kEndStream, 3, "trailers"));
  EXPECT_EQ(guard_->waiting_bytes(), 0u);
  // Requests that follow one another without an end: those before the last two rounds of answers are forgotten.
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Send(request(1)));
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Send(request(1)));
    Serve(answer);
    EXPECT_GE(guard_->waiting_bytes(), 1000u);
    EXPECT_LE(guard_->waiting_bytes(), 2100u);
  }
  for (int i = 0; i < 10; ++i) Serve(answer);
  EXPECT_EQ(guard_->waiting_bytes(), 0u);
}

// However the bytes are cut, the same passes and the same is found.
TEST_F(FrameGuardTest, CutsChangeNothing) {
  const std::vector<std::string> endings = {"", FrameOf(kDataFrame, 0, 5, MessageOf(5000, "x")),
                                            FrameOf(kHeadersFrame, kEndHeaders, 7, std::string(101, 'x')),
                                            "x" + kHello};
  std::string conversation = kHello + FrameOf(kSettingsFrame, 0, 0) + Call(1);
  conversation += FrameOf(kDataFrame, kPadded, 1, std::string(1, '\x2') + MessageOf(6, "abcdef") + "pp");
  conversation += FrameOf(kDataFrame, kEndStream, 1, MessageOf(700, std::string(700, 'y')));
  conversation += FrameOf(kHeadersFrame, 0, 3, "some") + FrameOf(kContinuationFrame, kEndHeaders, 3, "more");
  conversation += Reset(3) + FrameOf(kPingFrame, 1, 0, "12345678") + Call(5);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (const std::string& ending : endings) {
    const std::string bytes = conversation + ending;
    Restart();
    Send(bytes);
    const std::string expected = Why(), passed = passed_;
    for (int round = 0; round < 300; ++round) {
      Restart();
      size_t at = 0;
      while (at < bytes.size() && !guard_->violation()) {
        const size_t most = round == 0 ? 1 : 1 + random() % 40;
        const size_t piece = std::min(bytes.size() - at, most);
        Send(bytes.substr(at, piece));
        at += piece;
      }
      ASSERT_EQ(Why(), expected);
      if (expected.empty()) {
        ASSERT_EQ(passed_, passed);
      }
    }
  }
}

TEST_F(FrameGuardTest, AnythingAtAllIsSurvived) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Restart();
    Send(kHello);
    for (int i = 0; i < 20 && !guard_->violation(); ++i) {
      std::string payload(random() % 30, '\0');
      for (char& byte : payload) byte = static_cast<char>(random());
      const uint8_t type = static_cast<uint8_t>(random() % 11);
      Send(FrameOf(type, static_cast<uint8_t>(random()), random() % 12, payload));
      TryServe(FrameOf(type, static_cast<uint8_t>(random()), random() % 12, payload));
      Said();
      ASSERT_LE(totals_.silent_calls, limits_.max_open_calls);
      ASSERT_GE(totals_.silent_calls, 0);
    }
  }
  guard_.reset();
  EXPECT_EQ(totals_.silent_calls, 0);
  EXPECT_EQ(totals_.unserved_calls, 0);
}

}  // namespace
}  // namespace troupe::rpc
