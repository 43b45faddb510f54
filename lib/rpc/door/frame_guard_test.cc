#include "lib/rpc/door/frame_guard.h"

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using Progress = FrameGuard::Progress;

const std::string kHello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kEndOfStream = 1, kEndOfHeaders = 4, kWithPadding = 8, kWithPriority = 0x20;
constexpr uint8_t kDataType = 0, kHeadersType = 1, kPriorityType = 2, kResetType = 3, kSettingsType = 4, kPingType = 6,
                  kWindowUpdateType = 8, kContinuationType = 9;

std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload = "") {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift & 0xff));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift & 0xff));
  return frame + payload;
}

std::string MessageOf(size_t size, const std::string& bytes) {
  std::string message(1, '\0');
  for (const int shift : {24, 16, 8, 0}) message.push_back(static_cast<char>(size >> shift & 0xff));
  return message + bytes;
}

std::string Call(uint32_t stream) { return FrameOf(kHeadersType, kEndOfHeaders, stream, "headers"); }
std::string Reset(uint32_t stream) { return FrameOf(kResetType, 0, stream, "\0\0\0\x8"); }
std::string Answer(uint32_t stream) {
  return FrameOf(kHeadersType, kEndOfHeaders, stream, "ok") + FrameOf(kDataType, 0, stream, MessageOf(2, "hi")) +
         FrameOf(kHeadersType, kEndOfHeaders | kEndOfStream, stream, "trailers");
}
std::string Refusal(uint32_t stream) { return FrameOf(kHeadersType, kEndOfHeaders | kEndOfStream, stream, "no"); }

class FrameGuardTest : public ::testing::Test {
 protected:
  FrameGuardTest() {
    limits_.max_message_bytes = 1000;
    limits_.max_header_bytes = 100;
    limits_.max_continuations = 3;
    limits_.max_open_calls = 6;
    limits_.max_open_calls_unproven = 3;
    limits_.max_open_calls_in_crowd = 2;
    limits_.crowd = 5;
    limits_.resets = {4, 2};
    limits_.max_resets_in_crowd = 2;
    limits_.resets_of_all = {20, 4};
    limits_.settings = {3, 1};
    limits_.pings = {3, 1};
    limits_.window_updates = {3, 1};
    limits_.empty_data = {3, 1};
    limits_.others = {3, 1};
    Restart();
  }

  void Restart() { guard_ = std::make_unique<FrameGuard>(limits_, &totals_, now_); }
  /// Everything that was held back, and `bytes`; true when all of it may go on.
  bool Send(const std::string& bytes) {
    held_ += bytes;
    held_.erase(0, guard_->OnClientBytes(held_, now_));
    return held_.empty();
  }
  std::string Why() const { return guard_->violation() ? guard_->violation()->what : ""; }

  FrameLimits limits_;
  absl::Duration now_ = absl::Seconds(100);
  FrameTotals totals_{FrameLimits{.resets_of_all = {20, 4}}, now_};
  std::unique_ptr<FrameGuard> guard_;
  std::string held_;
};

TEST_F(FrameGuardTest, AnHonestCallPasses) {
  EXPECT_EQ(guard_->progress(), Progress::kSilent);
  EXPECT_TRUE(Send(kHello + FrameOf(kSettingsType, 0, 0)));
  EXPECT_EQ(guard_->progress(), Progress::kGreeted);
  EXPECT_TRUE(Send(Call(1)));
  EXPECT_EQ(guard_->progress(), Progress::kAsked);
  EXPECT_FALSE(guard_->request_pending());
  EXPECT_TRUE(Send(FrameOf(kDataType, kEndOfStream, 1, MessageOf(1000, std::string(1000, 'x')))));
  EXPECT_TRUE(guard_->request_pending());
  EXPECT_EQ(totals_.open_calls, 1);
  guard_->OnServerBytes(FrameOf(kSettingsType, 0, 0) + Answer(1));
  EXPECT_EQ(guard_->progress(), Progress::kServed);
  EXPECT_FALSE(guard_->request_pending());
  EXPECT_EQ(totals_.open_calls, 0);
  EXPECT_EQ(Why(), "");
}

TEST_F(FrameGuardTest, ARefusedCallIsNoServedOne) {
  EXPECT_TRUE(Send(kHello + Call(1)));
  guard_->OnServerBytes(Refusal(1));
  EXPECT_EQ(guard_->progress(), Progress::kAsked);
  EXPECT_EQ(totals_.open_calls, 0);
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
  EXPECT_FALSE(Send(FrameOf(kDataType, 0, 3, MessageOf(1001, "x"))));
  EXPECT_EQ(Why(), "a message of 1001 bytes, at most 1000");
  EXPECT_EQ(guard_->violation()->stream, 3u);
}

// Message and frame have nothing to do with each other: a prefix may lie across frames, and two messages in one.
TEST_F(FrameGuardTest, AMessageMayLieAnyhowInFrames) {
  EXPECT_TRUE(Send(kHello + Call(1)));
  const std::string two = MessageOf(3, "abc") + MessageOf(0, "") + MessageOf(1000, std::string(1000, 'x'));
  for (const char byte : two) EXPECT_TRUE(Send(FrameOf(kDataType, 0, 1, std::string(1, byte))));
  EXPECT_TRUE(Send(FrameOf(kDataType, 0, 1, two + MessageOf(1001, "").substr(0, 4))));
  EXPECT_FALSE(Send(FrameOf(kDataType, 0, 1, MessageOf(1001, "").substr(4))));
  EXPECT_EQ(Why(), "a message of 1001 bytes, at most 1000");
}

TEST_F(FrameGuardTest, PaddingIsNoPartOfAMessage) {
  EXPECT_TRUE(Send(kHello + Call(1)));
  const std::string padded = std::string(1, '\x3') + MessageOf(2, "ab") + std::string(3, '\xff');
  EXPECT_TRUE(Send(FrameOf(kDataType, kWithPadding, 1, padded)));
  EXPECT_TRUE(Send(FrameOf(kDataType, 0, 1, MessageOf(1, "c"))));
  EXPECT_FALSE(Send(FrameOf(kDataType, kWithPadding, 1, "\x05xyz")));
  EXPECT_EQ(Why(), "a frame of data with more padding than bytes");
}

TEST_F(FrameGuardTest, MessagesThatAreNotWholeAreBoundedTogether) {
  limits_.max_unfinished_bytes = 1500;
  Restart();
  const auto part = [](uint32_t stream, const std::string& bytes) { return FrameOf(kDataType, 0, stream, bytes); };
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

TEST_F(FrameGuardTest, AMessageIsSlowWhenItsTimeIsOver) {
  const auto slow = [this] { return guard_->IsSlow(now_, absl::Seconds(2), 100); };
  ASSERT_TRUE(Send(kHello + Call(1)));
  now_ += absl::Seconds(60);
  EXPECT_FALSE(slow()) << "a call without a message may last";
  ASSERT_TRUE(Send(FrameOf(kDataType, 0, 1, MessageOf(1000, "x"))));
  now_ += absl::Seconds(2);
  EXPECT_FALSE(slow());
  now_ += absl::Seconds(1);
  EXPECT_TRUE(slow());
  ASSERT_TRUE(Send(FrameOf(kDataType, 0, 1, std::string(399, 'x'))));
  EXPECT_FALSE(slow()) << "400 bytes in 3 s";
  now_ += absl::Seconds(2);
  EXPECT_TRUE(slow());
  ASSERT_TRUE(Send(FrameOf(kDataType, 0, 1, std::string(600, 'x'))));
  EXPECT_FALSE(slow()) << "it is whole";
}

TEST_F(FrameGuardTest, ResetsHaveARate) {
  ASSERT_TRUE(Send(kHello + Call(1)));
  guard_->OnServerBytes(Answer(1));
  uint32_t stream = 3;
  for (int i = 0; i < 4; ++i, stream += 2) ASSERT_TRUE(Send(Call(stream) + Reset(stream))) << i;
  EXPECT_EQ(totals_.open_calls, 0);
  now_ += absl::Seconds(1);
  for (int i = 0; i < 2; ++i, stream += 2) ASSERT_TRUE(Send(Call(stream) + Reset(stream))) << i;
  EXPECT_FALSE(Send(Call(stream) + Reset(stream)));
  EXPECT_EQ(Why(), "too many reset calls");
}

TEST_F(FrameGuardTest, BeforeTheFirstAnswerFewCallsAreReset) {
  ASSERT_TRUE(Send(kHello + Call(1) + Reset(1) + Call(3) + Reset(3)));
  EXPECT_FALSE(Send(Call(5) + Reset(5)));
  EXPECT_EQ(Why(), "too many reset calls");
}

TEST_F(FrameGuardTest, OnceAllHaveResetManyEachMayResetFew) {
  ASSERT_TRUE(Send(kHello + Call(1)));
  guard_->OnServerBytes(Answer(1));
  while (totals_.resets.Take(now_)) continue;
  EXPECT_TRUE(Send(Call(3) + Reset(3) + Call(5) + Reset(5)));
  EXPECT_FALSE(Send(Call(7) + Reset(7)));
  EXPECT_EQ(Why(), "too many reset calls");

  held_.clear();
  Restart();
  ASSERT_TRUE(Send(kHello + Call(1)));
  guard_->OnServerBytes(Answer(1));
  now_ += absl::Seconds(1);
  for (uint32_t stream = 3; stream < 11; stream += 2) EXPECT_TRUE(Send(Call(stream) + Reset(stream))) << stream;
}

TEST_F(FrameGuardTest, InACrowdAsManyMayBeResetAsWereAnswered) {
  ASSERT_TRUE(Send(kHello));
  uint32_t stream = 1;
  for (int i = 0; i < 3; ++i, stream += 2) {
    ASSERT_TRUE(Send(Call(stream)));
    guard_->OnServerBytes(Answer(stream));
  }
  while (totals_.resets.Take(now_)) continue;
  for (int i = 0; i < 3; ++i, stream += 2) EXPECT_TRUE(Send(Call(stream) + Reset(stream))) << i;
  EXPECT_FALSE(Send(Call(stream) + Reset(stream)));
}

TEST_F(FrameGuardTest, WhoHasHadNoAnswerTakesNoResetsFromOthers) {
  ASSERT_TRUE(Send(kHello + Call(1) + Reset(1) + Call(3) + Reset(3)));
  EXPECT_EQ(totals_.resets.Level(now_), 20);
}

TEST_F(FrameGuardTest, AnAnsweredCallPermitsAReset) {
  ASSERT_TRUE(Send(kHello));
  for (uint32_t stream = 1; stream < 101; stream += 4) {
    ASSERT_TRUE(Send(Call(stream) + Call(stream + 2) + Reset(stream + 2))) << stream;
    guard_->OnServerBytes(Answer(stream));
  }
}

TEST_F(FrameGuardTest, AResetThatComesTooLateIsNoReset) {
  ASSERT_TRUE(Send(kHello + Call(1)));
  guard_->OnServerBytes(Refusal(1));
  EXPECT_TRUE(Send(Reset(1)));
  EXPECT_TRUE(Send(Reset(1) + Reset(1)));
  EXPECT_FALSE(Send(Reset(1)));
  EXPECT_EQ(Why(), "too many resets of calls that are over");
}

TEST_F(FrameGuardTest, FloodsOfControlFramesHaveARate) {
  const std::vector<std::pair<std::string, std::string>> floods = {
      {FrameOf(kSettingsType, 0, 0), "too many SETTINGS"},
      {FrameOf(kPingType, 0, 0, "12345678"), "too many PING"},
      {FrameOf(kWindowUpdateType, 0, 0, "1234"), "too many WINDOW_UPDATE"},
      {FrameOf(kDataType, 0, 1), "too many frames without data"},
      {FrameOf(kPriorityType, 0, 1, "12345"), "too many frames of other types"},
      {FrameOf(77, 0, 1, "12345"), "too many frames of other types"},
      {Call(1), "too many headers of calls that have begun"}};
  for (const auto& [frame, why] : floods) {
    held_.clear();
    Restart();
    ASSERT_TRUE(Send(kHello + Call(1)));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(frame)) << why;
    now_ += absl::Seconds(1);
    ASSERT_TRUE(Send(frame)) << why;
    EXPECT_FALSE(Send(frame));
    EXPECT_EQ(Why(), why);
    EXPECT_FALSE(Send(FrameOf(kSettingsType, 0, 0))) << "nothing passes after a violation";
  }
}

TEST_F(FrameGuardTest, WhatTheServerSendsPermitsWindowUpdates) {
  ASSERT_TRUE(Send(kHello + Call(1)));
  for (int i = 0; i < 100; ++i) {
    guard_->OnServerBytes(FrameOf(kDataType, 0, 1, "x"));
    ASSERT_TRUE(Send(FrameOf(kWindowUpdateType, 0, 0, "1234") + FrameOf(kWindowUpdateType, 0, 1, "1234")));
  }
}

TEST_F(FrameGuardTest, HeadersAreBounded) {
  ASSERT_TRUE(Send(kHello));
  EXPECT_FALSE(Send(FrameOf(kHeadersType, kEndOfHeaders, 1, std::string(101, 'x'))));
  EXPECT_EQ(Why(), "headers of 101 bytes, at most 100");

  held_.clear();
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersType, 0, 1, std::string(90, 'x'))));
  EXPECT_FALSE(Send(FrameOf(kContinuationType, 0, 1, std::string(11, 'x'))));
  EXPECT_EQ(Why(), "headers of more than 100 bytes");

  held_.clear();
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersType, 0, 1)));
  ASSERT_TRUE(Send(FrameOf(kContinuationType, 0, 1) + FrameOf(kContinuationType, 0, 1)));
  EXPECT_FALSE(Send(FrameOf(kContinuationType, 0, 1)));
  EXPECT_EQ(Why(), "headers in more than 3 frames");

  held_.clear();
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersType, 0, 1)));
  EXPECT_FALSE(Send(Call(3)));
  EXPECT_EQ(Why(), "a header block without its end");
}

// An indexed field is one byte, of 32 KiB that a block may have, and gRPC keeps memory for each: 4 connections took
// 270 MiB in 6 s.
TEST_F(FrameGuardTest, FieldsOfHeadersAreBounded) {
  limits_.max_header_fields = 10;
  const auto fields = [](size_t count) { return std::string(count, '\xbe'); };
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersType, kEndOfHeaders, 1, fields(10))));
  ASSERT_TRUE(Send(FrameOf(kHeadersType, kEndOfHeaders, 3, fields(10)))) << "each block has its own";
  EXPECT_FALSE(Send(FrameOf(kHeadersType, kEndOfHeaders, 5, fields(11))));
  EXPECT_EQ(Why(), "headers of more than 10 fields");

  held_.clear();
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersType, 0, 1, fields(6)) + FrameOf(kContinuationType, 0, 1, fields(4))));
  EXPECT_FALSE(Send(FrameOf(kContinuationType, kEndOfHeaders, 1, fields(1))));
  EXPECT_EQ(Why(), "headers of more than 10 fields");

  // A text is no field, wherever the frames are cut, and the five bytes of a priority are none.
  held_.clear();
  Restart();
  ASSERT_TRUE(Send(kHello + FrameOf(kHeadersType, kWithPriority, 1, "\xbe\xbe\xbe\xbe\xbe\x40\x01n\x20" + fields(12))));
  ASSERT_TRUE(Send(FrameOf(kContinuationType, kEndOfHeaders, 1, fields(20 + 9))));
  ASSERT_TRUE(Send(FrameOf(kHeadersType, kEndOfHeaders, 3, "\x40\x01n")));
  EXPECT_TRUE(Send(FrameOf(kHeadersType, kEndOfHeaders, 5, "\x40\x01n\x1f"))) << "a block that broke off is over";

  held_.clear();
  Restart();
  EXPECT_FALSE(Send(kHello + FrameOf(kHeadersType, kEndOfHeaders | kWithPadding, 1, "\x01\xbe\xbe")));
  EXPECT_EQ(Why(), "headers with padding");

  held_.clear();
  Restart();
  EXPECT_FALSE(Send(kHello + FrameOf(kHeadersType, kEndOfHeaders, 1, "\xff\x80\x80\x80\x80\x80\x01")));
  EXPECT_EQ(Why(), "headers that are not HPACK");
}

TEST_F(FrameGuardTest, CallsWaitForAnswersNotForEver) {
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3) + Call(5)));
  EXPECT_FALSE(Send(Call(7) + Call(9)));
  EXPECT_TRUE(guard_->waits());
  EXPECT_EQ(held_, Call(7) + Call(9));
  EXPECT_EQ(Why(), "");
  guard_->OnServerBytes(Refusal(1));
  EXPECT_FALSE(Send(""));
  EXPECT_EQ(held_, Call(9)) << "one is over, one may begin";
  guard_->OnServerBytes(Answer(3));
  EXPECT_TRUE(Send("")) << "the first answer proves it";
  EXPECT_FALSE(guard_->waits());
}

TEST_F(FrameGuardTest, InACrowdEachHasFewCalls) {
  FrameGuard crowd(limits_, &totals_, now_);
  totals_.open_calls += 5;
  ASSERT_TRUE(Send(kHello + Call(1)));
  guard_->OnServerBytes(Answer(1));
  EXPECT_TRUE(Send(Call(3) + Call(5)));
  EXPECT_FALSE(Send(Call(7)));
  EXPECT_TRUE(guard_->waits());
  totals_.open_calls -= 5;
  EXPECT_TRUE(Send(""));
}

TEST_F(FrameGuardTest, AGuardThatGoesTakesItsCallsAlong) {
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3)));
  EXPECT_EQ(totals_.open_calls, 2);
  guard_.reset();
  EXPECT_EQ(totals_.open_calls, 0);
}

TEST_F(FrameGuardTest, KnowsWhetherTheServerIsBetweenFrames) {
  ASSERT_TRUE(Send(kHello + Call(1)));
  EXPECT_TRUE(guard_->server_between_frames());
  const std::string answer = Answer(1);
  size_t boundaries = 0;
  for (const char byte : answer) {
    guard_->OnServerBytes(std::string_view(&byte, 1));
    boundaries += guard_->server_between_frames() ? 1 : 0;
  }
  EXPECT_EQ(boundaries, 3u);
}

// However the bytes are cut, the same passes and the same is found.
TEST_F(FrameGuardTest, CutsChangeNothing) {
  const std::vector<std::string> endings = {"", FrameOf(kDataType, 0, 5, MessageOf(5000, "x")),
                                            FrameOf(kHeadersType, kEndOfHeaders, 7, std::string(101, 'x')),
                                            "x" + kHello};
  std::string conversation = kHello + FrameOf(kSettingsType, 0, 0) + Call(1);
  conversation += FrameOf(kDataType, kWithPadding, 1, std::string(1, '\x2') + MessageOf(6, "abcdef") + "pp");
  conversation += FrameOf(kDataType, kEndOfStream, 1, MessageOf(700, std::string(700, 'y')));
  conversation += FrameOf(kHeadersType, 0, 3, "some") + FrameOf(kContinuationType, kEndOfHeaders, 3, "more");
  conversation += Reset(3) + FrameOf(kPingType, 1, 0, "12345678") + Call(5);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (const std::string& ending : endings) {
    const std::string bytes = conversation + ending;
    held_.clear();
    Restart();
    Send(bytes);
    const std::string expected = Why();
    const size_t passed = bytes.size() - held_.size();
    for (int round = 0; round < 300; ++round) {
      held_.clear();
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
        ASSERT_EQ(at - held_.size(), passed);
      }
    }
  }
}

TEST_F(FrameGuardTest, AnythingAtAllIsSurvived) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    held_.clear();
    Restart();
    Send(kHello);
    for (int i = 0; i < 20 && !guard_->violation(); ++i) {
      std::string payload(random() % 30, '\0');
      for (char& byte : payload) byte = static_cast<char>(random());
      const uint8_t type = static_cast<uint8_t>(random() % 11);
      Send(FrameOf(type, static_cast<uint8_t>(random()), random() % 12, payload));
      guard_->OnServerBytes(FrameOf(type, static_cast<uint8_t>(random()), random() % 12, payload));
      ASSERT_LE(totals_.open_calls, limits_.max_open_calls);
    }
  }
  guard_.reset();
  EXPECT_EQ(totals_.open_calls, 0);
}

}  // namespace
}  // namespace troupe::rpc
