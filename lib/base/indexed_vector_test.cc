#include "lib/base/indexed_vector.h"

#include <cstdint>
#include <string>
#include <vector>

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

TEST(IndexedVectorTest, GrowsAtItsEnd) {
  IndexedVector<RowId, int> rows(2, 7);
  EXPECT_EQ(rows.values(), (std::vector<int>{7, 7}));
  rows.push_back(8);
  EXPECT_EQ(rows[RowId(2)], 8);
  rows.GrowTo(RowId(4), 9);
  rows.GrowTo(RowId(1), 10);
  EXPECT_EQ(rows.values(), (std::vector<int>{7, 7, 8, 9, 9})) << "who is there already stays";
  rows.GrowTo(RowId(5));
  EXPECT_EQ(rows[RowId(5)], 0);
  rows.resize(7, 11);
  EXPECT_EQ(rows[RowId(6)], 11);
  rows.clear();
  EXPECT_TRUE(rows.empty());
}

TEST(IndexedVectorTest, TakesItsValuesInBracesAndGivesThem) {
  IndexedVector<RowId, int> rows = {3, 1};
  EXPECT_EQ(rows.values(), (std::vector<int>{3, 1})) << "not three of one";
  EXPECT_EQ(rows.back(), 1);
  rows.back() = 4;
  rows.pop_back();
  EXPECT_EQ(rows.size(), 1u);
  EXPECT_EQ((IndexedVector<RowId, int>{5}.values()), (std::vector<int>{5}));
  int sum = 0;
  for (const int value : IndexedVector<RowId, int>{7, 8}.values()) sum += value;  // those of one that is gone by now
  EXPECT_EQ(sum, 15);
}

TEST(IndexedVectorTest, SaysItsIds) {
  IndexedVector<RowId, int> rows(3, 1);
  int sum = 0;
  for (const RowId row : rows.ids()) {
    if (row == RowId(0)) rows.push_back(100);  // what comes later is in no loop that goes on
    rows[row] = row.value();
    sum += rows[row];
  }
  EXPECT_EQ(sum, 0 + 1 + 2);
  EXPECT_EQ(rows[RowId(3)], 100);
  for (const RowId row : IndexedVector<RowId, int>().ids()) FAIL() << row;
}

TEST(IndexedVectorDeathTest, AnIndexOutOfRangeIsABrokenInvariant) {
  const IndexedVector<RowId, int> rows(std::vector<int>{1, 2});
  EXPECT_EQ(rows[RowId(1)], 2);
  EXPECT_DEATH(rows[RowId(2)], "Contains");
  EXPECT_DEATH(rows[RowId(-1)], "Contains");
  EXPECT_DEATH((IndexedVector<RowId, int>().GrowTo(RowId(-1), 0)), "value");
  EXPECT_DEATH((IndexedVector<RowId, int>().GrowTo(RowId(-1))), "value");
}

}  // namespace
}  // namespace troupe::base
