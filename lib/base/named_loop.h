#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace troupe::base {

/// A thread that makes one step again and again: the one way to have something happen every so often.
///
/// Made and owned by services/ and by tests; no library makes one. `step` is called by the loop's thread alone, one
/// call at a time, and says how long until the next one is due (0: at once; InfiniteDuration: when woken). It may call
/// Wake, never Stop. What it uses outlives the loop. Thread-safe. States: running -> stopped, by Stop or the
/// destructor, which wait for a step in progress.
class NamedLoop {
 public:
  /// `name` is the thread's, for debuggers and `top -H`; of it 15 bytes are shown. The first step is due after `first`.
  NamedLoop(const std::string& name, std::function<absl::Duration()> step, absl::Duration first = absl::ZeroDuration());
  ~NamedLoop() { Stop(); }
  NamedLoop(const NamedLoop&) = delete;
  NamedLoop& operator=(const NamedLoop&) = delete;

  /// A step is due now; during a step: right after it. Never blocks for long.
  void Wake();
  /// No step begins any more. Blocks until a step in progress is over. Idempotent.
  void Stop();

 private:
  void Run(const std::string& name, absl::Duration first);

  const std::function<absl::Duration()> step_;
  Mutex mutex_;
  CondVar changed_;
  bool due_ ABSL_GUARDED_BY(mutex_) = false;  ///< woken since the last step began
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex joining_;                                 ///< two may call Stop
  std::thread thread_ ABSL_GUARDED_BY(joining_);  // last: it uses the rest
};

}  // namespace troupe::base
