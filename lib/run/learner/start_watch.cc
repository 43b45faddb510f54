#include "lib/run/learner/start_watch.h"

#include "lib/base/log.h"

namespace troupe::run {

void StartWatch::SetFolder(storage::RunFolder* folder) {
  base::MutexLock lock(&mutex_);
  folder_ = folder;
}

void StartWatch::SetStop(std::function<void()> stop) {
  base::MutexLock lock(&mutex_);
  stop_.swap(stop);
}

absl::Duration StartWatch::Step() {
  if (!interrupted_()) return kLook;
  std::function<void()> stop;
  {
    base::MutexLock lock(&mutex_);
    stop = stop_;
  }
  if (stop) stop();
  const absl::Duration now = clock_->SteadyNow();
  if (!interrupted_at_) interrupted_at_ = now;
  if (now - *interrupted_at_ < kGrace) return kLook;
  TROUPE_INFO("a signal ends the start: nothing is trained yet");
  {
    base::MutexLock lock(&mutex_);
    if (folder_ != nullptr) folder_->DiscardIfNew().IgnoreError();
  }
  end_();
  return absl::InfiniteDuration();
}

}  // namespace troupe::run
