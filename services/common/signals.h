#pragma once

#include <csignal>

#include "absl/time/time.h"
#include "lib/base/await.h"
#include "lib/base/exit_code.h"
#include "lib/base/first_signal.h"

namespace troupe::services {

/// SIGTERM and SIGINT as a question: the first asks for a drain, a second one that is no copy of it
/// (base::FirstSignal) ends the process at once with 128 + its number. Writes into a pipe that nobody reads and beyond
/// a limit on file sizes fail with an error instead of a signal. Install before any thread starts.
class DrainSignals {
 public:
  /// With `most_seconds` the process ends so long after the first signal, whatever it does then: a user's module may
  /// never return, and nothing stops it. For those that have nothing to save.
  static void Install(unsigned most_seconds = 0);
  /// True once a signal has come.
  static bool Received() { return first_.signal() != 0; }
  /// How a shell gives it that a process was ended by the signal; after Received.
  static int ShellCode() { return 128 + first_.signal(); }
  /// How a program ends that did what it was to do: kInterrupted when SIGINT asked for it, else kDone.
  static base::ExitCode CodeInOrder() {
    return first_.signal() == SIGINT ? base::ExitCode::kInterrupted : base::ExitCode::kDone;
  }

 private:
  static void OnSignal(int signal);
  static void OnAlarm(int signal);
  static base::FirstSignal first_;
  static unsigned most_seconds_;  ///< set before any signal
};

/// For who has nothing to save: longer than a policy server answers what it holds.
inline constexpr unsigned kMostSecondsToEnd = 15;
/// How often a signal is looked for, since its handler may wake nobody: it bounds the start of a drain.
inline constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);
/// Blocks until DrainSignals has received one or `deadline` has passed; whether it has.
bool AwaitDrainSignal(const base::Deadline& deadline);

}  // namespace troupe::services
