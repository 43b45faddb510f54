#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/rpc/door/connection_relay.h"
#include "lib/rpc/door/frame.h"
#include <gtest/gtest.h>

namespace troupe::rpc {

inline const std::string kGreeting = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload = "") {
  std::string frame;
  AppendFrame(frame, type, flags, stream, payload);
  return frame;
}

inline const std::string kCallBegins = Frame(1, 4, 1, "headers");
/// More of the connection's window, which gRPC gives.
inline std::string WindowFrame(uint32_t bytes) {
  std::string increment;
  AppendUint32(increment, bytes);
  return Frame(8, 0, 0, increment);
}
/// A message of `size` bytes in one frame, with its 5-byte prefix.
inline std::string DataFrame(size_t size) {
  std::string prefix(1, '\0');
  for (const int shift : {24, 16, 8, 0}) prefix.push_back(static_cast<char>(size >> shift & 0xff));
  return Frame(0, 0, 1, prefix + std::string(size, 'x'));
}

inline const std::string kBadHeaders = Frame(1, 4 | 8, 1, "padded");
inline constexpr size_t kFramePrefixBytes = 9 + 5;  // of DataFrame, before its message

/// A relay without a thread between socket pairs; the test plays clients and gRPC.
class ConnectionRelayTest : public ::testing::Test {
 protected:
  ConnectionRelayTest() { Start({.total = 8, .per_host = 6, .kept = 2, .newcomers = 3, .unserved = 3}); }

  void Start(const AdmissionLimits& limits) {
    RelayOptions options;
    options.admission = limits;
    options.frames.max_message_bytes = 4 << 20;
    options.frames.max_open_calls = 2;
    options.messages = messages_;
    options.hand_overs = hand_overs_;
    options.max_greeted = 2;
    options.many = many_;
    options.first_call_timeout = absl::Seconds(10);
    options.clock = &clock_;
    options.peers = &peers_;
    options.counts = &counts_;
    options.hand_over = [this](Descriptor socket) { grpc_.push_back(std::move(socket)); };
    auto relay = ConnectionRelay::Create(std::move(options));
    ASSERT_TRUE(relay.ok()) << relay.status();
    relay_ = *std::move(relay);
  }

  /// A client that the relay was offered; gRPC's end of it is the newest of grpc_.
  Descriptor Connect(const std::string& host = "10.0.0.1", int port = 1000) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    Peer peer;
    peer.host = host;
    peer.port = port;
    relay_->Accept(Descriptor(ends[1]), peer);
    relay_->Step();
    return Descriptor(ends[0]);
  }

  void Write(const Descriptor& socket, const std::string& bytes) {
    size_t sent = 0;
    for (int turn = 0; sent < bytes.size() && turn < 10000; ++turn) {
      const ssize_t now = send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now > 0) sent += static_cast<size_t>(now);
      relay_->Step();
    }
    EXPECT_EQ(sent, bytes.size());
    for (int turn = 0; turn < 4; ++turn) relay_->Step();
  }

  /// What arrives at `socket` while the relay has something to do; `closed_` tells whether its end came.
  std::string ReadAll(const Descriptor& socket) {
    std::string all;
    closed_ = false;
    char bytes[65536];
    for (int idle = 0; idle < 3;) {
      relay_->Step();
      const ssize_t got = recv(socket.fd(), bytes, sizeof(bytes), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) {
        closed_ = true;
        return all;
      }
      idle = got < 0 ? idle + 1 : 0;
      if (got > 0) all.append(bytes, static_cast<size_t>(got));
    }
    return all;
  }

  bool IsClosed(const Descriptor& socket) {
    ReadAll(socket);
    return closed_;
  }

  std::string NameOf(const Descriptor& grpc_end) {
    sockaddr_un name{};
    socklen_t bytes = sizeof(name);
    EXPECT_EQ(getpeername(grpc_end.fd(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
    return absl::StrCat("unix-abstract:", std::string(name.sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1));
  }

  MessageLimits messages_;
  int64_t many_ = 1000;
  base::Rate hand_overs_ = {.burst = 100, .per_second = 100};
  base::FakeClock clock_;
  PeerBook peers_;
  DoorCounts counts_;
  std::vector<Descriptor> grpc_;
  std::unique_ptr<ConnectionRelay> relay_;
  bool closed_ = false;
};

}  // namespace troupe::rpc
