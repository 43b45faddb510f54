// A process by itself, by a clock that moves when told to.

#include "lib/envhost/host_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/clock.h"
#include "lib/envhost/describe_env.h"
#include "lib/envhost/watched_time.h"

namespace troupe::envhost {
namespace {

using ::testing::HasSubstr;

TEST(WatchedTimeTest, ALongPauseCountsLittle) {
  WatchedTime time(absl::Seconds(5));
  EXPECT_EQ(time.Look(absl::Seconds(5) + absl::Milliseconds(20)), absl::Milliseconds(20));
  EXPECT_EQ(time.Look(absl::Hours(1)), absl::Milliseconds(20) + WatchedTime::kMaxGap);
  time.Restart(absl::Hours(2));
  EXPECT_EQ(time.Look(absl::Hours(2)), absl::ZeroDuration());
}

class HostProcessTest : public ::testing::Test {
 protected:
  /// Starts the environment `name` of host_test_envs with these arguments, in JSON.
  void Start(const std::string& name, const std::string& args) {
    ProcessOrder order;
    order.interpreter = TROUPE_TEST_PYTHON;
    order.package_folder = TROUPE_SOURCE_DIR "/python";
    order.start_message = nlohmann::json({{"op", "start"},
                                          {"version", kLayoutVersion},
                                          {"name", absl::StrCat("host_test_envs:", name)},
                                          {"args", nlohmann::json::parse(args)},
                                          {"path", {TROUPE_SOURCE_DIR "/lib/envhost/testing"}},
                                          {"global_state", true},
                                          {"draws", false}})
                              .dump();
    order.start_timeout = absl::Seconds(60);
    order.step_timeout = absl::Seconds(1);
    order.clock = &clock_;
    auto process = HostProcess::Start(order, "process");
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
  }
  /// A slot in which a reset has been answered.
  HostProcess::Slot Ready() {
    const absl::StatusOr<std::string> description = process_->AwaitDescription();
    EXPECT_TRUE(description.ok()) << description.status();
    const auto spec = ReadDescription("python:test", nlohmann::json::parse(*description));
    EXPECT_TRUE(spec.ok()) << spec.status();
    const BlockLayout layout(*spec);
    process_->Expect(*description, layout.ToJson());
    const HostProcess::Slot slot = *process_->AcquireSlot(layout.block_bytes);
    EXPECT_TRUE(process_->Await(*process_->Post(slot, RequestKind::kReset, /*makes=*/true)).ok());
    return slot;
  }

  base::FakeClock clock_;
  std::shared_ptr<HostProcess> process_;
};

TEST_F(HostProcessTest, OneThatEndsBeforeItsLayoutIsToldOf) {
  Start("counter", "{}");
  const std::string description = *process_->AwaitDescription();
  const BlockLayout layout(*ReadDescription("python:test", nlohmann::json::parse(description)));
  process_->Expect(description, layout.ToJson());
  ASSERT_EQ(kill(process_->pid(), SIGKILL), 0);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(process_->pid()), &ended, WEXITED | WNOWAIT), 0);
  const HostProcess::Slot slot = *process_->AcquireSlot(layout.block_bytes);
  const absl::Status status = process_->Await(*process_->Post(slot, RequestKind::kReset, /*makes=*/true));
  EXPECT_THAT(std::string(status.message()), HasSubstr("killed by signal 9"));
}

TEST_F(HostProcessTest, WhatIsPostedAfterAWaitIsABatch) {
  Start("counter", "{}");
  const HostProcess::Slot first = Ready();
  const HostProcess::Slot second = *process_->AcquireSlot(first.block->block_bytes);
  const HostProcess::Slot third = *process_->AcquireSlot(first.block->block_bytes);
  const HostProcess::Ticket answered = *process_->Post(first, RequestKind::kReset, false);
  ASSERT_TRUE(process_->Await(answered).ok());
  ASSERT_EQ(kill(process_->pid(), SIGSTOP), 0);
  const HostProcess::Ticket one = *process_->Post(first, RequestKind::kReset, false);
  const HostProcess::Ticket two = *process_->Post(second, RequestKind::kReset, true);
  ASSERT_TRUE(process_->Await(answered).ok());
  const HostProcess::Ticket three = *process_->Post(third, RequestKind::kReset, true);
  EXPECT_EQ(process_->BatchEndForTesting(one), two);
  EXPECT_EQ(process_->BatchEndForTesting(two), two);
  EXPECT_EQ(process_->BatchEndForTesting(three), three);
  EXPECT_TRUE(process_->BeginsBatchForTesting(one));
  EXPECT_FALSE(process_->BeginsBatchForTesting(two));
  EXPECT_TRUE(process_->BeginsBatchForTesting(three));
  ASSERT_EQ(kill(process_->pid(), SIGCONT), 0);
  for (const HostProcess::Ticket ticket : {one, two, three}) EXPECT_TRUE(process_->Await(ticket).ok());
}

TEST_F(HostProcessTest, AStartThatNobodyWatchedIsNotLate) {
  // It prints more than its pipe holds, so that it cannot go on until somebody looks.
  Start("noisy_start", R"({"lines": 400})");
  clock_.Advance(absl::Hours(1));
  const absl::StatusOr<std::string> description = process_->AwaitDescription();
  EXPECT_TRUE(description.ok()) << description.status();
}

TEST_F(HostProcessTest, AStepThatNobodyWatchedIsNotLate) {
  Start("printing", R"({"lines": 400, "width": 2000})");
  const HostProcess::Slot slot = Ready();
  const HostProcess::Ticket ticket = *process_->Post(slot, RequestKind::kStep, /*makes=*/false);
  clock_.Advance(absl::Hours(1));
  const absl::Status status = process_->Await(ticket);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(HostProcessTest, AStepThatIsWatchedHasItsTimeAndNoMore) {
  Start("Faulty", R"({"faults": "hang", "at_step": 1})");
  const HostProcess::Slot slot = Ready();
  const HostProcess::Ticket ticket = *process_->Post(slot, RequestKind::kStep, /*makes=*/false);
  for (int look = 1; look <= 100; ++look) {
    clock_.Advance(absl::Milliseconds(10));
    ASSERT_FALSE(process_->Settled(ticket)) << look;
  }
  clock_.Advance(absl::Milliseconds(10));
  EXPECT_TRUE(process_->Settled(ticket));
  EXPECT_TRUE(process_->timed_out());
  EXPECT_EQ(process_->death().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(process_->death().message()), HasSubstr("did not answer within 1s"));
}

}  // namespace
}  // namespace troupe::envhost
