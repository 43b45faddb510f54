#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/token_bucket.h"
#include "lib/rpc/door/admission.h"
#include "lib/rpc/door/descriptor.h"
#include "lib/rpc/door/frame_guard.h"
#include "lib/rpc/door/peer.h"
#include "lib/rpc/door/peer_book.h"
#include "lib/rpc/door/relayed_connection.h"

namespace troupe::rpc {

/// Bytes of messages that lie in gRPC's memory: what all connections together may have there. gRPC itself, once its
/// quota is used up, ends connections whoever they are. Beyond a limit the connection has to go whose messages would
/// take the longest to become whole, or to be answered. Workers are those whose Hello was accepted.
struct MessageLimits {
  uint64_t workers = uint64_t{160} << 20;  ///< of messages that are not whole
  uint64_t others = uint64_t{28} << 20;    ///< of those, and of whole requests that are not answered
  /// Bytes that others may still send count before they come: each has so many, and they share `windows` more. Where
  /// these are used up, only one connection at a time may send what it has begun, the fastest.
  uint64_t window = FrameGuard::kFirstWindow;
  uint64_t windows = uint64_t{16} << 20;
  /// Where one has waited so long for that, whoever has made no progress for as long goes.
  absl::Duration patience = absl::Seconds(5);
  /// Another connection's oldest message, unless it has to wait, has so long. From then on the connection has to bring
  /// so many bytes a second. A worker's messages may wait for the learner.
  absl::Duration grace = absl::Seconds(2);
  double bytes_per_second = 64 << 10;
};

struct RelayOptions {
  AdmissionLimits admission;
  FrameLimits frames;
  MessageLimits messages;
  absl::Duration first_call_timeout;  ///< from accepting to the first valid call
  /// Newcomers that have greeted and that gRPC gets: each costs it half a millisecond of processor time, and memory
  /// until it has taken it down again. While `max_greeted` wait for that, no newcomers are wanted. Who comes all the
  /// same is closed at its greeting, where more than a quarter of those who wait are from its host and no worker has
  /// come from there.
  base::Rate hand_overs = {256, 1000};
  /// Who has made no valid call in this time goes for the next one where gRPC has enough of those
  /// (AdmissionLimits::unserved); within it, the next one waits.
  absl::Duration unserved_stay = absl::Milliseconds(50);
  size_t max_greeted = 64;
  /// Where no place is free, or there are `many` connections, a newcomer gets the place of the connection on which
  /// nothing has happened for the longest time, at least so long, or so long while a call is open; never a worker's.
  /// Not while `max_unproven_for_idle` have made no valid call: a flood replaces itself. Each that is held costs gRPC
  /// and us some 25 KiB.
  int64_t many = 2048;
  absl::Duration idle_stay = absl::Seconds(1);
  absl::Duration idle_call_stay = absl::Seconds(60);
  int64_t max_unproven_for_idle = 64;
  /// A client that reads nothing for so long, while answers wait for it, is closed; never a worker, which may be
  /// stopped.
  absl::Duration unread_stay = absl::Seconds(10);
  base::Clock* clock = nullptr;
  PeerBook* peers = nullptr;
  DoorCounts* counts = nullptr;
  /// Gives gRPC its end of a connection, a connected, non-blocking Unix socket.
  std::function<void(Descriptor)> hand_over;
};

/// Stands between the TCP connections of a server and gRPC: bytes pass through a socket pair, so that they can be
/// looked at (FrameGuard) before gRPC takes memory for them, and so that it is known how many connections there are
/// (Admission) and who they are (PeerBook). What one side does not read the other soon cannot write: of a connection at
/// most two buffers (RelayBuffers) are under way, and none while nothing is.
///
/// Made and owned by a ListeningServer, which calls everything from one thread. Nothing but Drain
/// blocks.
class ConnectionRelay {
 public:
  static absl::StatusOr<std::unique_ptr<ConnectionRelay>> Create(RelayOptions options);
  ~ConnectionRelay();

  /// False while enough newcomers wait for gRPC: others are as well off in the kernel's queue.
  bool wants_newcomers() const { return greeted_.size() < options_.max_greeted; }
  /// Takes an accepted connection, or closes it where there is no place for it.
  void Accept(Descriptor client, const Peer& peer);
  /// Readable when Step has something to do.
  int poll_fd() const { return epoll_.fd(); }
  /// Passes on what there is, a bounded amount of each connection, and closes connections whose time is over.
  void Step();
  /// Goes on until gRPC's ends are closed and all that they wrote has left, at most for `timeout`, then closes what is
  /// left. Blocks; nobody may call Step meanwhile.
  void Drain(absl::Duration timeout);
  /// Until Step is due even if poll_fd stays unreadable.
  absl::Duration UntilNextStep();

  int64_t num_connections() const { return static_cast<int64_t>(entries_.size()); }
  /// Newcomers to whom gRPC has said something, since the relay began. Any thread may ask.
  int64_t num_answered() const { return num_answered_.load(std::memory_order_relaxed); }
  /// Those without a valid call so far.
  int64_t num_unproven() const { return admission_.num_newcomers() + admission_.num_unserved(); }

 private:
  struct Entry {
    std::unique_ptr<RelayedConnection> connection;
    Peer peer;
    std::string name;  ///< gRPC's for it; empty: it does not know it yet
    absl::Duration since;
    absl::Duration handed_over_at;
    absl::Duration active_at;     ///< the last frame of a call passed
    bool kept = false;            ///< on a place that is kept for workers
    bool own = false;             ///< this process dials itself
    bool host_of_worker = false;  ///< a worker has come from its host before
    bool unwanted = false;        ///< it came while enough others waited for gRPC
    bool settled = false;         ///< no longer asked for its first valid call
    bool told = false;
    bool answered = false;  ///< counts in num_answered_
    bool worker = false;    ///< its messages count as a worker's
    uint64_t bytes = 0;     ///< of messages, in the totals
    uint64_t shared = 0;    ///< bytes of windows and messages beyond its own, in shared_
    absl::Duration wants_since = absl::InfiniteDuration();  ///< a window, and has none
  };

  ConnectionRelay(RelayOptions options, Descriptor epoll);
  /// Ends a connection that is idle, so that one more of `host` has a place.
  void EndIdle(const std::string& host, absl::Duration now);
  bool IsIdle(const Entry& entry, absl::Duration now) const;
  void LookForIdle(absl::Duration now);
  void TakeEvents();
  bool Watch(int fd, uint64_t key);
  /// gRPC gets those whose turn it is.
  void HandOverGreeted(absl::Duration now);
  /// Whether gRPC may have one more that has made no valid call, at the cost of another one where it has enough of
  /// them; where not, next_place_ says when.
  bool MakePlace(absl::Duration now);
  /// Makes gRPC's end of a connection, or removes it where no descriptor is left.
  void HandOver(int64_t id, Entry& entry, absl::Duration now);
  bool MakeServerEnd(int64_t id, Entry& entry);
  /// Passes on what there is; `entry` may be gone afterwards.
  void Advance(int64_t id, Entry& entry, absl::Duration now);
  /// Its turn at gRPC, at once or once it comes; or its end.
  void AwaitHandOver(int64_t id, Entry& entry, absl::Duration now);
  void AddGreeted(int64_t id, const Entry& entry);
  void RemoveGreeted(int64_t id, const Entry& entry);
  /// Books the bytes of a connection's messages; where its kind has too many, the slowest has to go.
  void BookMessages(Entry& entry, absl::Duration now);
  void BookShared(Entry& entry);
  /// Gives the client what gRPC has given, as far as there is room.
  void GrantWindow(int64_t id, Entry& entry, absl::Duration now);
  /// Chooses whose message becomes whole first, and ends who stands in the way.
  void LookForRoom(absl::Duration now);
  /// Those that have become workers since it was last looked.
  void PromoteWorkers();
  uint64_t& BytesOf(bool worker) { return worker ? bytes_of_workers_ : bytes_of_others_; }
  /// Ends whose messages take the longest, where that is at least so long.
  void EndSlowest(bool worker, absl::Duration at_least, absl::Duration now);
  /// Removes a connection that has done nothing wrong, which hears why.
  void End(int64_t id, DoorReason reason, const std::string& why, absl::Duration now);
  /// Closes who has had its time.
  void Sweep(absl::Duration now);
  bool Overdue(Entry& entry, absl::Duration now) const;
  void Remove(int64_t id);
  /// A kind of event that has one line of the log every ten seconds, however often it happens.
  struct Told {
    absl::Duration last = -absl::InfiniteDuration();
    int64_t count = 0;  ///< since that line
  };
  void Tell(Told& told, const char* what, const Entry& entry, const std::string& why, absl::Duration now);
  void TellClosed(const Entry& entry, DoorReason reason, const std::string& why, absl::Duration now) {
    options_.counts->Add(reason);
    Tell(closed_, "connection closed", entry, why, now);
  }
  void RemoveFor(int64_t id, DoorReason reason, const std::string& why, absl::Duration now);

  const RelayOptions options_;
  Descriptor epoll_;
  FrameTotals totals_;
  RelayBuffers buffers_;
  Admission admission_;
  uint64_t bytes_of_workers_ = 0, bytes_of_others_ = 0;
  uint64_t shared_ = 0;
  int64_t first_ = 0;  ///< whose message becomes whole first; 0: nobody's
  absl::Duration made_room_at_ = -absl::InfiniteDuration();
  std::map<int64_t, Entry> entries_;
  std::set<int64_t> active_;                       ///< have more to do than one turn allows
  std::set<int64_t> greeted_;                      ///< wait for gRPC
  std::map<std::string, size_t> greeted_by_host_;  ///< how many of them
  base::TokenBucket hand_overs_;
  absl::Duration next_place_;                                      ///< not before then
  std::deque<std::pair<absl::Duration, Descriptor>> turned_away_;  ///< until then
  int64_t next_id_ = 1;
  absl::Duration next_sweep_;
  /// Connections that were idle when it was last looked, by host, and since when; the longest time last.
  std::map<std::string, std::vector<std::pair<absl::Duration, int64_t>>> idle_;
  absl::Duration next_look_for_idle_ = -absl::InfiniteDuration();
  Told closed_, refused_;
  std::atomic<int64_t> num_answered_{0};
};

}  // namespace troupe::rpc
