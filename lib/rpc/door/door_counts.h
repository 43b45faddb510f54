#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::rpc {

/// Why the door closed a connection, or refused a call.
enum class DoorReason {
  kForm,         ///< what no client of HTTP/2 or gRPC may send
  kMessages,     ///< its messages took the longest when memory was short, or were too many
  kTooSlow,      ///< a message came in too slowly
  kUnread,       ///< its client read nothing of its answers
  kIdle,         ///< it was idle, and there were many
  kNoPlace,      ///< there were too many connections, or no descriptor or memory for one more
  kNoCall,       ///< it made no valid call in time, or in the time that newcomers leave each other
  kOpenCalls,    ///< a call: its connection has too many
  kSilentCalls,  ///< a call: all connections have too many without a request
  kNewCalls,     ///< a call: new connections have too many
};
constexpr size_t kNumDoorReasons = static_cast<size_t>(DoorReason::kNewCalls) + 1;

/// True of those that a call is refused for; for the others a connection is closed.
constexpr bool IsOfCall(DoorReason reason) { return reason >= DoorReason::kOpenCalls; }
/// In words, after "closed: " or "refused: ".
std::string_view Words(DoorReason reason);

/// How often each was the reason, since the process began. Thread-safe; nothing blocks.
class DoorCounts {
 public:
  void Add(DoorReason reason) { of(reason).fetch_add(1, std::memory_order_relaxed); }
  int64_t Get(DoorReason reason) const { return counts_[static_cast<size_t>(reason)].load(std::memory_order_relaxed); }
  /// Connections that were closed, and calls that were refused.
  int64_t num_closed() const { return Sum(false); }
  int64_t num_refused() const { return Sum(true); }

 private:
  std::atomic<int64_t>& of(DoorReason reason) { return counts_[static_cast<size_t>(reason)]; }
  int64_t Sum(bool of_calls) const;

  std::array<std::atomic<int64_t>, kNumDoorReasons> counts_ = {};
};

/// One kind of event at the port, and how often it happened. Plain value, as told to whoever asks for a run's status.
struct DoorCount {
  std::string what;  ///< "connections closed: idle, among many"
  int64_t count = 0;
};
std::vector<DoorCount> ToValues(const DoorCounts& counts);

}  // namespace troupe::rpc
