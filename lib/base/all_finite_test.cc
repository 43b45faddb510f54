#include "lib/base/all_finite.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(AllFiniteTest, FindsOneBadFloatAnywhere) {
  const float bad[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(), -std::nanf("1")};
  for (const size_t size : {0, 1, 31, 32, 33, 255, 256, 257, 300}) {
    std::vector<float> values(size, std::numeric_limits<float>::max());
    for (size_t i = 0; i < size; i += 3) values[i] = -std::numeric_limits<float>::denorm_min();
    EXPECT_TRUE(AllFinite(values));
    for (size_t i = 0; i < size; ++i) {
      const float kept = values[i];
      for (const float value : bad) {
        values[i] = value;
        EXPECT_FALSE(AllFinite(values)) << size << " " << i << " " << value;
      }
      values[i] = kept;
    }
  }
}

}  // namespace
}  // namespace troupe::base
