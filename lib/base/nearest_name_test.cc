#include "lib/base/nearest_name.h"

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(NearestNameTest, FindsTypingErrors) {
  const std::vector<std::string> keys = {"gamma", "gae_lambda", "num_epochs", "lr"};
  EXPECT_EQ(NearestName("gama", keys), "gamma");
  EXPECT_EQ(NearestName("gmama", keys), "gamma");
  EXPECT_EQ(NearestName("Num_Epoch", keys), "num_epochs");
  EXPECT_EQ(NearestName("rl", keys), "lr");
}

TEST(NearestNameTest, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(NearestName("momentum", {"gamma", "lr"}), "");
  EXPECT_EQ(NearestName("xy", {"lr"}), "");
  EXPECT_EQ(NearestName("gamma", {}), "");
  EXPECT_EQ(NearestName(std::string(100000, 'a'), {"a"}), "");
}

TEST(NearestNameTest, TakesTheFirstOfEquals) { EXPECT_EQ(NearestName("bat", {"cat", "rat"}), "cat"); }

TEST(NoSuchNameTest, SaysTheNearestOrAll) {
  EXPECT_EQ(NoSuchName("animal", "worm\n", {"cat", "horse"}),
            absl::NotFoundError("there is no animal \"worm\\x0a\"; expected one of cat, horse"));
  EXPECT_EQ(NoSuchName("animal", "hrose", {"cat", "horse"}),
            absl::NotFoundError("there is no animal \"hrose\"; the nearest is \"horse\""));
}

TEST(FewOfTest, CountsWhatItLeavesOut) {
  EXPECT_EQ(FewOf({"a"}, 3), "a");
  EXPECT_EQ(FewOf({"a", "b", "c"}, 3), "a, b, c");
  EXPECT_EQ(FewOf({"a", "b", "c", "d"}, 2), "a, b and 2 more");
}

}  // namespace
}  // namespace troupe::base
