#include "lib/space/observation_leaves.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::space {
namespace {

std::vector<std::pair<std::string, int64_t>> NamesAndPlaces(const std::string& space) {
  std::vector<std::pair<std::string, int64_t>> found;
  const Space parsed = *ParseSpace(space);
  const std::vector<std::string> names = ObservationLeafNames(parsed);
  const std::vector<ObservationLeaf> leaves = ObservationLeaves(parsed);
  EXPECT_EQ(names.size(), leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) found.emplace_back(names[i], leaves[i].first);
  return found;
}
using Leaves = std::vector<std::pair<std::string, int64_t>>;

TEST(ObservationLeavesTest, LieAsRowsDo) {
  EXPECT_EQ(NamesAndPlaces("Dict{touch: Discrete(3), arm: Tuple(Box(-1, 1, [2]), MultiBinary(4)), "
                           "camera: Box(0, 255, [4, 5, 1], uint8)}"),
            (Leaves{{"arm/0", 0}, {"arm/1", 2}, {"camera", 6}, {"touch", 26}}));
  EXPECT_EQ(NamesAndPlaces("Tuple(Dict{\"a/b\": Discrete(2), a: Dict{b: Discrete(3)}})"),
            (Leaves{{"0/a/b", 0}, {"0/a/b", 3}}))
      << "two of one name";
  const std::vector<ObservationLeaf> leaves = ObservationLeaves(*ParseSpace("Tuple(MultiDiscrete([2, 3]))"));
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_EQ(leaves[0].space, *Space::MultiDiscrete({2, 3}));
}

TEST(ObservationLeavesTest, ASpaceOfOnePartIsALeafWithoutAName) {
  EXPECT_EQ(NamesAndPlaces("Box(-1, 1, [3])"), (Leaves{{"", 0}}));
}

TEST(ObservationLeavesTest, AnEmptyKeyIsLeftOutOfNames) {
  EXPECT_EQ(NamesAndPlaces("Dict{\"\": Dict{a: Discrete(2)}}"), (Leaves{{"a", 0}}));
}

TEST(ObservationLeavesTest, OneInfiniteBoundIsEnoughToBeUnbounded) {
  for (const char* const bounded : {"Box(-1, 1, [3])", "Discrete(3)", "MultiBinary(2)", "Box(0, 255, [2], uint8)",
                                    "Dict{a: Box(-1, 1, [3]), b: Discrete(2)}"}) {
    EXPECT_FALSE(HasUnboundedNumbers(*ParseSpace(bounded))) << bounded;
  }
  for (const char* const unbounded : {"Box(-inf, inf, [3])", "Box(0, inf, [3])",
                                      "Dict{a: Box(-1, 1, [3]), b: Tuple(Discrete(2), Box(-inf, 0, [1]))}"}) {
    EXPECT_TRUE(HasUnboundedNumbers(*ParseSpace(unbounded))) << unbounded;
  }
}

}  // namespace
}  // namespace troupe::space
