#include "services/common/signals.h"

#include <unistd.h>

#include <csignal>

namespace troupe::services {

std::atomic<int> DrainSignals::received_{0};

void DrainSignals::OnSignal(int signal) {
  // Only what a signal handler may do: lock-free atomics and _exit.
  if (received_.fetch_add(1, std::memory_order_relaxed) > 0) ::_exit(128 + signal);
}

void DrainSignals::Install() {
  struct sigaction action {};
  action.sa_handler = &DrainSignals::OnSignal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  // A peer that is gone is an error of a write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace troupe::services
