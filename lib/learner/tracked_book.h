#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/base/tracked_total.h"
#include "lib/sample/env_report.h"

namespace troupe::learner {

/// What the callbacks of episodes have tracked at all workers. Workers say totals since they began, the book keeps what
/// came since somebody took it. At most base::kMaxTrackedNames names a run: others are left out. Not thread-safe.
class TrackedBook {
 public:
  /// What one worker has said so far: 16 bytes a name of the run.
  struct Said {
    struct Total {
      double sum = 0;
      int64_t episodes = 0;
    };
    std::vector<Total> by_name;
    bool heard = false;
    bool off = false;      ///< it is here and calls none any more
    bool was_off = false;  ///< it has said so before
  };
  struct News {
    std::vector<base::TrackedTotal> tracked;  ///< since the last time, by name
    int64_t workers_off = 0;                  ///< that are here and call none any more
    int64_t turned_off = 0;                   ///< that have ever said so, each once
    bool leaves_out = false;                  ///< there have been names beyond the limit
  };

  /// `before`: the worker may have tracked before this learner began, so that its first totals are where its counting
  /// begins. A total of fewer episodes than before is of a process that began anew. True: it says for the first time
  /// that callbacks are off.
  bool Report(const sample::EnvReport& report, bool before, Said* said);
  /// The worker has left, or joined anew: whether its callbacks are off is as it says from then on.
  void Leave(Said* said);
  News Take();

 private:
  struct Sum {
    size_t index;
    double sum = 0;
    int64_t episodes = 0;
  };
  std::map<std::string, Sum> sums_;  ///< of every name of the run
  int64_t workers_off_ = 0;
  int64_t turned_off_ = 0;
  bool leaves_out_ = false;
};

}  // namespace troupe::learner
