#include "services/common/watchdog.h"

#include <atomic>
#include <vector>

#include "lib/base/exit_code.h"
#include <gtest/gtest.h>

namespace troupe::services {
namespace {

const WatchdogOptions kFast = {.interval = absl::Milliseconds(1), .failures = 3, .grace = absl::Milliseconds(1)};

/// Answers dials from a list, the last of it for ever, and remembers what came of it.
class Story {
 public:
  explicit Story(std::vector<absl::Status> answers) : answers_(std::move(answers)) {}

  Watchdog::Actions Actions() {
    Watchdog::Actions actions;
    actions.dial = [this] {
      base::MutexLock lock(&mutex_);
      const size_t next = std::min(dials_, answers_.size() - 1);
      ++dials_;
      changed_.NotifyAll();
      return answers_[next];
    };
    actions.on_deaf = [this](const std::string& why) {
      base::MutexLock lock(&mutex_);
      why_ = why;
      dials_when_deaf_ = dials_;
      changed_.NotifyAll();
    };
    actions.end = [this] {
      base::MutexLock lock(&mutex_);
      ended_ = true;
      changed_.NotifyAll();
    };
    return actions;
  }

  void AwaitDials(size_t count) {
    base::MutexLock lock(&mutex_);
    while (dials_ < count) changed_.Wait(&mutex_);
  }
  void AwaitEnd() {
    base::MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
  }
  bool ended() {
    base::MutexLock lock(&mutex_);
    return ended_;
  }
  std::string why() {
    base::MutexLock lock(&mutex_);
    return why_;
  }
  size_t dials_when_deaf() {
    base::MutexLock lock(&mutex_);
    return dials_when_deaf_;
  }

 private:
  const std::vector<absl::Status> answers_;
  base::Mutex mutex_;
  base::CondVar changed_;
  size_t dials_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t dials_when_deaf_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_);
};

const absl::Status kSilence = absl::DeadlineExceededError("nothing within 5s");
const absl::Status kFull = absl::ResourceExhaustedError("too many connections");

TEST(WatchdogTest, ThreeFailuresInARowAreTheEnd) {
  Story story({absl::OkStatus(), kSilence, kSilence, absl::OkStatus(), kSilence});
  const Watchdog watchdog(kFast, story.Actions());
  story.AwaitEnd();
  EXPECT_TRUE(watchdog.deaf());
  EXPECT_EQ(story.dials_when_deaf(), 7u);
  EXPECT_EQ(story.why(), "no answer at its own port 3 times in a row, at last: nothing within 5s");
}

TEST(WatchdogTest, ARefusalByALimitOfOursIsAnAnswer) {
  Story story({kSilence, kSilence, kFull, kSilence, kSilence, kFull, kSilence, kSilence, absl::OkStatus()});
  const Watchdog watchdog(kFast, story.Actions());
  story.AwaitDials(30);
  EXPECT_FALSE(watchdog.deaf());
}

TEST(WatchdogTest, AnEndInOrderWithinTheGraceIsLeftAlone) {
  Story story({kSilence});
  {
    WatchdogOptions patient = kFast;
    patient.grace = absl::Hours(1);
    const Watchdog watchdog(patient, story.Actions());
    story.AwaitDials(3);
    while (!watchdog.deaf()) {
    }
  }
  EXPECT_FALSE(story.ended());
}

TEST(WatchdogTest, APortThatIsClosedOnPurposeIsNotDialled) {
  Story story({absl::OkStatus(), absl::OkStatus(), kSilence});
  Watchdog watchdog(kFast, story.Actions());
  watchdog.StopDialing();
  watchdog.StopDialing();
  EXPECT_FALSE(watchdog.deaf());
}

TEST(WatchdogDeathTest, ADeafProcessEndsWith70) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto deaf = [] {
    Watchdog::Actions actions;
    actions.dial = [] { return kSilence; };
    actions.on_deaf = [](const std::string&) {};
    actions.end = [] { EndDeafProcess(); };
    const Watchdog watchdog(kFast, actions);
    base::Mutex mutex;
    base::CondVar never;
    base::MutexLock lock(&mutex);
    while (true) never.Wait(&mutex);
  };
  EXPECT_EXIT(deaf(), testing::ExitedWithCode(70), "");
}

}  // namespace
}  // namespace troupe::services
