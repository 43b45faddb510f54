#include "lib/base/named_loop.h"

#include <pthread.h>

#include <atomic>
#include <optional>
#include <string>

#include "lib/base/await.h"
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

/// Counts steps and lets tests wait for them.
class Steps {
 public:
  void Add() {
    MutexLock lock(&mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  bool AwaitCount(int count) {
    MutexLock lock(&mutex_);
    return Await(changed_, &mutex_, Deadline::After(absl::Seconds(30)),
                 [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ >= count; });
  }
  int count() {
    MutexLock lock(&mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(NamedLoopTest, StepsAgainWhenTheLastStepSaidSo) {
  Steps steps;
  NamedLoop loop("steps", [&steps] {
    steps.Add();
    return steps.count() < 5 ? absl::Microseconds(10) : absl::InfiniteDuration();
  });
  EXPECT_TRUE(steps.AwaitCount(5));
  loop.Stop();
  EXPECT_EQ(steps.count(), 5);
}

TEST(NamedLoopTest, WakeBringsTheNextStepAndOneDuringAStepIsNotLost) {
  Steps steps;
  std::optional<NamedLoop> loop;
  Mutex made;
  {
    MutexLock lock(&made);
    loop.emplace("woken", [&] {
      steps.Add();
      if (steps.count() == 1) {
        MutexLock wait(&made);
        loop->Wake();
      }
      return absl::InfiniteDuration();
    });
  }
  EXPECT_TRUE(steps.AwaitCount(2));
  loop->Wake();
  EXPECT_TRUE(steps.AwaitCount(3));
  loop.reset();
  EXPECT_EQ(steps.count(), 3);
}

TEST(NamedLoopTest, NoStepBeginsAfterStop) {
  Steps steps;
  NamedLoop late(
      "late",
      [&steps] {
        steps.Add();
        return absl::ZeroDuration();
      },
      absl::Hours(1));
  late.Stop();
  late.Wake();
  late.Stop();
  EXPECT_EQ(steps.count(), 0);
}

TEST(NamedLoopTest, TheThreadHasTheNameCutToWhatLinuxTakes) {
  Steps steps;
  std::string name;
  NamedLoop loop("a name that is too long", [&] {
    char shown[32] = {};
    pthread_getname_np(pthread_self(), shown, sizeof(shown));
    name = shown;
    steps.Add();
    return absl::InfiniteDuration();
  });
  ASSERT_TRUE(steps.AwaitCount(1));
  loop.Stop();
  EXPECT_EQ(name, "a name that is ");
}

}  // namespace
}  // namespace troupe::base
