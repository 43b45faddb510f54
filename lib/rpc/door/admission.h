#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "lib/rpc/door/frame_guard.h"

namespace troupe::rpc {

/// Connections: in all (fewer where the process may open few descriptors, see AdmissionLimitsFor), those of them that
/// are kept for the process itself and for workers that return, those that gRPC has not been given yet, and those that
/// it has without a valid call so far.
constexpr int64_t kMaxConnections = 8192;
constexpr int64_t kKeptConnections = 8;
constexpr int64_t kMaxNewcomers = 4096;
constexpr int64_t kMaxUnservedConnections = 128;
/// Descriptors that connections leave to the rest of the process, and that each of them takes: the client's, our end
/// towards gRPC, and gRPC's.
constexpr int64_t kReservedDescriptors = 256;
constexpr int64_t kDescriptorsPerConnection = 3;

/// How many connections a server keeps.
struct AdmissionLimits {
  int64_t total = 0;
  int64_t per_host = 0;
  int64_t kept = 0;       ///< of `total`, for the process itself and for workers that return
  int64_t newcomers = 0;  ///< connections that gRPC has not been given yet
  int64_t unserved = 0;   ///< ... that it has, and whose first valid call is still to come
};

/// The descriptors that a process may open give the limits: three for each connection, the rest for everything else.
AdmissionLimits AdmissionLimitsFor(int64_t max_descriptors);

/// Decides who gets in, and who has to go for that. Plain bookkeeping: no I/O, no clock, not thread-safe.
///
/// Where there are too many newcomers, one of them goes for the next: of the host that has more than half of them if
/// there is one, then whoever has come the least far, then the oldest. The same holds of those that gRPC has and that
/// have made no valid call, but there nobody goes before its time is over while another's is. So a flood replaces
/// itself at one pace, however far its connections have come, and an honest newcomer needs only the moment until its
/// first answer.
class Admission {
 public:
  struct Newcomer {
    std::string host;
    bool own = false;             ///< this process dials itself
    bool host_of_worker = false;  ///< a worker has come from there before
  };
  struct Decision {
    bool admit = false;
    bool kept = false;             ///< on one of the places that are kept
    std::optional<int64_t> evict;  ///< who goes first
  };

  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  Decision Decide(const Newcomer& newcomer) const;
  /// Whose connections would have to go for one more of `host` where it has no place, or where there are `many` of
  /// all: those of `host`, or of the host with the most; nullopt: there is a place.
  std::optional<std::string> WhereNoPlaceIs(const std::string& host, int64_t many) const;
  /// `id` grows from one to the next.
  void Add(int64_t id, const std::string& host);
  /// gRPC has it from `now` on: it is no newcomer any more.
  void HandedOver(int64_t id, absl::Duration now);
  void SetProgress(int64_t id, FrameGuard::Progress progress);
  void Remove(int64_t id);

  int64_t size() const { return static_cast<int64_t>(connections_.size()); }
  int64_t num_newcomers() const { return newcomers_.size(); }
  int64_t num_unserved() const { return unserved_.size(); }
  bool unserved_full() const { return num_unserved() >= limits_.unserved; }
  /// The one who would have to go of those that gRPC has without a valid call: one that it has had since `latest` or
  /// before, or else the one that it has had for the longest time. nullopt: nobody is there.
  std::optional<int64_t> FirstUnservedToGo(absl::Duration latest) const { return unserved_.FirstToGo(nullptr, latest); }

 private:
  /// Connections without a valid call, and how many of them each host has.
  class Crowd {
   public:
    void Add(int64_t id, const std::string& host, FrameGuard::Progress progress, absl::Duration since);
    /// Its progress so far; nullopt: it is not in the crowd.
    std::optional<FrameGuard::Progress> Remove(int64_t id);
    void SetProgress(int64_t id, FrameGuard::Progress progress);
    /// Among all or those of one host; nullopt: nobody. See FirstUnservedToGo for `latest`.
    std::optional<int64_t> FirstToGo(const std::string* host, absl::Duration latest = absl::InfiniteDuration()) const;
    int64_t size() const { return static_cast<int64_t>(members_.size()); }

   private:
    struct Member {
      FrameGuard::Progress progress = FrameGuard::Progress::kSilent;
      std::string host;
      absl::Duration since;
    };
    /// The host of more than half; nullptr: there is none.
    const std::string* Crowding() const;

    std::map<int64_t, Member> members_;
    std::map<std::string, int64_t> num_by_host_;
  };

  int64_t NumOf(const std::string& host) const;

  const AdmissionLimits limits_;
  std::map<int64_t, std::string> connections_;  ///< id -> host
  std::map<std::string, int64_t> num_by_host_;
  Crowd newcomers_, unserved_;
};

}  // namespace troupe::rpc
