// Calls beyond the limits, which a guard refuses in the place of the server.

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "lib/rpc/door/testing/frame_guard_fixture.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using FrameGuardTest = FrameGuardFixture;

/// A refused call's frame as the server gets it.
std::string Aside(const std::string& frame) {
  std::string moved = frame;
  moved[8] = static_cast<char>(moved[8] == 1 ? 2 : moved[8] - 1);
  return moved;
}

TEST_F(FrameGuardTest, CallsBeyondAConnectionsAreRefusedInWords) {
  ASSERT_TRUE(Send(kHello));
  passed_.clear();
  std::string calls;
  for (uint32_t stream = 1; stream < 13; stream += 2) calls += Call(stream);
  ASSERT_TRUE(Send(calls)) << "as many before the first answer as later";
  EXPECT_EQ(Said(), "");
  const std::string more = FrameOf(kHeadersFrame, 0, 13, "some") + FrameOf(kContinuationFrame, kEndHeaders, 13, "more");
  const std::string data = FrameOf(kDataFrame, kEndStream, 13, MessageOf(3, "abc"));
  const std::string body = FrameOf(kDataFrame, kEndStream, 3, MessageOf(3, "abc"));
  ASSERT_TRUE(Send(more + data + body));
  EXPECT_EQ(passed_, calls + Aside(more.substr(0, 13)) + Aside(more.substr(13)) + data + body)
      << "no frame waits, and gRPC sees all headers and all data";
  EXPECT_EQ(totals_.num_refused, 1);
  EXPECT_EQ(totals_.last_refusal, "this connection has 6 open calls, at most 6");
  const std::string said = Said();
  EXPECT_EQ(said.substr(3, 6), (FrameOf(kHeadersFrame, kEndHeaders | kEndStream, 13).substr(3)));
  EXPECT_TRUE(absl::StrContains(said, "this connection has 6 open calls, at most 6")) << said;
  EXPECT_TRUE(absl::StrContains(said, std::string("grpc-status\x01"
                                                  "8",
                                                  13)));
  passed_.clear();
  ASSERT_TRUE(Send(FrameOf(kHeadersFrame, kEndHeaders | kEndStream, 13, "trailers")));
  EXPECT_EQ(passed_, Aside(FrameOf(kHeadersFrame, kEndHeaders | kEndStream, 13, "trailers")))
      << "a call that was refused must not begin after all";
  EXPECT_EQ(Said(), "");
  Serve(Refusal(1));
  ASSERT_TRUE(Send(Call(15)));
  EXPECT_EQ(Said(), "") << "one is over, one may begin";
  EXPECT_EQ(Why(), "");
}

TEST_F(FrameGuardTest, BeyondAFewCallsAllConnectionsShareSilentAndNewOnes) {
  totals_.silent_calls += 20;
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3)));
  EXPECT_EQ(Said(), "") << "a few of each connection";
  ASSERT_TRUE(Send(Call(5)));
  EXPECT_TRUE(absl::StrContains(Said(), "all connections have 22 calls without a request, at most 20"));
  ASSERT_TRUE(Send(FrameOf(kDataFrame, 0, 1, MessageOf(3, "abc")) + FrameOf(kDataFrame, 0, 3, MessageOf(3, "abc"))));
  totals_.silent_calls -= 20;
  EXPECT_EQ(totals_.silent_calls, 0);
  totals_.unserved_calls += 20;
  ASSERT_TRUE(Send(Call(7)));
  EXPECT_TRUE(absl::StrContains(Said(), "new connections have 22 open calls, at most 20"));
  Serve(Answer(1));
  EXPECT_EQ(totals_.unserved_calls, 20);
  ASSERT_TRUE(Send(Call(9) + Call(11)));
  EXPECT_EQ(Said(), "") << "it is no new one any more";
  totals_.unserved_calls -= 20;
}

TEST_F(FrameGuardTest, WhoDoesNotReadItsRefusalsMakesNoCalls) {
  limits_.max_open_calls = 0;
  limits_.max_refusal_bytes = 300;
  Restart();
  ASSERT_TRUE(Send(kHello));
  uint32_t stream = 1;
  while (stream < 99 && Send(Call(stream))) stream += 2;
  EXPECT_LT(stream, 9u);
  EXPECT_TRUE(guard_->waits());
  Said();
  EXPECT_TRUE(Send(""));
}

TEST_F(FrameGuardTest, ARefusalStandsBetweenTwoFramesOfTheServer) {
  limits_.max_open_calls = 1;
  Restart();
  ASSERT_TRUE(Send(kHello + Call(1) + Call(3)));
  EXPECT_FALSE(guard_->server_began()) << "the server's settings are the connection's first frame";
  const std::string settings = FrameOf(kSettingsFrame, 0, 0, "123456"), data = FrameOf(kDataFrame, 0, 1, "data");
  const std::string block = FrameOf(kHeadersFrame, 0, 1, "some") + FrameOf(kContinuationFrame, kEndHeaders, 1, "more");
  EXPECT_EQ(TryServe(settings + block), settings.size());
  EXPECT_TRUE(guard_->server_between_frames());
  Said();
  ASSERT_TRUE(Send(Call(5)));
  Said();
  EXPECT_EQ(TryServe(block.substr(0, 13)), 13u);
  ASSERT_TRUE(Send(Call(7)));
  EXPECT_FALSE(guard_->server_between_frames()) << "inside of a header block";
  EXPECT_EQ(TryServe(block.substr(13) + data), block.size() - 13);
}

}  // namespace
}  // namespace troupe::rpc
