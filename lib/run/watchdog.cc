#include "lib/run/watchdog.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"

namespace troupe::run {

absl::Duration Watchdog::Step() {
  if (deaf()) {  // and the grace is over
    actions_.end();
    return absl::InfiniteDuration();
  }
  // From one beginning to the next, however long an answer takes.
  const base::Deadline next = base::Deadline::After(options_.interval, clock_);
  return Dial() ? options_.grace : next.left();
}

void Watchdog::StopDialing() {
  base::MutexLock lock(&dialling_);
  quiet_ = true;
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

void EndDeafProcess() { ::_exit(static_cast<int>(base::ExitCode::kDeaf)); }

}  // namespace troupe::run
