#include "lib/base/await.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(DeadlineTest, GoesByTheClockThatItWasMadeWith) {
  FakeClock clock;
  const Deadline deadline = Deadline::After(absl::Seconds(3), clock);
  EXPECT_EQ(deadline.left(), absl::Seconds(3));
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(deadline.left(), absl::Seconds(1));
  EXPECT_FALSE(deadline.passed());
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(deadline.left(), absl::ZeroDuration());
  EXPECT_TRUE(deadline.passed());
  EXPECT_TRUE(Deadline::After(absl::ZeroDuration(), clock).passed());
  EXPECT_TRUE(Deadline::After(-absl::InfiniteDuration(), clock).passed());
  EXPECT_EQ(Deadline::After(absl::InfiniteDuration(), clock).left(), absl::InfiniteDuration());
}

struct Flag {
  Mutex mutex;
  CondVar changed;
  bool set ABSL_GUARDED_BY(mutex) = false;

  bool AwaitSet(const Deadline& deadline) {
    MutexLock lock(&mutex);
    return Await(changed, &mutex, deadline, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return set; });
  }
};

TEST(AwaitTest, GivesTheConditionAtTheDeadline) {
  Flag flag;
  EXPECT_FALSE(flag.AwaitSet(Deadline::After(absl::Milliseconds(1))));
  EXPECT_FALSE(flag.AwaitSet(Deadline::After(-absl::Seconds(1))));
  {
    MutexLock lock(&flag.mutex);
    flag.set = true;
  }
  EXPECT_TRUE(flag.AwaitSet(Deadline::After(absl::ZeroDuration()))) << "what holds already is not waited for";
}

TEST(AwaitTest, WakesWhenTheConditionHolds) {
  Flag flag;
  std::thread other([&flag] {
    MutexLock lock(&flag.mutex);
    flag.changed.NotifyAll();  // not yet
    flag.set = true;
    flag.changed.NotifyAll();
  });
  EXPECT_TRUE(flag.AwaitSet(Deadline::After(absl::InfiniteDuration())));
  other.join();
}

TEST(AwaitTest, AsksAgainForWhatNobodyNotifiesOf) {
  int asked = 0;
  const auto third_time = [&asked] { return ++asked == 3; };
  EXPECT_TRUE(AwaitPolling(absl::Milliseconds(1), Deadline::After(absl::InfiniteDuration()), third_time));
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(AwaitPolling(absl::Hours(1), Deadline::After(absl::Milliseconds(2)), [] { return false; }))
      << "the interval ends with the deadline";
  EXPECT_TRUE(AwaitPolling(absl::Hours(1), Deadline::After(absl::ZeroDuration()), [] { return true; }));
}

}  // namespace
}  // namespace troupe::base
