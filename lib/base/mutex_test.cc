#include "lib/base/mutex.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

struct Counter {
  Mutex mutex;
  CondVar changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, CountsFromFourThreads) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 10000; ++i) {
        MutexLock lock(&counter.mutex);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&counter.mutex);
  EXPECT_EQ(counter.value, 40000);
}

TEST(CondVarTest, WaitForTimesOutAndWakes) {
  Counter counter;
  {
    MutexLock lock(&counter.mutex);
    EXPECT_FALSE(counter.changed.WaitFor(&counter.mutex, absl::Milliseconds(1)));
  }
  std::thread other([&counter] {
    MutexLock lock(&counter.mutex);
    counter.value = 1;
    counter.changed.NotifyAll();
  });
  {
    MutexLock lock(&counter.mutex);
    while (counter.value == 0) {
      ASSERT_TRUE(counter.changed.WaitFor(&counter.mutex, absl::InfiniteDuration()));
    }
  }
  other.join();
}

}  // namespace
}  // namespace troupe::base
