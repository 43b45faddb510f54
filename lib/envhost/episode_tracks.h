#pragma once

#include <atomic>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/base/tracked_total.h"

namespace troupe::envhost {

/// What the callbacks of episodes have tracked in a worker since it began, and whether they are still called: one that
/// raises, hangs or dies turns them off for good, for what it remembers is gone, and the next one would do the same.
/// Made by whoever samples, shared with the environments that it makes. Thread-safe; never blocks.
class EpisodeTracks {
 public:
  static constexpr size_t kMaxWordsBytes = 1024;  ///< of why they are off

  /// What Python answers at the end of an episode, or of several: {"tracked": [[NAME, sum of means, episodes], …],
  /// "off": TEXT or ""}. What is no such answer turns them off, and so do more than base::kMaxTrackedNames different
  /// names by now and a name's sum or count beyond base::kMaxTrackedSum or kMaxTrackedEpisodes, which is not added.
  void Take(std::string_view answer);
  /// Later words than the first are dropped.
  void TurnOff(std::string words);

  bool off() const { return off_.load(std::memory_order_relaxed); }
  /// Why; empty while they are called. Printable ASCII.
  std::string why_off() const;
  /// By name, ascending.
  std::vector<base::TrackedTotal> totals() const;

 private:
  absl::Status Add(std::string_view answer);

  std::atomic<bool> off_{false};
  mutable base::Mutex mutex_;
  std::string why_off_ ABSL_GUARDED_BY(mutex_);
  struct Sum {
    double sum = 0;
    int64_t episodes = 0;
  };
  std::map<std::string, Sum> sums_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::envhost
