#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/rpc/door/descriptor.h"
#include "lib/rpc/door/frame_guard.h"

namespace troupe::rpc {

/// Buffers that connections borrow while bytes are under way. Who comes when 32 MiB are lent, or has no server yet,
/// gets a small one: thousands of connections whose peers do not read cost little more. Not thread-safe.
class RelayBuffers {
 public:
  struct Buffer {
    std::unique_ptr<char[]> bytes;
    size_t size = 0;
  };
  static constexpr size_t kBytes = size_t{256} << 10;
  static constexpr size_t kSmallBytes = size_t{8} << 10;
  static constexpr size_t kMaxLent = 128;

  Buffer Take();
  static Buffer TakeSmall();
  void Give(Buffer buffer);

 private:
  static constexpr size_t kMaxSpare = 16;
  size_t lent_ = 0;  ///< of kBytes
  std::vector<Buffer> spare_;
};

/// One connection between a client and gRPC, and the bytes on their way. Confined to its relay's thread; nothing
/// blocks. States: silent -> (SetServer) open -> leaving (one side is done, or the client broke a limit; what is on its
/// way to the client still gets there) -> done.
class RelayedConnection {
 public:
  /// A connection moves so many buffers a turn before the others have theirs.
  static constexpr int kMovesPerTurn = 8;

  /// The socket is connected and non-blocking; `buffers` and `totals` outlive it.
  RelayedConnection(Descriptor client, const std::string& host, const FrameLimits& limits, FrameTotals* totals,
                    RelayBuffers* buffers, absl::Duration now);
  ~RelayedConnection();

  /// The client has said that it speaks HTTP/2: who never does costs gRPC nothing.
  bool needs_server() const { return !server_.valid() && open_ && guard_.progress() != FrameGuard::Progress::kSilent; }
  /// Our end towards gRPC, connected and non-blocking. Once, when needs_server.
  void SetServer(Descriptor server) { server_ = std::move(server); }

  /// The client has gone while it waited for a server.
  bool gone() const { return client_gone_ && !server_.valid(); }

  /// What epoll said of either socket (edge-triggered).
  void OnClientReady(uint32_t events);
  void OnServerReady(uint32_t events);
  /// Passes on a bounded amount; true where more could be done at once.
  bool Advance(absl::Duration now);

  FrameGuard& guard() { return guard_; }
  const FrameGuard& guard() const { return guard_; }
  /// Tells a client that gRPC does not know why it is closed next.
  static void TurnAway(const Descriptor& client, std::string_view why);
  void TurnAway(std::string_view why) const { TurnAway(client_, why); }
  /// It has to go, as if its client had broken a limit, or, where that is `calm`, without a fault; with the next
  /// Advance.
  void EndFor(DoorReason reason, std::string what, bool calm = false) { guard_.EndFor(reason, std::move(what), calm); }
  /// Since when the client has taken nothing of what waits for it; an infinite future while nothing waits.
  absl::Duration unread_since() const { return unread_since_; }
  bool done() const { return !client_.valid(); }
  /// gRPC has closed its end, and the client has been sent all that came from there.
  bool flushed() const { return done() || told_client_; }
  /// Since when it is leaving; an infinite future while it is open.
  absl::Duration leaving_since() const { return leaving_since_; }

 private:
  /// Bytes under way in one direction: [begin, permitted) may go on, [permitted, end) waits.
  struct Pipe {
    RelayBuffers::Buffer buffer;
    size_t begin = 0, permitted = 0, end = 0;
    bool eof = false;

    bool sendable() const { return begin < permitted; }
    bool empty() const { return begin == end; }
  };
  enum class Moved { kNothing, kSome, kEnd };

  bool AdvanceUp(absl::Duration now);
  bool AdvanceDown(absl::Duration now);
  bool may_answer() { return !guard_.for_client().empty() && guard_.server_began() && guard_.server_between_frames(); }
  void EndUp();
  void PermitUp(absl::Duration now);
  bool PermitDown(absl::Duration now);
  /// Lets bytes go on that the guard has looked at, but for those it drops. False where it has taken nothing.
  bool Permit(Pipe& pipe, const FrameGuard::Passed& passed);
  Moved Read(const Descriptor& from, bool& readable, Pipe& pipe);
  Moved Send(const Descriptor& to, bool& writable, Pipe& pipe);
  Moved SendText(const Descriptor& to, bool& writable, std::string& text);
  void Recycle(Pipe& pipe);
  void SayGoodbye(const FrameGuard::Violation& violation);
  void Linger();

  Descriptor client_, server_;
  bool open_ = true;  ///< neither side has ended, and the client has kept to the limits
  FrameGuard guard_;
  RelayBuffers* const buffers_;
  Pipe up_, down_;            // towards gRPC, towards the client
  bool client_gone_ = false;  ///< it has ended its side, or both
  bool client_readable_ = false, client_writable_ = true;
  bool server_readable_ = false, server_writable_ = true;
  bool told_server_ = false, told_client_ = false;  ///< that no more bytes come
  bool said_part_ = false;                          ///< of for_client(): the rest has to come next
  absl::Duration leaving_since_ = absl::InfiniteDuration();
  absl::Duration unread_since_ = absl::InfiniteDuration();
  size_t lingered_bytes_ = 0;
};

}  // namespace troupe::rpc
