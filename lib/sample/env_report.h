#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/tracked_total.h"
#include "lib/sample/env_counters.h"

namespace troupe::sample {

/// How the last episodes of a worker process ended. Plain value.
struct RecentEpisodes {
  static constexpr int32_t kMost = 100;
  /// Fewer say nothing of an environment.
  static constexpr int32_t kFewest = 20;

  int32_t ended = 0;   ///< at most kMost
  int32_t failed = 0;  ///< of them, by an error of their environment

  /// Whether so many failed that the worker gets no more work. `max_failed_share` 1: never.
  bool Beyond(double max_failed_share) const {
    return ended >= kFewest && static_cast<double>(failed) > max_failed_share * static_cast<double>(ended);
  }
  friend bool operator==(const RecentEpisodes&, const RecentEpisodes&) = default;
};

/// The last RecentEpisodes::kMost episodes of a worker. Not thread-safe.
class EpisodeOutcomes {
 public:
  void Add(bool failed) {
    recent_.failed += static_cast<int32_t>(failed) - static_cast<int32_t>(failed_[next_]);
    recent_.ended += static_cast<int32_t>(recent_.ended < RecentEpisodes::kMost);
    failed_[next_] = failed;
    next_ = (next_ + 1) % RecentEpisodes::kMost;
  }
  const RecentEpisodes& recent() const { return recent_; }

 private:
  std::bitset<RecentEpisodes::kMost> failed_;
  size_t next_ = 0;
  RecentEpisodes recent_;
};

/// Something that went wrong in an environment, for people: told once for each kind. Plain value.
struct EnvIncident {
  enum class What : uint8_t {
    kFailure = 1,       ///< a call failed, which ended its episode
    kOutsideSpace = 2,  ///< an observation was not in its space; the episode went on
  };
  static constexpr size_t kMostKinds = 16;  ///< that a worker process tells of
  static constexpr size_t kMaxKindBytes = 256;
  static constexpr size_t kMaxTextBytes = 4096;

  What what = What::kFailure;
  std::string kind;  ///< the same for those that need not be told again; at most kMaxKindBytes
  /// A line that says what, where and when, then perhaps those of a traceback; printable ASCII and line feeds, at most
  /// kMaxTextBytes.
  std::string text;

  friend bool operator==(const EnvIncident&, const EnvIncident&) = default;
};

/// What a worker says of its environments. Plain value.
struct EnvReport {
  EnvCounters counters;
  RecentEpisodes recent;
  /// Each of its environments has had an episode that failed, and no episode has ended well.
  bool fails_from_the_start = false;
  std::vector<EnvIncident> incidents;  ///< that the learner has not heard of
  /// What callbacks of episodes have tracked since the worker process began, by name; at most base::kMaxTrackedNames.
  std::vector<base::TrackedTotal> tracked = {};
  static constexpr size_t kMaxCallbacksOffBytes = 1024;
  std::string callbacks_off = {};  ///< why they are not called any more; empty: they are, or there are none

  friend bool operator==(const EnvReport&, const EnvReport&) = default;
};

}  // namespace troupe::sample
