#include "lib/base/indexed_vector.h"

#include <cstdint>
#include <string>

#include "lib/base/strong_id.h"
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

using RowId = StrongId<struct RowIdTag, int32_t>;

TEST(IndexedVectorTest, IsIndexedByItsId) {
  IndexedVector<RowId, std::string> rows(2);
  rows[RowId(1)] = "b";
  rows.resize(3);
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[RowId(1)], "b");
  EXPECT_TRUE(rows.Contains(RowId(2)));
  EXPECT_FALSE(rows.Contains(RowId(3)));
  EXPECT_FALSE(rows.Contains(RowId(-1)));
  std::string all;
  for (const std::string& row : rows) all += row + ";";
  EXPECT_EQ(all, ";b;;");
  EXPECT_TRUE((IndexedVector<RowId, int>().empty()));
}

TEST(IndexedVectorDeathTest, AnIndexOutOfRangeIsABrokenInvariant) {
  const IndexedVector<RowId, int> rows(std::vector<int>{1, 2});
  EXPECT_EQ(rows[RowId(1)], 2);
  EXPECT_DEATH(rows[RowId(2)], "Contains");
  EXPECT_DEATH(rows[RowId(-1)], "Contains");
}

}  // namespace
}  // namespace troupe::base
