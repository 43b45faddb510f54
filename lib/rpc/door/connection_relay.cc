#include "lib/rpc/door/connection_relay.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace troupe::rpc {
namespace {

// What one turn does at most, so that connections at work do not wait for a flood.
constexpr int kEventsPerStep = 128;
constexpr int kHandOversPerStep = 4;
constexpr absl::Duration kSweepInterval = absl::Milliseconds(100);
// From one side's end to the other's.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);
constexpr absl::Duration kRelayWarningInterval = absl::Seconds(10);
constexpr int kSocketBufferBytes = 1 << 20;
// Newcomers without a place whose sockets stay open, so that nothing that they send takes from them why.
constexpr size_t kMaxTurnedAway = 32;
// Less is not worth a frame, unless it is all that there is.
constexpr uint64_t kLeastGrant = 16 << 10;

struct SocketPair {
  Descriptor ours, grpcs;
  std::string name;
};

/// Connected Unix sockets; ours has a name that the kernel chose, under which gRPC knows the connection.
SocketPair MakePair() {
  SocketPair pair;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return pair;
  pair.ours = Descriptor(ends[0]);
  pair.grpcs = Descriptor(ends[1]);
  for (const int end : ends) setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t bytes = sizeof(name);
  if (bind(pair.ours.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(sa_family_t)) != 0 ||
      getsockname(pair.ours.fd(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) {
    pair.ours.Close();
    return pair;
  }
  const size_t head = offsetof(sockaddr_un, sun_path) + 1;
  pair.name = absl::StrCat("unix-abstract:", std::string(name.sun_path + 1, bytes - head));
  return pair;
}

uint64_t EventKey(int64_t id, bool server) { return static_cast<uint64_t>(id) << 1 | (server ? 1 : 0); }

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionRelay>> ConnectionRelay::Create(RelayOptions options) {
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return absl::ResourceExhaustedError("cannot listen: no file descriptor is left, raise the limit (ulimit -n)");
  }
  return std::unique_ptr<ConnectionRelay>(new ConnectionRelay(std::move(options), std::move(epoll)));
}

ConnectionRelay::ConnectionRelay(RelayOptions options, Descriptor epoll)
    : options_(std::move(options)),
      epoll_(std::move(epoll)),
      totals_(options_.frames, options_.clock->SteadyNow()),
      admission_(options_.admission),
      hand_overs_(options_.hand_overs, options_.clock->SteadyNow()),
      next_sweep_(options_.clock->SteadyNow()) {}

ConnectionRelay::~ConnectionRelay() {
  while (!entries_.empty()) Remove(entries_.begin()->first);
}

void ConnectionRelay::Accept(Descriptor client, const Peer& peer) {
  Admission::Newcomer newcomer;
  newcomer.host = peer.host;
  newcomer.own = options_.peers->IsOwnDial(peer, LocalHostOf(client.fd()));
  newcomer.host_of_worker = options_.peers->IsHostOfWorker(peer.host);
  const absl::Duration now = options_.clock->SteadyNow();
  EndIdle(peer.host, now);
  const Admission::Decision decision = admission_.Decide(newcomer);
  if (decision.evict.has_value()) RemoveFor(*decision.evict, DoorReason::kNoPlace, "a newcomer has its place", now);
  Entry entry;
  entry.peer = peer;
  entry.since = entry.active_at = now;
  entry.kept = decision.kept && !newcomer.own;
  entry.own = newcomer.own;
  entry.host_of_worker = newcomer.host_of_worker;
  entry.unwanted = !wants_newcomers();
  if (!decision.admit) {
    const std::string why =
        absl::StrCat("no place: there are ", num_connections(), " connections, at most ", options_.admission.total,
                     ", and ", options_.admission.per_host, " of one address");
    RelayedConnection::TurnAway(client, why);
    if (turned_away_.size() == kMaxTurnedAway) turned_away_.pop_front();
    turned_away_.emplace_back(now + kLeaveTimeout, std::move(client));
    return TellClosed(entry, DoorReason::kNoPlace, why, now);
  }
  const int64_t id = next_id_++;
  if (!Watch(client.fd(), EventKey(id, false))) {
    return TellClosed(entry, DoorReason::kNoPlace, "there is no memory for it", now);
  }
  entry.connection =
      std::make_unique<RelayedConnection>(std::move(client), peer.host, options_.frames, &totals_, &buffers_, now);
  Entry& added = entries_.emplace(id, std::move(entry)).first->second;
  admission_.Add(id, peer.host);
  // Its greeting is there already, most likely; until it is read this is a silent connection, the first to go.
  added.connection->OnClientReady(EPOLLIN);
  Advance(id, added, now);
}

void ConnectionRelay::EndIdle(const std::string& host, absl::Duration now) {
  const std::optional<std::string> among = admission_.WhereNoPlaceIs(host, options_.many);
  if (!among.has_value() || num_unproven() >= options_.max_unproven_for_idle) return;
  if (idle_[*among].empty()) LookForIdle(now);
  for (auto& idle = idle_[*among]; !idle.empty();) {
    const int64_t id = idle.back().second;
    idle.pop_back();
    const auto found = entries_.find(id);
    if (found == entries_.end() || !IsIdle(found->second, now)) continue;
    return End(id, DoorReason::kIdle, "it was idle, and there are many", now);
  }
}

bool ConnectionRelay::IsIdle(const Entry& entry, absl::Duration now) const {
  const FrameGuard& guard = entry.connection->guard();
  const absl::Duration stay = guard.has_open_calls() ? options_.idle_call_stay : options_.idle_stay;
  return guard.progress() == FrameGuard::Progress::kServed && now - entry.active_at >= stay &&
         !options_.peers->IsWorker(entry.name);
}

void ConnectionRelay::LookForIdle(absl::Duration now) {
  // Where there are none, thousands of newcomers a second must not have all connections looked at for each of them.
  if (now < next_look_for_idle_) return;
  next_look_for_idle_ = now + kSweepInterval;
  idle_.clear();
  for (const auto& [id, entry] : entries_) {
    if (IsIdle(entry, now)) idle_[entry.peer.host].emplace_back(entry.active_at, id);
  }
  for (auto& [host, idle] : idle_) std::sort(idle.begin(), idle.end(), std::greater<>());
}

bool ConnectionRelay::Watch(int fd, uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = key;
  return epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void ConnectionRelay::HandOver(int64_t id, Entry& entry, absl::Duration now) {
  RemoveGreeted(id, entry);
  admission_.HandedOver(id, now);
  entry.handed_over_at = now;
  active_.insert(id);
  if (MakeServerEnd(id, entry)) return;
  RemoveFor(id, DoorReason::kNoPlace, "no file descriptor is left (ulimit -n)", now);
}

bool ConnectionRelay::MakeServerEnd(int64_t id, Entry& entry) {
  SocketPair pair = MakePair();
  if (!pair.ours.valid() || !Watch(pair.ours.fd(), EventKey(id, true))) return false;
  entry.name = pair.name;
  entry.connection->SetServer(std::move(pair.ours));
  options_.peers->Add(pair.name, entry.peer);
  options_.hand_over(std::move(pair.grpcs));
  return true;
}

void ConnectionRelay::HandOverGreeted(absl::Duration now) {
  int turn = 0;
  while (turn < kHandOversPerStep && !greeted_.empty()) {
    const int64_t id = *greeted_.begin();
    Entry& entry = entries_.at(id);
    if (entry.connection->gone()) {
      Remove(id);
      continue;
    }
    if (!MakePlace(now) || !hand_overs_.Take(now)) return;
    HandOver(id, entry, now);
    ++turn;
  }
}

bool ConnectionRelay::MakePlace(absl::Duration now) {
  next_place_ = now + hand_overs_.UntilNext(now);
  if (next_place_ > now) return false;
  while (admission_.unserved_full()) {
    const int64_t first = *admission_.FirstUnservedToGo(now - options_.unserved_stay);
    const Entry& entry = entries_.at(first);
    if (options_.peers->IsWorker(entry.name) || entry.connection->guard().request_pending()) {
      // It has been let in, or has asked: what it waits for is ours to send.
      admission_.SetProgress(first, FrameGuard::Progress::kServed);
      continue;
    }
    next_place_ = entry.handed_over_at + options_.unserved_stay;
    if (next_place_ > now) return false;
    RemoveFor(first, DoorReason::kNoCall, "it made no valid call while others waited", now);
  }
  return true;
}

absl::Duration ConnectionRelay::UntilNextStep() {
  if (!active_.empty()) return absl::ZeroDuration();
  if (entries_.empty()) return absl::InfiniteDuration();
  const absl::Duration now = options_.clock->SteadyNow();
  const absl::Duration sweep = std::max(absl::ZeroDuration(), next_sweep_ - now);
  return greeted_.empty() ? sweep : std::clamp(next_place_ - now, absl::ZeroDuration(), sweep);
}

void ConnectionRelay::Step() {
  TakeEvents();
  const absl::Duration now = options_.clock->SteadyNow();
  HandOverGreeted(now);
  const std::set<int64_t> due = std::exchange(active_, {});
  for (const int64_t id : due) {
    const auto found = entries_.find(id);
    if (found != entries_.end()) Advance(id, found->second, now);
  }
  if (now >= next_sweep_) {
    next_sweep_ = now + kSweepInterval;
    Sweep(now);
  }
}

void ConnectionRelay::Drain(absl::Duration timeout) {
  const absl::Duration deadline = options_.clock->SteadyNow() + timeout;
  while (!entries_.empty() && options_.clock->SteadyNow() < deadline) {
    pollfd wait = {.fd = epoll_.fd(), .events = POLLIN, .revents = 0};
    poll(&wait, 1, active_.empty() ? 10 : 0);
    Step();
    for (auto it = entries_.begin(); it != entries_.end();) {
      const int64_t id = (it++)->first;
      if (entries_.at(id).connection->flushed()) Remove(id);
    }
  }
  while (!entries_.empty()) Remove(entries_.begin()->first);
}

void ConnectionRelay::TakeEvents() {
  epoll_event events[kEventsPerStep];
  const int count = epoll_wait(epoll_.fd(), events, kEventsPerStep, 0);
  for (int i = 0; i < count; ++i) {
    const auto id = static_cast<int64_t>(events[i].data.u64 >> 1);
    const auto found = entries_.find(id);
    if (found == entries_.end()) continue;
    RelayedConnection& connection = *found->second.connection;
    if ((events[i].data.u64 & 1) != 0) {
      connection.OnServerReady(events[i].events);
    } else {
      connection.OnClientReady(events[i].events);
    }
    active_.insert(id);
  }
}

void ConnectionRelay::Advance(int64_t id, Entry& entry, absl::Duration now) {
  const uint64_t call_frames = entry.connection->guard().num_call_frames();
  const int64_t refused = totals_.num_refused;
  const bool more = entry.connection->Advance(now);
  for (int64_t i = refused; i < totals_.num_refused; ++i) options_.counts->Add(totals_.refused_for);
  if (totals_.num_refused > refused) Tell(refused_, "call refused", entry, totals_.last_refusal, now);
  if (entry.connection->guard().num_call_frames() != call_frames) entry.active_at = now;
  if (!entry.answered && entry.connection->guard().server_began()) {
    entry.answered = true;
    num_answered_.fetch_add(1, std::memory_order_relaxed);
  }
  BookMessages(entry, now);
  GrantWindow(id, entry, now);
  admission_.SetProgress(id, entry.connection->guard().progress());
  const std::optional<FrameGuard::Violation>& violation = entry.connection->guard().violation();
  if (violation.has_value() && !entry.told) {
    entry.told = true;
    TellClosed(entry, violation->reason, violation->what, now);
  }
  if (entry.connection->done()) return Remove(id);
  if (more) active_.insert(id);
  if (entry.connection->needs_server()) {
    AwaitHandOver(id, entry, now);
  } else {
    RemoveGreeted(id, entry);
  }
}

void ConnectionRelay::AwaitHandOver(int64_t id, Entry& entry, absl::Duration now) {
  if (entry.connection->gone()) return Remove(id);
  if (entry.own) return HandOver(id, entry, now);
  if (entry.unwanted && !wants_newcomers() && greeted_.count(id) == 0 && !entry.host_of_worker) {
    const auto of_host = greeted_by_host_.find(entry.peer.host);
    if (of_host != greeted_by_host_.end() && 4 * of_host->second > greeted_.size()) {
      entry.connection->TurnAway("too many newcomers at once");
      return RemoveFor(id, DoorReason::kNoPlace, "too many newcomers at once", now);
    }
  }
  AddGreeted(id, entry);
}

void ConnectionRelay::AddGreeted(int64_t id, const Entry& entry) {
  if (greeted_.insert(id).second) ++greeted_by_host_[entry.peer.host];
}

void ConnectionRelay::RemoveGreeted(int64_t id, const Entry& entry) {
  if (greeted_.erase(id) == 0) return;
  const auto of_host = greeted_by_host_.find(entry.peer.host);
  if (--of_host->second == 0) greeted_by_host_.erase(of_host);
}

void ConnectionRelay::BookMessages(Entry& entry, absl::Duration now) {
  const FrameGuard& guard = entry.connection->guard();
  uint64_t bytes = guard.violation().has_value() ? 0 : guard.unfinished_bytes();
  // A worker's requests are answered when the learner needs no more of them.
  if (!guard.violation().has_value() && !entry.worker) bytes += guard.waiting_bytes();
  const bool more = bytes > entry.bytes;
  BytesOf(entry.worker) += bytes - entry.bytes;
  entry.bytes = bytes;
  BookShared(entry);
  if (!more) return;
  if (!entry.worker && bytes_of_others_ > options_.messages.others) PromoteWorkers();
  if (BytesOf(entry.worker) > (entry.worker ? options_.messages.workers : options_.messages.others)) {
    EndSlowest(entry.worker, absl::ZeroDuration(), now);
  }
}

void ConnectionRelay::BookShared(Entry& entry) {
  const FrameGuard& guard = entry.connection->guard();
  const bool counts = !entry.worker && !guard.violation().has_value();
  const uint64_t has = counts ? guard.window() + entry.bytes : 0;
  const uint64_t shared = has - std::min(has, options_.messages.window);
  shared_ += shared - entry.shared;
  entry.shared = shared;
}

void ConnectionRelay::GrantWindow(int64_t id, Entry& entry, absl::Duration now) {
  FrameGuard& guard = entry.connection->guard();
  const MessageLimits& limits = options_.messages;
  const uint64_t wanted = guard.withheld(), has = guard.window() + entry.bytes;
  const uint64_t room =
      limits.window - std::min(limits.window, has) + limits.windows - std::min(limits.windows, shared_);
  uint64_t granted = std::min(wanted, room);
  if (granted < wanted && granted < kLeastGrant) granted = 0;
  if (id == first_) {
    const uint64_t missing = guard.missing_bytes();
    granted = std::max(granted, std::min(wanted, missing - std::min(missing, guard.window())));
  }
  const bool waited = entry.wants_since < absl::InfiniteDuration();
  if (granted == wanted) {
    entry.wants_since = absl::InfiniteDuration();
  } else if (granted > 0 || !waited) {
    entry.wants_since = now;
  }
  if (granted == 0) return;
  if (waited) guard.RestartMessages(now);
  guard.Grant(granted);
  BookShared(entry);
  active_.insert(id);
}

void ConnectionRelay::LookForRoom(absl::Duration now) {
  absl::Duration waits_since = absl::InfiniteDuration();
  double shortest = std::numeric_limits<double>::infinity();
  const auto first = entries_.find(first_);
  const bool goes_on = first != entries_.end() && first->second.connection->guard().unfinished_bytes() > 0;
  if (!goes_on) first_ = 0;
  for (const auto& [id, entry] : entries_) {
    if (entry.wants_since == absl::InfiniteDuration()) continue;
    waits_since = std::min(waits_since, entry.wants_since);
    const FrameGuard& guard = entry.connection->guard();
    // A client that waits for answers needs no window until they have come.
    if (goes_on || guard.unfinished_bytes() == 0 || guard.waiting_bytes() > options_.messages.window) continue;
    const double holding = guard.HoldingTime(now, entry.wants_since);
    if (holding >= shortest) continue;
    shortest = holding;
    first_ = id;
  }
  if (now - std::max(waits_since, made_room_at_) < options_.messages.patience) return;
  made_room_at_ = now;
  EndSlowest(/*worker=*/false, options_.messages.patience, now);
}

void ConnectionRelay::PromoteWorkers() {
  for (auto& [id, entry] : entries_) {
    if (entry.worker || !options_.peers->IsWorker(entry.name)) continue;
    bytes_of_others_ -= std::exchange(entry.bytes, 0);
    entry.worker = true;
    BookShared(entry);
    entry.connection->guard().GrantAll();
    active_.insert(id);
  }
}

void ConnectionRelay::EndSlowest(bool worker, absl::Duration at_least, absl::Duration now) {
  auto slowest = entries_.end();
  double longest = absl::ToDoubleSeconds(at_least);
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.worker != worker || it->second.bytes == 0) continue;
    const double holding = it->second.connection->guard().HoldingTime(now, it->second.wants_since);
    if (holding < longest || (slowest != entries_.end() && holding == longest)) continue;
    longest = holding;
    slowest = it;
  }
  if (slowest == entries_.end()) return;
  Entry& entry = slowest->second;
  entry.connection->EndFor(DoorReason::kMessages, absl::StrCat("the messages of all connections have ", BytesOf(worker),
                                                               " bytes, and this connection's take the longest"));
  BytesOf(worker) -= std::exchange(entry.bytes, 0);
  BookShared(entry);
  active_.insert(slowest->first);
}

void ConnectionRelay::End(int64_t id, DoorReason reason, const std::string& why, absl::Duration now) {
  Entry& entry = entries_.at(id);
  TellClosed(entry, reason, why, now);
  entry.connection->EndFor(reason, why, /*calm=*/true);
  entry.connection->Advance(now);
  Remove(id);
}

void ConnectionRelay::Sweep(absl::Duration now) {
  PromoteWorkers();
  LookForRoom(now);
  while (!turned_away_.empty() && turned_away_.front().first <= now) turned_away_.pop_front();
  std::vector<int64_t> overdue;
  for (auto& [id, entry] : entries_) {
    const bool wants = entry.wants_since < absl::InfiniteDuration();
    if (wants) GrantWindow(id, entry, now);
    if (entry.bytes > 0 && !entry.worker && !wants &&
        entry.connection->guard().IsSlow(now, options_.messages.grace, options_.messages.bytes_per_second)) {
      entry.connection->EndFor(DoorReason::kTooSlow, "a message comes in too slowly");
      active_.insert(id);
    }
    if (now - entry.connection->unread_since() >= options_.unread_stay && !options_.peers->IsWorker(entry.name)) {
      entry.connection->EndFor(DoorReason::kUnread, "nothing of its answers was read");
      active_.insert(id);
    }
    if (Overdue(entry, now)) overdue.push_back(id);
    if (entry.settled) admission_.SetProgress(id, FrameGuard::Progress::kServed);
    if (entry.connection->guard().waits() || entry.connection->guard().holds_resets()) active_.insert(id);
  }
  for (const int64_t id : overdue) {
    if (entries_.at(id).connection->leaving_since() < absl::InfiniteDuration()) {
      Remove(id);
    } else {
      RemoveFor(id, DoorReason::kNoCall, "it made no valid call in time", now);
    }
  }
}

bool ConnectionRelay::Overdue(Entry& entry, absl::Duration now) const {
  if (entry.connection->leaving_since() + kLeaveTimeout <= now) return true;
  if (entry.settled || now < entry.since + options_.first_call_timeout) return false;
  const FrameGuard& guard = entry.connection->guard();
  entry.settled = guard.progress() == FrameGuard::Progress::kServed || guard.request_pending();
  if (entry.kept && !options_.peers->IsWorker(entry.name)) return true;
  return !entry.settled;
}

void ConnectionRelay::RemoveFor(int64_t id, DoorReason reason, const std::string& why, absl::Duration now) {
  TellClosed(entries_.at(id), reason, why, now);
  Remove(id);
}

void ConnectionRelay::Remove(int64_t id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  if (!found->second.name.empty()) options_.peers->Remove(found->second.name);
  admission_.Remove(id);
  BytesOf(found->second.worker) -= found->second.bytes;
  shared_ -= found->second.shared;
  active_.erase(id);
  RemoveGreeted(id, found->second);
  entries_.erase(found);
}

void ConnectionRelay::Tell(Told& told, const char* what, const Entry& entry, const std::string& why,
                           absl::Duration now) {
  ++told.count;
  if (now < told.last + kRelayWarningInterval) return;
  told.last = now;
  TROUPE_WARN("{} peer={} reason=\"{}\" since_last_line={}", what, entry.peer.ToString(), why, told.count);
  told.count = 0;
}

}  // namespace troupe::rpc
