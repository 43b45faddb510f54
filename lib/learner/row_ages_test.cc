#include "lib/learner/row_ages.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

TEST(RowAgesTest, EachAgeIsInTheBucketThatBeginsAtThePowerOfTwoBelowIt) {
  RowAges ages;
  for (const int64_t age : {1, 2, 3, 4, 63, 64, 1000}) ages.Add(age, age);
  RowAges twice = ages;
  twice.Add(ages);
  using Bucket = std::pair<int64_t, int64_t>;
  EXPECT_THAT(ages.Filled(),
              testing::ElementsAre(Bucket(1, 1), Bucket(2, 5), Bucket(4, 4), Bucket(32, 63), Bucket(64, 1064)));
  EXPECT_EQ(twice.Filled()[4], Bucket(64, 2128));
  EXPECT_TRUE(RowAges().Filled().empty());
}

}  // namespace
}  // namespace troupe::learner
