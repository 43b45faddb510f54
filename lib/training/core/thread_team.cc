#include "lib/training/core/thread_team.h"

#include <algorithm>

#include "lib/base/check.h"

namespace troupe::training {
namespace {

// A pause takes 40 to 140 cycles: some 20 to 70 microseconds, longer than any hand-over between minibatches.
constexpr int kSpins = 1500;
// After so many of them a thread that wants the core gets it: a worker's samples are worth more than a quick start.
constexpr int kSpinsToYield = 50;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Blocks while `value` is `old`; spins first.
void AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int spin = 1; spin <= kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    if (spin % kSpinsToYield == 0) {
      std::this_thread::yield();
    } else {
      Pause();
    }
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(int size) : size_(std::max(size, 1)), ticket_(static_cast<uint32_t>(size_)) {
  TROUPE_CHECK(size_ < static_cast<int>(kPartMask));
  for (int index = 1; index < size_; ++index) helpers_.emplace_back([this] { HelperLoop(); });
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true, std::memory_order_relaxed);
  // A run without parts.
  ticket_.fetch_add(uint32_t{1} << kPartBits, std::memory_order_release);
  ticket_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadTeam::Run(const std::function<void(int)>& task) {
  if (size_ > 1) {
    task_ = &task;
    done_.store(0, std::memory_order_relaxed);
    const uint32_t run = (ticket_.load(std::memory_order_relaxed) >> kPartBits) + 1;
    ticket_.store(run << kPartBits | 1, std::memory_order_release);
    ticket_.notify_all();
  }
  task(0);
  if (size_ == 1) return;
  TakeParts();
  const uint32_t all = static_cast<uint32_t>(size_ - 1);
  for (uint32_t done = done_.load(std::memory_order_acquire); done != all;
       done = done_.load(std::memory_order_acquire)) {
    AwaitChange(done_, done);
  }
}

// Whoever changes the ticket has a part of the run that is open now: its number is in the ticket, and it is not over
// before that part is.
uint32_t ThreadTeam::TakeParts() {
  uint32_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket & kPartMask) < static_cast<uint32_t>(size_)) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    (*task_)(static_cast<int>(ticket & kPartMask));
    done_.fetch_add(1, std::memory_order_acq_rel);
    done_.notify_all();
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return ticket;
}

void ThreadTeam::HelperLoop() {
  while (true) {
    // The ticket first: whoever has seen the destructor's sees that it stops, and who has not is woken by it.
    const uint32_t seen = TakeParts();
    if (stopping_.load(std::memory_order_acquire)) return;
    AwaitChange(ticket_, seen);
  }
}

}  // namespace troupe::training
