#include "services/common/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"

namespace troupe::services {

Watchdog::Watchdog(const WatchdogOptions& options, Actions actions)
    : options_(options), actions_(std::move(actions)), thread_([this] { Loop(); }) {}

Watchdog::~Watchdog() {
  {
    base::MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Watchdog::StopDialing() {
  base::MutexLock lock(&dialling_);
  quiet_ = true;
}

void Watchdog::Loop() {
  absl::Duration wait = options_.interval;
  while (WaitFor(wait)) {
    const absl::Time begun = absl::Now();
    if (Dial()) {
      if (WaitFor(options_.grace)) actions_.end();
      return;
    }
    // From one beginning to the next, however long an answer takes.
    wait = std::max(absl::ZeroDuration(), options_.interval - (absl::Now() - begun));
  }
}

bool Watchdog::Dial() {
  base::MutexLock lock(&dialling_);
  if (quiet_) return false;
  const absl::Status answered = actions_.dial();
  if (answered.ok() || absl::IsResourceExhausted(answered)) {
    failures_ = 0;
    return false;
  }
  if (++failures_ < options_.failures) return false;
  deaf_.store(true, std::memory_order_release);
  const std::string why = absl::StrCat("no answer at its own port ", failures_,
                                       " times in a row, at last: ", std::string(answered.message()));
  TROUPE_ERROR("the process is deaf and ends itself reason=\"{}\"", base::LogSafe(why));
  actions_.on_deaf(why);
  return true;
}

bool Watchdog::WaitFor(absl::Duration duration) {
  const absl::Time deadline = absl::Now() + duration;
  base::MutexLock lock(&mutex_);
  while (!stopped_) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return true;
    changed_.WaitFor(&mutex_, left);
  }
  return false;
}

void EndDeafProcess() { ::_exit(static_cast<int>(base::ExitCode::kDeaf)); }

}  // namespace troupe::services
