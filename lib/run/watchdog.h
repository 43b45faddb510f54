#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace troupe::run {

struct WatchdogOptions {
  absl::Duration interval = absl::Seconds(5);
  int failures = 3;                          ///< in a row
  absl::Duration grace = absl::Seconds(15);  ///< from the last of them until the process ends in any case
};

/// Asks every few seconds whether this process still answers at its own port, as a stranger would find out. A process
/// that is alive and deaf is restarted by nobody: it has to end itself (ExitCode::kDeaf).
///
/// Made and owned by a service, before what it dials and destroyed after it, so that an end that hangs is seen, too.
/// Starts no thread: a loop of its own calls Step, which blocks as long as a dial does. The other methods may be called
/// from any thread. States: dialling -> (failures) deaf -> (grace) the end of the process; dialling -> (StopDialing)
/// quiet.
class Watchdog {
 public:
  struct Actions {
    /// One try. RESOURCE_EXHAUSTED: refused by a limit of ours, which only somebody who hears can do.
    std::function<absl::Status()> dial;
    /// The process is deaf: asks for an end in order. Must not block.
    std::function<void(const std::string& why)> on_deaf;
    /// Ends the process; EndDeafProcess but in tests.
    std::function<void()> end;
  };

  Watchdog(const WatchdogOptions& options, Actions actions, const base::Clock& clock = base::Clock::Real())
      : options_(options), actions_(std::move(actions)), clock_(clock) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// One dial and what follows from it; once the process is deaf, its end. When the next step is due. The first one is
  /// due after an interval.
  absl::Duration Step();
  absl::Duration interval() const { return options_.interval; }

  /// Before the port is closed on purpose. Waits for a dial under way. Who is deaf by then still has the grace alone.
  void StopDialing();
  bool deaf() const { return deaf_.load(std::memory_order_acquire); }

 private:
  /// True once the process is deaf.
  bool Dial();

  const WatchdogOptions options_;
  const Actions actions_;
  const base::Clock& clock_;
  std::atomic<bool> deaf_{false};
  base::Mutex dialling_;  ///< held during a dial
  int failures_ ABSL_GUARDED_BY(dialling_) = 0;
  bool quiet_ ABSL_GUARDED_BY(dialling_) = false;
};

/// Ends the process with ExitCode::kDeaf, without destructors: whatever made it deaf may hang them, too.
[[noreturn]] void EndDeafProcess();

}  // namespace troupe::run
