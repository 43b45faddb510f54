#include "lib/base/named_loop.h"

#include <pthread.h>

#include <utility>

#include "lib/base/await.h"

namespace troupe::base {
namespace {

/// What Linux takes, without the end.
constexpr size_t kMaxThreadNameBytes = 15;

}  // namespace

NamedLoop::NamedLoop(const std::string& name, std::function<absl::Duration()> step, absl::Duration first)
    : step_(std::move(step)), thread_([this, name, first] { Run(name, first); }) {}

void NamedLoop::Wake() {
  MutexLock lock(&mutex_);
  due_ = true;
  changed_.NotifyAll();
}

void NamedLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  MutexLock lock(&joining_);
  if (thread_.joinable()) thread_.join();
}

void NamedLoop::Run(const std::string& name, absl::Duration first) {
  pthread_setname_np(pthread_self(), name.substr(0, kMaxThreadNameBytes).c_str());
  absl::Duration wait = first;
  while (true) {
    {
      MutexLock lock(&mutex_);
      Await(changed_, &mutex_, Deadline::After(wait),
            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return due_ || stopped_; });
      if (stopped_) return;
      due_ = false;
    }
    wait = step_();
  }
}

}  // namespace troupe::base
