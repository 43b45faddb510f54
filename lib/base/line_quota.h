#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/token_bucket.h"

namespace troupe::base {

/// How many log lines others may cause: some at once, then so many a second; the rest is counted and told with the next
/// line. For lines that whoever reaches a port can bring about as often as they like. Thread-safe; never blocks.
class LineQuota {
 public:
  /// `clock` outlives the quota.
  LineQuota(const Rate& rate, const Clock* clock);

  /// nullopt: no line now. Otherwise how many lines were left out since the last one.
  std::optional<int64_t> Take();

 private:
  const Clock* const clock_;
  Mutex mutex_;
  TokenBucket lines_ ABSL_GUARDED_BY(mutex_);
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// Whether a line about somebody at the other end of a connection may be logged now, by a quota of the whole process
/// (2048, then one a second). Tells before that how many were left out.
bool MayTellOfPeer();

}  // namespace troupe::base
