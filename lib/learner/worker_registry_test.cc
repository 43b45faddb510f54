#include "lib/learner/worker_registry.h"

#include <limits>
#include <memory>

#include "lib/learner/testing/fake_worker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::WorkerId;

constexpr uint64_t kEpoch = 4;
const absl::Duration kNow = absl::Seconds(50);

std::shared_ptr<WorkerPort> Port() { return std::make_shared<FakeWorkerPort>(); }

TEST(WorkerRegistryTest, IdsAreNewInEveryLearnerEpoch) {
  WorkerRegistry registry(kEpoch);
  const auto first = registry.Join({}, Port(), kNow);
  const auto second = registry.Join({}, Port(), kNow);
  EXPECT_NE(first.ticket.worker_id, second.ticket.worker_id);
  EXPECT_TRUE(first.ticket.worker_epoch < second.ticket.worker_epoch);
  EXPECT_EQ(sample::WorkerText(second.ticket.worker_id), "4.2");
  WorkerRegistry later(kEpoch + 1);
  EXPECT_NE(later.Join({}, Port(), kNow).ticket.worker_id, first.ticket.worker_id);
  // An id that somebody brought along is not handed out again.
  const WorkerId claimed(second.ticket.worker_id.value() + 1);
  EXPECT_EQ(registry.Join({claimed, 1}, Port(), kNow).ticket.worker_id, claimed);
  EXPECT_NE(registry.Join({}, Port(), kNow).ticket.worker_id, claimed);
  EXPECT_EQ(registry.num_connected(), 4);
}

TEST(WorkerRegistryTest, TheNewestRegistrationHolds) {
  WorkerRegistry registry(kEpoch);
  const auto port = Port();
  const auto first = registry.Join({}, port, kNow);
  ASSERT_TRUE(registry.Find(first.ticket).ok());
  const auto second = registry.Join({first.ticket.worker_id, 1}, Port(), kNow);
  EXPECT_TRUE(second.was_connected);
  EXPECT_EQ(second.old_port, port);
  EXPECT_EQ(registry.Find(first.ticket).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(registry.Find(second.ticket).ok());
  EXPECT_NE(registry.Leave(**registry.Find(second.ticket)), nullptr);
  EXPECT_FALSE(registry.Find(second.ticket).ok());
  EXPECT_FALSE(registry.Join({first.ticket.worker_id, 1}, Port(), kNow).was_connected);
}

TEST(WorkerRegistryTest, EnvCountersAddUpAndNeverGoDown) {
  WorkerRegistry registry(kEpoch);
  const auto first = registry.Join({}, Port(), kNow), second = registry.Join({}, Port(), kNow);
  EXPECT_TRUE(
      registry.Count(**registry.Find(first.ticket), {.errors = 5, .exceptions = 3, .process_deaths = 1}, kNow).ok());
  EXPECT_TRUE(registry.Count(**registry.Find(second.ticket), {.errors = 2, .timeouts = 1}, kNow).ok());
  EXPECT_EQ(registry.env_counters(),
            (sample::EnvCounters{.errors = 7, .exceptions = 3, .timeouts = 1, .process_deaths = 1}));
  // What it says is a total, not what came since.
  EXPECT_TRUE(
      registry.Count(**registry.Find(first.ticket), {.errors = 6, .exceptions = 4, .process_deaths = 1}, kNow).ok());
  EXPECT_EQ(registry.env_counters().errors, 8);
  // One that left counts with what it said last; it comes back and goes on from there.
  registry.Leave(**registry.Find(first.ticket));
  EXPECT_EQ(registry.env_counters().errors, 8);
  const auto again = registry.Join({first.ticket.worker_id, 1}, Port(), kNow);
  EXPECT_TRUE(
      registry.Count(**registry.Find(again.ticket), {.errors = 9, .exceptions = 4, .process_deaths = 1}, kNow).ok());
  EXPECT_EQ(registry.env_counters().errors, 11);
  // Another process begins at 0, under an id of its own or of one that is gone.
  const auto third = registry.Join({}, Port(), kNow);
  EXPECT_TRUE(registry.Count(**registry.Find(third.ticket), {.errors = 1}, kNow).ok());
  EXPECT_TRUE(registry.Count(**registry.Find(again.ticket), {.errors = 2}, kNow).ok());
  EXPECT_EQ(registry.env_counters(),
            (sample::EnvCounters{.errors = 14, .exceptions = 4, .timeouts = 1, .process_deaths = 1}));
}

TEST(WorkerRegistryTest, EnvCountersThatNoWorkerReachesAreRefused) {
  WorkerRegistry registry(kEpoch);
  const auto joined = registry.Join({}, Port(), kNow);
  WorkerRegistry::Worker& worker = **registry.Find(joined.ticket);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const absl::Status refused = registry.Count(worker, {.errors = 1, .exceptions = kMost}, kNow + absl::Seconds(2));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      refused.message(),
      "environment counters: env_exceptions went from 0 to 9223372036854775807, expected at most 3000000 in all of "
      "a worker that joined 2 s ago");
  EXPECT_EQ(registry.env_counters(), sample::EnvCounters()) << "none of it is counted";
  // A million a second, and as many at once.
  EXPECT_TRUE(registry.Count(worker, {.errors = 3'000'000}, kNow + absl::Seconds(2)).ok());
  EXPECT_FALSE(registry.Count(worker, {.errors = 3'000'001}, kNow + absl::Seconds(2)).ok());
  EXPECT_TRUE(registry.Count(worker, {.errors = 59'000'000}, kNow + absl::Seconds(58)).ok());
  EXPECT_EQ(registry.env_counters().errors, 59'000'000);
  // Nor is a new beginning a way to count without end.
  EXPECT_TRUE(registry.Count(worker, {}, kNow + absl::Seconds(58)).ok());
  EXPECT_FALSE(registry.Count(worker, {.errors = 1}, kNow + absl::Seconds(58)).ok());
}

TEST(WorkerRegistryTest, AWorkerOfAnEarlierLearnerEpochHasCountedBefore) {
  WorkerRegistry registry(kEpoch);
  const auto joined = registry.Join({WorkerId((uint64_t{1} << 32) + 5), 1}, Port(), kNow);
  WorkerRegistry::Worker& worker = **registry.Find(joined.ticket);
  EXPECT_FALSE(registry.Count(worker, {.errors = int64_t{1} << 31}, kNow).ok());
  EXPECT_TRUE(registry.Count(worker, {.errors = 500'000'000}, kNow).ok());
  EXPECT_FALSE(registry.Count(worker, {.errors = 1'002'000'000}, kNow).ok());
}

TEST(WorkerRegistryTest, GapsAreOfARestartOrUnknown) {
  WorkerRegistry registry(kEpoch);
  registry.Restore({{77, 10}});
  const auto known = registry.Join({WorkerId(77), 14}, Port(), kNow);
  EXPECT_EQ(known.gap, 3u) << "11 to 13";
  EXPECT_TRUE(known.restarted);
  const auto again = registry.Join({WorkerId(77), 16}, Port(), kNow);
  EXPECT_EQ(again.gap, 2u);
  EXPECT_FALSE(again.restarted);
  const WorkerId earlier((uint64_t{kEpoch - 1} << 32) + 4);
  const auto foreign = registry.Join({earlier, 6}, Port(), kNow);
  EXPECT_EQ(foreign.ticket.worker_id, earlier);
  EXPECT_EQ(foreign.gap, 5u);
  EXPECT_TRUE(foreign.restarted);
  EXPECT_EQ(registry.Watermarks(), (std::map<uint64_t, uint64_t>{{77, 15}, {earlier.value(), 5}}));
}

TEST(WorkerRegistryTest, AnIdThatNobodyEverGaveIsANewWorker) {
  WorkerRegistry registry(kEpoch);
  const uint64_t ours = uint64_t{kEpoch} << 32;
  for (const uint64_t id : {uint64_t{99}, ours + 50, ours + (uint64_t{1} << 32) + 1, ~uint64_t{0}}) {
    const WorkerHello hello{WorkerId(id), uint64_t{1} << 40};
    EXPECT_TRUE(registry.Check(hello).ok()) << registry.Check(hello);
    const auto joined = registry.Join(hello, Port(), kNow);
    EXPECT_NE(joined.ticket.worker_id.value(), id);
    EXPECT_EQ(joined.gap, 0u) << "nobody here knows what it sent to whom";
    EXPECT_EQ((*registry.Find(joined.ticket))->sequences.watermark(), (uint64_t{1} << 40) - 1);
  }
}

TEST(WorkerRegistryTest, AGapThatNoHonestWorkerHasIsRefused) {
  WorkerRegistry registry(kEpoch);
  registry.Restore({{77, 10}});
  EXPECT_TRUE(registry.Check({WorkerId(77), 11 + (1 << 24)}).ok());
  const absl::Status restarted = registry.Check({WorkerId(77), 12 + (1 << 24)});
  EXPECT_EQ(restarted.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(restarted.message(),
            "worker 0.77: first_unacked is 16777228, but what came up to 10 is known here, expected at most 16777227");
  const WorkerId earlier((uint64_t{1} << 32) + 4);
  EXPECT_FALSE(registry.Check({earlier, uint64_t{1} << 48}).ok());
  // Of one that has been here in this epoch every acknowledgement is known.
  const auto joined = registry.Join({WorkerId(77), 11}, Port(), kNow);
  EXPECT_TRUE(registry.Check({joined.ticket.worker_id, 11 + (1 << 16)}).ok());
  EXPECT_FALSE(registry.Check({joined.ticket.worker_id, 12 + (1 << 16)}).ok());
}

TEST(WorkerRegistryTest, SilenceIsMeasured) {
  WorkerRegistry registry(kEpoch);
  const auto early = registry.Join({}, Port(), kNow);
  registry.Join({}, Port(), kNow + absl::Seconds(5));
  EXPECT_TRUE(registry.SilentSince(kNow).empty());
  const auto silent = registry.SilentSince(kNow + absl::Seconds(1));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0]->id, early.ticket.worker_id);
  registry.Leave(*silent[0]);
  EXPECT_TRUE(registry.SilentSince(kNow + absl::Seconds(1)).empty());
}

TEST(WorkerRegistryTest, OnlySoManyDepartedAreRemembered) {
  WorkerRegistry registry(kEpoch);
  const auto stays = registry.Join({}, Port(), kNow);
  const auto first = registry.Join({}, Port(), kNow);
  registry.Leave(**registry.Find(first.ticket));
  for (size_t i = 0; i < WorkerRegistry::kMaxDeparted; ++i) {
    const auto joined = registry.Join({}, Port(), kNow);
    registry.Leave(**registry.Find(joined.ticket));
  }
  EXPECT_EQ(registry.workers().size(), WorkerRegistry::kMaxDeparted + 1);
  EXPECT_EQ(registry.workers().count(first.ticket.worker_id.value()), 0u) << "the oldest is forgotten";
  EXPECT_TRUE(registry.Find(stays.ticket).ok());
}

}  // namespace
}  // namespace troupe::learner
