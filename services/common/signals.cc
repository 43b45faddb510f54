#include "services/common/signals.h"

#include <unistd.h>

namespace troupe::services {

base::FirstSignal DrainSignals::first_;

void DrainSignals::OnSignal(int signal) {
  // Only what a signal handler may do.
  if (first_.TakeNow(signal) == base::FirstSignal::Meaning::kAtOnce) ::_exit(128 + signal);
}

void DrainSignals::Install() {
  struct sigaction action {};
  action.sa_handler = &DrainSignals::OnSignal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  // A peer that is gone is an error of a write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  // Likewise a file that may not grow any more (ulimit -f).
  std::signal(SIGXFSZ, SIG_IGN);
}

bool AwaitDrainSignal(const base::Deadline& deadline) {
  return base::AwaitPolling(kSignalInterval, deadline, &DrainSignals::Received);
}

}  // namespace troupe::services
