#include "lib/envs/mpe/assignment.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;

double Cost(const std::vector<double>& cost, absl::Span<const size_t> columns) {
  double sum = 0;
  for (size_t row = 0; row < columns.size(); ++row) sum += cost[row * columns.size() + columns[row]];
  return sum;
}

TEST(AssignmentTest, IsAsCheapAsTheBestPermutation) {
  base::PhiloxSequence random(base::PhiloxKey::Make(3, base::RandomStream::kTest), {});
  for (size_t n = 1; n <= 7; ++n) {
    Assignment assignment(n);
    std::vector<size_t> permutation(n);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<double> cost(n * n);
      // Every other time of few values, so that there are equal ones.
      for (double& element : cost) element = repeat % 2 == 0 ? random.Uniform() : random.Below(4);
      double best = std::numeric_limits<double>::infinity();
      std::iota(permutation.begin(), permutation.end(), size_t{0});
      do {
        best = std::min(best, Cost(cost, permutation));
      } while (std::next_permutation(permutation.begin(), permutation.end()));
      const absl::Span<const size_t> columns = assignment.Solve(cost.data());
      EXPECT_NEAR(Cost(cost, columns), best, 1e-12);
      std::vector<size_t> sorted(columns.begin(), columns.end());
      std::sort(sorted.begin(), sorted.end());
      std::iota(permutation.begin(), permutation.end(), size_t{0});
      EXPECT_EQ(sorted, permutation);
    }
  }
}

TEST(AssignmentTest, EqualCostsGiveTheIdentity) {
  Assignment assignment(4);
  EXPECT_THAT(assignment.Solve(std::vector<double>(16, 1).data()), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace troupe::envs
