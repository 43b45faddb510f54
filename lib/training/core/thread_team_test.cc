#include "lib/training/core/thread_team.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

class ThreadTeamTest : public testing::TestWithParam<int> {};

TEST_P(ThreadTeamTest, RunsEveryIndexOnceATime) {
  ThreadTeam team(GetParam());
  ASSERT_EQ(team.size(), GetParam());
  std::vector<int> runs(static_cast<size_t>(team.size()), 0);
  for (int round = 1; round <= 2000; ++round) {
    team.Run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
    // Seen without a lock: Run orders everything the tasks did before its return.
    for (const int count : runs) ASSERT_EQ(count, round);
  }
}

TEST_P(ThreadTeamTest, ARunBeginsWhenTheOneBeforeIsOver) {
  ThreadTeam team(GetParam());
  std::vector<int> phase(static_cast<size_t>(team.size()), 0);
  std::vector<int> violations(static_cast<size_t>(team.size()), 0);
  for (int p = 1; p <= 1000; ++p) {
    team.Run([&](int part) { phase[static_cast<size_t>(part)] = p; });
    team.Run([&](int part) {
      for (const int other : phase) violations[static_cast<size_t>(part)] += other != p;
    });
  }
  EXPECT_EQ(*std::max_element(violations.begin(), violations.end()), 0);
}

TEST_P(ThreadTeamTest, ThePartsOfHelpersThatAreNotThereAreTheCallers) {
  ThreadTeam team(GetParam());
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::thread::id> ids(static_cast<size_t>(team.size()));
  int64_t of_caller = 0;
  // No helper is back from the kernel before a caller without work has taken the next part, in any of so many runs.
  for (int round = 0; round < 2000; ++round) {
    team.Run([&](int part) { ids[static_cast<size_t>(part)] = std::this_thread::get_id(); });
    ASSERT_EQ(ids[0], caller);
    of_caller += std::count(ids.begin() + 1, ids.end(), caller);
  }
  EXPECT_EQ(of_caller > 0, team.size() > 1);
}

TEST_P(ThreadTeamTest, PartsAreDoneAtOnce) {
  ThreadTeam team(GetParam());
  std::atomic<int> begun{0};
  // Each waits for all others: nobody could, were there fewer threads.
  team.Run([&](int) {
    begun.fetch_add(1);
    while (begun.load() < team.size()) std::this_thread::yield();
  });
  EXPECT_EQ(begun.load(), team.size());
}

// A helper that looked whether it is to stop before it looked at the ticket slept for ever: the team could not end.
TEST_P(ThreadTeamTest, TeamsThatComeAndGoEnd) {
  for (int i = 0; i < 3000; ++i) {
    ThreadTeam team(GetParam());
    if (i % 2 == 0) continue;
    std::atomic<int> parts{0};
    team.Run([&](int) { parts.fetch_add(1); });
    ASSERT_EQ(parts.load(), team.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, testing::Values(1, 2, 4));

TEST(ThreadTeamEdgeTest, ASizeBelowOneIsOne) {
  ThreadTeam team(0);
  EXPECT_EQ(team.size(), 1);
  int runs = 0;
  team.Run([&](int) { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace troupe::training
