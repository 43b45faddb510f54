#pragma once

#include <cstdint>
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

/// Messages that have begun and are not whole lie in gRPC's memory: what all connections together may have there. gRPC
/// itself, once its quota is used up, ends connections whoever they are. Beyond a limit the connection has to go whose
/// messages would take the longest to become whole. Workers are those whose Hello was accepted.
struct UnfinishedLimits {
  uint64_t workers = uint64_t{160} << 20;
  uint64_t others = uint64_t{28} << 20;
  /// From here on others with more than `small` wait, but for the one that came first of them: large messages become
  /// whole one after the other, at most so many bytes of them in a tenth of a second.
  uint64_t others_in_turn = uint64_t{4} << 20;
  uint64_t bytes_in_turn = uint64_t{8} << 20;
  uint64_t small = uint64_t{128} << 10;
  /// Another connection's oldest message, unless it has to wait, has so long. From then on the connection has to bring
  /// so many bytes a second. A worker's messages may wait for the learner.
  absl::Duration grace = absl::Seconds(2);
  double bytes_per_second = 64 << 10;
};

struct RelayOptions {
  AdmissionLimits admission;
  FrameLimits frames;
  UnfinishedLimits unfinished;
  absl::Duration first_call_timeout;  ///< from accepting to the first valid call
  /// Newcomers that have greeted and that gRPC gets: each costs it half a millisecond of processor time, and memory
  /// until it has taken it down again. While `max_greeted` wait for that, no newcomers are wanted. Who comes all the
  /// same is closed at its greeting, where more than a quarter of those who wait are from its host and no worker has
  /// come from there.
  base::Rate hand_overs = {256, 3000};
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
    bool warned = false;
    bool worker = false;      ///< its unfinished bytes count as a worker's
    bool waits = false;       ///< others' large messages come first
    uint64_t turn = 0;        ///< among large_
    uint64_t unfinished = 0;  ///< bytes that are in the totals
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
  /// Books the unfinished bytes of a connection; where its kind has too many, the slowest has to go.
  void BookUnfinished(int64_t id, Entry& entry, absl::Duration now);
  void BookLarge(int64_t id, Entry& entry, uint64_t bytes);
  bool IsLarge(int64_t id, const Entry& entry) const { return large_.count({entry.turn, id}) > 0; }
  void ActivateFirstLarge();
  /// Those that have become workers since it was last looked.
  void PromoteWorkers();
  /// How many buffers of its client a connection may read now.
  int MaxReads(int64_t id, Entry& entry);
  uint64_t& UnfinishedOf(bool worker) { return worker ? unfinished_workers_ : unfinished_others_; }
  void EndSlowest(bool worker, absl::Duration now);
  /// Removes a connection that has done nothing wrong, which hears why.
  void End(int64_t id, const std::string& why, absl::Duration now);
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
  void Warn(const Entry& entry, const std::string& why, absl::Duration now) {
    Tell(closed_, "connection closed", entry, why, now);
  }

  const RelayOptions options_;
  Descriptor epoll_;
  FrameTotals totals_;
  RelayBuffers buffers_;
  Admission admission_;
  uint64_t unfinished_workers_ = 0, unfinished_others_ = 0;
  /// Others with more than a small unfinished message, as (turn, id): who has sent one whole goes to the end.
  std::set<std::pair<uint64_t, int64_t>> large_;
  uint64_t next_turn_ = 1;
  std::map<int64_t, Entry> entries_;
  std::set<int64_t> active_;                       ///< have more to do than one turn allows
  std::set<int64_t> greeted_;                      ///< wait for gRPC
  std::map<std::string, size_t> greeted_by_host_;  ///< how many of them
  base::TokenBucket hand_overs_;
  absl::Duration next_place_;   ///< not before then
  uint64_t bytes_in_turn_ = 0;  ///< since the last sweep
  int64_t next_id_ = 1;
  absl::Duration next_sweep_;
  /// Connections that were idle when it was last looked, by host, and since when; the longest time last.
  std::map<std::string, std::vector<std::pair<absl::Duration, int64_t>>> idle_;
  absl::Duration next_look_for_idle_ = -absl::InfiniteDuration();
  Told closed_, refused_;
};

}  // namespace troupe::rpc
