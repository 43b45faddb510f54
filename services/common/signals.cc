#include "services/common/signals.h"

#include <unistd.h>

namespace troupe::services {

base::FirstSignal DrainSignals::first_;
unsigned DrainSignals::most_seconds_ = 0;

// Both do only what a signal handler may do.
void DrainSignals::OnSignal(int signal) {
  const base::FirstSignal::Meaning meaning = first_.TakeNow(signal);
  if (meaning == base::FirstSignal::Meaning::kAtOnce) ::_exit(128 + signal);
  if (meaning == base::FirstSignal::Meaning::kFirst && most_seconds_ > 0) ::alarm(most_seconds_);
}

void DrainSignals::OnAlarm(int) {
  constexpr char kWords[] = "troupe: not at an end in time after the signal, ending now\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
  ::_exit(ShellCode());
}

void DrainSignals::Install(unsigned most_seconds) {
  most_seconds_ = most_seconds;
  struct sigaction action {};
  action.sa_handler = &DrainSignals::OnSignal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  action.sa_handler = &DrainSignals::OnAlarm;
  if (most_seconds > 0) ::sigaction(SIGALRM, &action, nullptr);
  // A peer that is gone is an error of a write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  // Likewise a file that may not grow any more (ulimit -f).
  std::signal(SIGXFSZ, SIG_IGN);
}

bool AwaitDrainSignal(const base::Deadline& deadline) {
  return base::AwaitPolling(kSignalInterval, deadline, &DrainSignals::Received);
}

}  // namespace troupe::services
