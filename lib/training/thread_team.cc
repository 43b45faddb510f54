#include "lib/training/thread_team.h"

#include <algorithm>

namespace troupe::training {
namespace {

// A pause takes 40 to 140 cycles: some 20 to 70 microseconds, longer than any hand-over between minibatches.
constexpr int kSpins = 1500;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Blocks while `value` is `old`; spins first.
void AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(int size) : size_(std::max(size, 1)) {
  for (int index = 1; index < size_; ++index) helpers_.emplace_back([this, index] { HelperLoop(index); });
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadTeam::Run(const std::function<void(int)>& task) {
  if (size_ > 1) {
    task_ = &task;
    running_.store(static_cast<uint32_t>(size_ - 1), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  task(0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    AwaitChange(running_, left);
  }
}

void ThreadTeam::Barrier() {
  if (size_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  AwaitChange(phase_, phase);
}

void ThreadTeam::HelperLoop(int index) {
  uint32_t seen = 0;
  while (true) {
    AwaitChange(generation_, seen);
    ++seen;
    if (stopping_.load(std::memory_order_relaxed)) return;
    (*task_)(index);
    running_.fetch_sub(1, std::memory_order_acq_rel);
    running_.notify_all();
  }
}

}  // namespace troupe::training
