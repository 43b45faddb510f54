#include "lib/training/core/moments.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lib/base/philox.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

std::vector<int32_t> AllRows(size_t rows) {
  std::vector<int32_t> result(rows);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

TEST(MomentsTest, OfColumnsOverActiveRows) {
  const std::vector<float> values = {1, 10, 100, 100, 3, 30};
  const policy::RunningMoments moments = MomentsOf(values, 2, std::vector<int32_t>{0, 2});
  EXPECT_EQ(moments.count, 2);
  EXPECT_DOUBLE_EQ(moments.mean[0], 2);
  EXPECT_DOUBLE_EQ(moments.mean[1], 20);
  EXPECT_DOUBLE_EQ(moments.variance[0], 1);
  EXPECT_DOUBLE_EQ(moments.variance[1], 100);
}

TEST(MomentsTest, NoActiveRowChangesNothing) {
  const policy::RunningMoments old{5, {1.5}, {2.5}};
  const policy::RunningMoments merged = Merge(old, MomentsOf({}, 1, {}), 100);
  EXPECT_EQ(merged.count, 5);
  EXPECT_EQ(merged.mean, old.mean);
  EXPECT_EQ(merged.variance, old.variance);
}

TEST(MomentsTest, MergedPartsEqualTheWhole) {
  base::PhiloxSequence random(base::PhiloxKey::Make(3, base::RandomStream::kTest), {});
  std::vector<float> values(1000);
  for (float& value : values) value = static_cast<float>(5 + 3 * random.Normal());
  policy::RunningMoments merged = InitialMoments(1);
  const absl::Span<const float> all(values);
  for (size_t first = 0, rows = 1; first < values.size(); first += rows, rows = rows * 2 + 1) {
    const absl::Span<const float> part = all.subspan(first, rows);
    merged = Merge(merged, MomentsOf(part, 1, AllRows(part.size())), 1e9);
  }
  const policy::RunningMoments whole = MomentsOf(values, 1, AllRows(values.size()));
  EXPECT_EQ(merged.count, whole.count);
  EXPECT_NEAR(merged.mean[0], whole.mean[0], 1e-12);
  EXPECT_NEAR(merged.variance[0], whole.variance[0], 1e-10);
}

TEST(MomentsTest, CappedCountLetsOldValuesFade) {
  policy::RunningMoments moments{1e6, {0}, {1}};
  const policy::RunningMoments batch{10, {8}, {1}};
  moments = Merge(moments, batch, 30);
  EXPECT_EQ(moments.count, 40);
  EXPECT_DOUBLE_EQ(moments.mean[0], 2);  // (30 x 0 + 10 x 8) / 40
}

TEST(MomentsTest, SeesWhatIsNotFinite) {
  EXPECT_TRUE(IsFinite({1, {0}, {1}}));
  EXPECT_FALSE(IsFinite({1, {std::numeric_limits<double>::quiet_NaN()}, {1}}));
  EXPECT_FALSE(IsFinite({1, {0}, {std::numeric_limits<double>::infinity()}}));
}

}  // namespace
}  // namespace troupe::training
