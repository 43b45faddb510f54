#include "lib/training/thread_team.h"

#include <algorithm>
#include <set>
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

TEST_P(ThreadTeamTest, NobodyPassesABarrierBeforeAllAreThere) {
  ThreadTeam team(GetParam());
  constexpr int kPhases = 500;
  std::vector<int> phase(static_cast<size_t>(team.size()), 0);
  std::vector<int> violations(static_cast<size_t>(team.size()), 0);
  team.Run([&](int thread) {
    for (int p = 1; p <= kPhases; ++p) {
      phase[static_cast<size_t>(thread)] = p;
      team.Barrier();
      for (const int other : phase) violations[static_cast<size_t>(thread)] += other != p;
      team.Barrier();
    }
  });
  EXPECT_EQ(*std::max_element(violations.begin(), violations.end()), 0);
}

TEST_P(ThreadTeamTest, IndexZeroIsTheCallerAndTheOthersAreNot) {
  ThreadTeam team(GetParam());
  std::vector<std::thread::id> ids(static_cast<size_t>(team.size()));
  team.Run([&](int thread) { ids[static_cast<size_t>(thread)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, testing::Values(1, 2, 4));

TEST(ThreadTeamEdgeTest, ASizeBelowOneIsOne) {
  ThreadTeam team(0);
  EXPECT_EQ(team.size(), 1);
  int runs = 0;
  team.Run([&](int) {
    team.Barrier();
    ++runs;
  });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace troupe::training
