#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lib/rpc/door/frame.h"
#include "lib/rpc/door/frame_guard.h"
#include <gtest/gtest.h>

namespace troupe::rpc {

inline const std::string kHello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload = "") {
  std::string frame;
  AppendFrame(frame, type, flags, stream, payload);
  return frame;
}

inline std::string MessageOf(size_t size, const std::string& bytes) {
  std::string message(1, '\0');
  for (const int shift : {24, 16, 8, 0}) message.push_back(static_cast<char>(size >> shift & 0xff));
  return message + bytes;
}

inline std::string Call(uint32_t stream) { return FrameOf(kHeadersFrame, kEndHeaders, stream, "headers"); }
inline std::string Reset(uint32_t stream) { return FrameOf(kRstStreamFrame, 0, stream, std::string("\0\0\0\x8", 4)); }
inline std::string Answer(uint32_t stream) {
  return FrameOf(kHeadersFrame, kEndHeaders, stream, "ok") + FrameOf(kDataFrame, 0, stream, MessageOf(2, "hi")) +
         FrameOf(kHeadersFrame, kEndHeaders | kEndStream, stream, "trailers");
}
inline std::string Window(uint32_t stream, uint32_t bytes) {
  std::string increment;
  AppendUint32(increment, bytes);
  return FrameOf(kWindowUpdateFrame, 0, stream, increment);
}
inline std::string Refusal(uint32_t stream) { return FrameOf(kHeadersFrame, kEndHeaders | kEndStream, stream, "no"); }

class FrameGuardFixture : public ::testing::Test {
 protected:
  using Progress = FrameGuard::Progress;

  FrameGuardFixture() {
    limits_.max_message_bytes = 1000;
    limits_.max_header_bytes = 100;
    limits_.max_continuations = 3;
    limits_.max_open_calls = 6;
    limits_.max_silent_calls = 20;
    limits_.max_unserved_calls = 20;
    limits_.few_calls = 2;
    limits_.resets = {4, 2};
    limits_.few_resets = 2;
    limits_.resets_of_all = {20, 4};
    limits_.max_unread_replies = 3;
    Restart();
  }

  void Restart() {
    guard_ = std::make_unique<FrameGuard>(limits_, &totals_, "10.0.0.1", now_);
    held_.clear();
    passed_.clear();
  }
  /// Everything that was held back, and `bytes`; true when all of it was taken. What goes on joins passed_.
  bool Send(const std::string& bytes) {
    held_ += bytes;
    const FrameGuard::Passed passed = guard_->OnClientBytes(held_.data(), held_.size(), now_);
    passed_ += held_.substr(0, passed.kept);
    held_.erase(0, passed.taken);
    return held_.empty();
  }
  /// A connection that has had an answer.
  void StartServed() {
    Restart();
    ASSERT_TRUE(Send(kHello + Call(1)));
    Serve(Answer(1));
    passed_.clear();
  }
  /// How many bytes of the server were taken; what of them goes on joins served_.
  size_t TryServe(std::string bytes) {
    const FrameGuard::Passed passed = guard_->OnServerBytes(bytes.data(), bytes.size(), now_);
    served_ += bytes.substr(0, passed.kept);
    return passed.taken;
  }
  void Serve(const std::string& bytes) { ASSERT_EQ(TryServe(bytes), bytes.size()); }
  double Holding() const { return guard_->HoldingTime(now_, absl::InfiniteDuration()); }
  std::string Why() const { return guard_->violation() ? guard_->violation()->what : ""; }
  /// The guard's own words to the client, and to the server.
  std::string Said() { return std::exchange(guard_->for_client(), ""); }
  std::string Injected() { return std::exchange(guard_->for_server(), ""); }

  FrameLimits limits_;
  absl::Duration now_ = absl::Seconds(100);
  FrameTotals totals_{FrameLimits{.resets_of_all = {20, 4}}, now_};
  std::unique_ptr<FrameGuard> guard_;
  std::string held_, passed_, served_;
};

}  // namespace troupe::rpc
