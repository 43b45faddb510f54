#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace troupe::training {

/// Threads that do one computation together: fork, barriers, join, each handed over in well under a microsecond while
/// work keeps coming, asleep when it does not (a helper spins for some ten microseconds, then waits in the kernel, so
/// that workers on the same cores get them).
///
/// The caller is thread 0; helpers 1..size-1 start in the constructor (like LibTorch's own pool; they never touch
/// anything but the task) and end in the destructor. Run is called from one thread at a time.
class ThreadTeam {
 public:
  explicit ThreadTeam(int size);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int size() const { return size_; }

  /// Runs task(0) ... task(size - 1) on the team's threads at once; returns when all are done. The task must not throw.
  void Run(const std::function<void(int)>& task);
  /// Inside a task: blocks until every thread of the team is here. All or none must call it.
  void Barrier();

 private:
  void HelperLoop(int index);

  const int size_;
  const std::function<void(int)>* task_ = nullptr;  // written before generation_ is released, read after it is acquired
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> running_{0};  // helpers still in the task
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> phase_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;  // last: they use everything above
};

}  // namespace troupe::training
