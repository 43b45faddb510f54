#include "lib/base/own_thread.h"

#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

/// Runs until it is stopped, and notes where.
class Waiting {
 public:
  explicit Waiting(std::thread::id* ran) : ran_(ran) {}
  void Run() {
    MutexLock lock(&mutex_);
    while (!stopped_) changed_.Wait(&mutex_);
    *ran_ = std::this_thread::get_id();
  }
  void Stop() {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }

 private:
  std::thread::id* const ran_;
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(OwnThreadTest, RunsOnAThreadOfItsOwnThatHasEndedWhenItIsGone) {
  std::thread::id ran;
  {
    const OwnThread<Waiting> thread(std::make_unique<Waiting>(&ran));
    EXPECT_NE(thread.get(), nullptr);
  }
  EXPECT_NE(ran, std::thread::id()) << "Run has come to its end";
  EXPECT_NE(ran, std::this_thread::get_id());
}

}  // namespace
}  // namespace troupe::base
