#include "lib/learner/circular_source.h"

#include <memory>
#include <utility>
#include <vector>

#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using testing::ElementsAre;

class CircularSourceTest : public testing::Test {
 protected:
  void Offer(int64_t iteration) {
    const auto batch = sample::MakeBatch(schema_, {}, 1, 3, {1, iteration});
    EXPECT_TRUE(source_.Accept(std::make_shared<KeptFragment>(CheckFragment(batch, schema_, {}), iteration)).empty());
  }
  /// The iterations of `count` selections.
  std::vector<int64_t> Take(int count, int64_t first_incomplete) {
    std::vector<int64_t> taken;
    for (int i = 0; i < count; ++i) {
      EXPECT_GT(source_.NumReady(first_incomplete), 0);
      last_ = source_.Select(first_incomplete);
      taken.push_back(last_.iteration);
    }
    return taken;
  }
  bool keeps_any() const {
    return source_.AnyKept([](const KeptFragment&) { return true; });
  }

  const sample::BatchSchema schema_ = sample::SimpleSchema(2, 3);
  CircularSource source_{4, /*uses=*/3};
  Selection last_;
};

TEST_F(CircularSourceTest, HandsOutEachBatchAsOftenAsItIsToBeUsed) {
  Offer(4);
  Offer(4);
  EXPECT_EQ(source_.NumReady(4), 0) << "it is not whole";
  EXPECT_EQ(source_.NumReady(5), 3);
  EXPECT_THAT(Take(2, 5), ElementsAre(4, 4));
  ASSERT_EQ(last_.picks.size(), 2u);
  EXPECT_FALSE(last_.picks[0].last);
  EXPECT_EQ(source_.Done(5), 4);
  EXPECT_TRUE(keeps_any());
  EXPECT_THAT(Take(1, 5), ElementsAre(4));
  ASSERT_EQ(last_.picks.size(), 2u);
  EXPECT_TRUE(last_.picks[0].last);
  EXPECT_TRUE(last_.picks[1].last);
  EXPECT_EQ(source_.Done(5), 5);
  EXPECT_EQ(source_.NumReady(5), 0);
  EXPECT_FALSE(keeps_any());
}

TEST_F(CircularSourceTest, ANewBatchComesFirst) {
  Offer(4);
  EXPECT_THAT(Take(2, 5), ElementsAre(4, 4));
  Offer(5);
  Offer(6);
  EXPECT_THAT(Take(2, 7), ElementsAre(5, 6));
  EXPECT_EQ(source_.Done(7), 4) << "it is to be used once more";
  EXPECT_THAT(Take(5, 7), ElementsAre(5, 6, 4, 5, 6));
  EXPECT_EQ(source_.Done(7), 7);
  EXPECT_EQ(source_.NumReady(7), 0);
}

TEST_F(CircularSourceTest, AnIterationWithoutFragmentsIsABatchWithoutRows) {
  EXPECT_EQ(source_.NumReady(5), 3);
  EXPECT_THAT(Take(3, 5), ElementsAre(4, 4, 4));
  EXPECT_TRUE(last_.picks.empty());
  EXPECT_EQ(source_.Done(5), 5);
}

}  // namespace
}  // namespace troupe::learner
