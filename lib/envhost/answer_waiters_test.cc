#include "lib/envhost/answer_waiters.h"

#include <atomic>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "lib/envhost/shared_memory.h"

namespace troupe::envhost {
namespace {

/// The child's side of a control page, as finish_entries of python/troupe/_shm_host.py.
class FakeChild {
 public:
  explicit FakeChild(ControlPage* page) : page_(*page) {}
  /// Answers requests; true when it woke the waiters.
  bool AnswerTo(uint32_t done) {
    bool woke = false;
    while (page_.done.load() != done) {
      const uint32_t now = page_.done.load() + 1;
      page_.done.store(now);
      if (page_.waits.load() == 0) continue;
      const uint32_t wake_at = page_.wake_at.load();
      if (!AtOrAfter(now, wake_at) || woken_for_ == wake_at) continue;
      woken_for_ = wake_at;
      FutexWake(page_.done);
      woke = true;
    }
    return woke;
  }

 private:
  ControlPage& page_;
  uint64_t woken_for_ = uint64_t{1} << 32;
};

class AnswerWaitersTest : public ::testing::Test {
 protected:
  const std::unique_ptr<SharedMemory> memory_ = *SharedMemory::Create();
  ControlPage& page_ = memory_->page();
  AnswerWaiters waiters_{&page_};
  FakeChild child_{&page_};
};

TEST_F(AnswerWaitersTest, TheChildWakesAtTheLowestNumberThatIsOpen) {
  EXPECT_FALSE(child_.AnswerTo(5)) << "nobody waits";
  waiters_.Add(12);
  waiters_.Add(10);
  EXPECT_EQ(page_.wake_at.load(), 10u);
  EXPECT_FALSE(child_.AnswerTo(9));
  EXPECT_TRUE(child_.AnswerTo(10));
  waiters_.Remove(10);
  EXPECT_EQ(page_.wake_at.load(), 12u);
  EXPECT_TRUE(child_.AnswerTo(12));
  waiters_.Remove(12);
  EXPECT_EQ(page_.waits.load(), 0u);
}

TEST_F(AnswerWaitersTest, NumbersWrap) {
  page_.done.store(0xFFFFFFF0);
  waiters_.Add(3);
  waiters_.Add(0xFFFFFFFE);
  EXPECT_EQ(page_.wake_at.load(), 0xFFFFFFFE);
  EXPECT_TRUE(child_.AnswerTo(0xFFFFFFFE));
  waiters_.Remove(0xFFFFFFFE);
  EXPECT_TRUE(child_.AnswerTo(3));
}

TEST_F(AnswerWaitersTest, OneWhoWasWokenForAnotherIsWokenAgain) {
  waiters_.Add(10);
  waiters_.Add(12);
  EXPECT_TRUE(child_.AnswerTo(10));
  // The first one has not come round to leaving when the second looks and finds that it must wait on.
  waiters_.Renew();
  EXPECT_TRUE(child_.AnswerTo(12));
}

TEST_F(AnswerWaitersTest, OneThatTheChildPassedOverIsWokenByWhoLeaves) {
  waiters_.Add(10);
  waiters_.Add(12);
  std::atomic<bool> sleeps{false}, woken{false};
  std::thread second([&] {
    uint32_t done = page_.done.load();
    while (!AtOrAfter(done, 12)) {
      sleeps.store(done == 11);
      FutexWait(page_.done, done, absl::Seconds(600));
      done = page_.done.load();
    }
    woken.store(true);
  });
  EXPECT_TRUE(child_.AnswerTo(10));
  child_.AnswerTo(11);
  FutexWake(page_.done);
  while (!sleeps.load()) std::this_thread::yield();
  // 10 is still what the child is told to wake at, and it has done that.
  EXPECT_FALSE(child_.AnswerTo(12));
  waiters_.Remove(10);
  second.join();
  EXPECT_TRUE(woken.load());
}

}  // namespace
}  // namespace troupe::envhost
