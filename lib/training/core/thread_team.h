#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace troupe::training {

/// Threads that do one computation together: fork and join, each handed over in well under a microsecond while work
/// keeps coming, asleep when it does not (a helper spins for some tens of microseconds, lets others have the core
/// meanwhile, then waits in the kernel).
///
/// A computation has as many parts as there are threads, and a part is done by whoever is free: where a helper does not
/// get a core, because workers sample on it, the caller does not wait for it.
///
/// The caller is one of the threads; the helpers start in the constructor (like LibTorch's own pool; they never touch
/// anything but the task) and end in the destructor. Run is called from one thread at a time.
class ThreadTeam {
 public:
  explicit ThreadTeam(int size);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int size() const { return size_; }

  /// Runs task(0) ... task(size - 1), each once: 0 on the calling thread, the others on the team's threads at once or
  /// one after another. Returns when all are done. The task must not throw, and no part may wait for another.
  void Run(const std::function<void(int)>& task);

 private:
  /// A run's number and, in the lower bits, the next of its parts that nobody has taken.
  static constexpr int kPartBits = 10;
  static constexpr uint32_t kPartMask = (uint32_t{1} << kPartBits) - 1;

  void HelperLoop();
  /// Does parts until all of the run are taken; the ticket then.
  uint32_t TakeParts();

  const int size_;
  const std::function<void(int)>* task_ = nullptr;  // written before ticket_ is released, read after a part was taken
  alignas(64) std::atomic<uint32_t> ticket_;
  alignas(64) std::atomic<uint32_t> done_{0};  // parts, of all but the first
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;  // last: they use everything above
};

}  // namespace troupe::training
