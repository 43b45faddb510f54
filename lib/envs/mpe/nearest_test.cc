#include "lib/envs/mpe/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

/// Distances of few values, so that equal ones are common.
std::vector<double> Draw(size_t count, base::PhiloxSequence& random) {
  std::vector<double> distances(count);
  for (double& distance : distances) distance = random.Below(static_cast<uint32_t>(count) / 2 + 1);
  return distances;
}

std::vector<size_t> Expected(const std::vector<double>& distances) {
  std::vector<size_t> order(distances.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distances[a] < distances[b]; });
  return order;
}

TEST(NearestTest, EveryWayGivesTheStableOrder) {
  base::PhiloxSequence random(base::PhiloxKey::Make(1, base::RandomStream::kTest), {});
  NearestOrder nearest(60);
  for (size_t count = 0; count <= 60; ++count) {
    std::vector<size_t> mended(count);
    std::iota(mended.rbegin(), mended.rend(), size_t{0});
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<double> distances = Draw(count, random);
      const std::vector<size_t> expected = Expected(distances);
      EXPECT_THAT(nearest.Sort(distances.data(), count, count), ElementsAreArray(expected));
      const size_t limit = random.Below(70);
      EXPECT_THAT(
          nearest.Sort(distances.data(), count, limit),
          ElementsAreArray(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(std::min(limit, count))));
      MendOrder(distances.data(), absl::MakeSpan(mended));
      EXPECT_THAT(mended, ElementsAreArray(expected));
      std::vector<size_t> sorted(expected.rbegin(), expected.rend());
      SortByDistance(distances.data(), absl::MakeSpan(sorted));
      EXPECT_THAT(sorted, ElementsAreArray(expected));
    }
  }
}

TEST(NearestTest, NeighboursLeaveOutTheObserver) {
  World world(std::vector<EntityTraits>(3), std::vector<EntityTraits>(2));
  world.x = {0, 5, 1, 4, 2};
  Neighbours all(-1, 3);
  EXPECT_TRUE(all.all());
  EXPECT_THAT(all.Find(world, 1, 0, 3), ElementsAre(0, 2));
  EXPECT_THAT(all.Find(world, 1, 3, 2), ElementsAre(3, 4));
  EXPECT_EQ(all.slots(2), 2u);
  Neighbours two(2, 3);
  EXPECT_THAT(two.Find(world, 0, 0, 3), ElementsAre(2, 1));
  EXPECT_THAT(two.Find(world, 0, 3, 2), ElementsAre(4, 3));
  EXPECT_EQ(two.slots(5), 2u);
  Neighbours one(1, 3);
  EXPECT_THAT(one.Find(world, 1, 3, 2), ElementsAre(3));
  EXPECT_THAT(one.Find(world, 1, 1, 1), IsEmpty());
}

}  // namespace
}  // namespace troupe::envs
