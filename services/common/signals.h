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
  static void Install();
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
  static base::FirstSignal first_;
};

/// How often a signal is looked for, since its handler may wake nobody: it bounds the start of a drain.
inline constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);
/// Blocks until DrainSignals has received one or `deadline` has passed; whether it has.
bool AwaitDrainSignal(const base::Deadline& deadline);

}  // namespace troupe::services
