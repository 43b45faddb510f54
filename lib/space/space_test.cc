#include "lib/space/space.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/process_memory.h"

namespace troupe::space {
namespace {

using tensor::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

base::PhiloxSequence Random(uint64_t seed) {
  return base::PhiloxSequence(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {0, 0, 0, 0});
}

Space Mixed() {
  return *Space::Dict({{"move", *Space::Discrete(5)},
                       {"arm", *Space::Box(-1, 1, {2})},
                       {"say", *Space::Tuple({*Space::MultiDiscrete({3, 4}), *Space::MultiBinary(2)})}});
}

TEST(SpaceTest, SizesAreThoseOfGymnasiumsFlatten) {
  const Space box = *Space::Box(-1, 1, {2, 3});
  EXPECT_EQ(box.flat_size(), 6);
  EXPECT_EQ(box.action_words(), 6);
  EXPECT_EQ(box.mask_size(), 0);
  EXPECT_THAT(box.shape(), ElementsAre(2, 3));
  EXPECT_TRUE(box.bounded());

  const Space discrete = *Space::Discrete(5, -2);
  EXPECT_EQ(discrete.flat_size(), 5);
  EXPECT_EQ(discrete.action_words(), 1);
  EXPECT_EQ(discrete.mask_size(), 5);

  const Space multi = *Space::MultiDiscrete({3, 4});
  EXPECT_EQ(multi.flat_size(), 7);
  EXPECT_EQ(multi.action_words(), 2);
  EXPECT_EQ(multi.mask_size(), 7);

  const Space bits = *Space::MultiBinary(3);
  EXPECT_EQ(bits.flat_size(), 3);
  EXPECT_EQ(bits.action_words(), 3);
  EXPECT_EQ(bits.mask_size(), 6);

  EXPECT_EQ(Mixed().flat_size(), 5 + 2 + 7 + 2);
  EXPECT_EQ(Mixed().action_words(), 1 + 2 + 2 + 2);
  EXPECT_EQ(Mixed().mask_size(), 5 + 7 + 4);
  EXPECT_THAT(Mixed().keys(), ElementsAre("arm", "move", "say"));

  EXPECT_EQ(Space().flat_size(), 0);
  EXPECT_FALSE(Space().has_value());
}

TEST(SpaceTest, OnlyAUint8BoxHasUint8Rows) {
  const Space image = *Space::Box(0, 255, {4, 4}, DType::kUint8);
  EXPECT_EQ(image.flat_dtype(), DType::kUint8);
  EXPECT_EQ(Space::Box(0, 3, {2}, DType::kInt32)->flat_dtype(), DType::kFloat32);
  EXPECT_EQ(Space::Dict({{"image", image}})->flat_dtype(), DType::kFloat32);
}

TEST(SpaceTest, RefusesWhatIsNoSpace) {
  EXPECT_THAT(Space::Box(1, -1, {2}).status().message(), HasSubstr("low <= high"));
  EXPECT_THAT(Space::Box(std::nan(""), 1, {2}).status().message(), HasSubstr("low <= high"));
  EXPECT_THAT(Space::Box(0, 1, {}).status().message(), HasSubstr("shape is empty"));
  EXPECT_THAT(Space::Box(0, 1, {3, 0}).status().message(), HasSubstr("dimension 0"));
  EXPECT_THAT(Space::Box(0, 1, {1 << 20, 1 << 20, 1 << 30}).status().message(), HasSubstr("too large"));
  EXPECT_THAT(Space::Box({0, 0}, {1, 1, 1}, {2}).status().message(), HasSubstr("2 low and 3 high bounds, expected 2"));
  EXPECT_THAT(Space::Box(0, 256, {1}, DType::kUint8).status().message(), HasSubstr("[0, 255]"));
  EXPECT_THAT(Space::Box(0, 1.5, {1}, DType::kInt32).status().message(), HasSubstr("whole numbers"));
  EXPECT_FALSE(Space::Box(0, 1, {1}, DType::kUint32).ok());
  EXPECT_THAT(Space::Discrete(0).status().message(), HasSubstr("n = 0"));
  EXPECT_FALSE(Space::Discrete(2, std::numeric_limits<int32_t>::max()).ok());
  EXPECT_TRUE(Space::Discrete(1, std::numeric_limits<int32_t>::max()).ok());
  EXPECT_FALSE(Space::MultiDiscrete({}).ok());
  EXPECT_FALSE(Space::MultiDiscrete({2, -1}).ok());
  EXPECT_FALSE(Space::MultiDiscrete({Space::kMaxElements, Space::kMaxElements}).ok());
  EXPECT_FALSE(Space::MultiBinary(0).ok());
  EXPECT_FALSE(Space::Tuple({}).ok());
  EXPECT_FALSE(Space::Tuple({Space()}).ok());
  EXPECT_THAT(Space::Dict({{"a", *Space::Discrete(2)}, {"a", *Space::Discrete(2)}}).status().message(),
              HasSubstr("'a' twice"));
}

TEST(SpaceTest, EqualSpacesHaveEqualText) {
  EXPECT_EQ(Space::Box(-HUGE_VAL, HUGE_VAL, {18})->ToString(), "Box(-inf, inf, [18])");
  EXPECT_EQ(Space::Box({0, 0.1}, {1, 2}, {2})->ToString(), "Box([0, 0.1], [1, 2], [2])");
  EXPECT_EQ(Space::Box(0, 255, {84, 84, 3}, DType::kUint8)->ToString(), "Box(0, 255, [84, 84, 3], uint8)");
  EXPECT_EQ(Space::Discrete(5, 1)->ToString(), "Discrete(5, 1)");
  EXPECT_EQ(Mixed().ToString(),
            "Dict{arm: Box(-1, 1, [2]), move: Discrete(5), say: Tuple(MultiDiscrete([3, 4]), MultiBinary(2))}");
  EXPECT_EQ(*Space::Box({0, 0}, {1, 1}, {2}), *Space::Box(0, 1, {2}));
  EXPECT_NE(*Space::Box(0, 1, {2}), *Space::Box(0, 1, {1, 2}));
}

// A policy table of 1024 policies, each with two spaces of thirty characters, took 512 GiB.
TEST(SpaceTest, ElementsOfABoxTakeNothingBeforeTheirBoundsAreAskedFor) {
  const int64_t before = base::ProcessMemory::Now().rss_bytes;
  std::vector<Space> boxes;
  for (int i = 0; i < 64; ++i) boxes.push_back(*Space::Box(-1, 1, {1 << 20}));
  EXPECT_LT(base::ProcessMemory::Now().rss_bytes - before, 64 << 20) << "16 MiB each";
  EXPECT_EQ(boxes[0].flat_size(), 1 << 20);
  EXPECT_EQ(boxes[0].low().size(), size_t{1} << 20);
  EXPECT_EQ(boxes[0].low()[(1 << 20) - 1], -1);
  EXPECT_EQ(boxes[0].high().size(), size_t{1} << 20);
  EXPECT_EQ(boxes[0].high()[(1 << 20) - 1], 1);
}

// The text of a Dict was kept in each Dict around it.
TEST(SpaceTest, TheTextOfASpaceIsKeptOnce) {
  const int64_t before = base::ProcessMemory::Now().rss_bytes;
  Space space = *Space::Dict({{std::string(size_t{8} << 20, 'k'), *Space::Discrete(2)}});
  for (int i = 0; i < 30; ++i) space = *Space::Tuple({space});
  EXPECT_LT(base::ProcessMemory::Now().rss_bytes - before, 64 << 20);
  EXPECT_EQ(space.ToString().size(),
            (size_t{8} << 20) + 30 * std::string("Tuple()").size() + std::string("Dict{: Discrete(2)}").size());
}

TEST(SpaceTest, ContainsFlatNamesTheBadElement) {
  const Space box = *Space::Box({0, -1}, {0.1, HUGE_VAL}, {2});
  EXPECT_TRUE(
      box.ContainsFlat(std::array<float, 2>{0.1f, 1e30f}).ok());  // 0.1f is above 0.1: bounds compare as float32
  EXPECT_THAT(box.ContainsFlat(std::array<float, 2>{0.05f, -2.0f}).message(), HasSubstr("element 1 is -2"));
  EXPECT_FALSE(box.ContainsFlat(std::array<float, 2>{std::nanf(""), 0.0f}).ok());
  EXPECT_FALSE(box.ContainsFlat(std::array<float, 2>{0.0f, std::numeric_limits<float>::infinity()}).ok());
  EXPECT_THAT(box.ContainsFlat(std::array<float, 1>{0.0f}).message(), HasSubstr("1 elements, expected 2"));

  const Space discrete = *Space::Discrete(3, 7);
  EXPECT_TRUE(discrete.ContainsFlat(std::array<float, 3>{0, 1, 0}).ok());
  EXPECT_THAT(discrete.ContainsFlat(std::array<float, 3>{0, 1, 1}).message(), HasSubstr("2 ones"));
  EXPECT_FALSE(discrete.ContainsFlat(std::array<float, 3>{0, 0, 0}).ok());
  EXPECT_FALSE(discrete.ContainsFlat(std::array<float, 3>{0, 0.5, 0}).ok());

  const Space nested =
      *Space::Tuple({*Space::MultiDiscrete({2, 2}), *Space::MultiBinary(1), *Space::Box(0, 4, {1}, DType::kInt32)});
  EXPECT_TRUE(nested.ContainsFlat(std::array<float, 6>{1, 0, 0, 1, 1, 4}).ok());
  EXPECT_THAT(nested.ContainsFlat(std::array<float, 6>{1, 0, 0, 0, 1, 4}).message(), HasSubstr("elements 2 to 3"));
  EXPECT_THAT(nested.ContainsFlat(std::array<float, 6>{1, 0, 0, 1, 2, 4}).message(), HasSubstr("element 4"));
  EXPECT_THAT(nested.ContainsFlat(std::array<float, 6>{1, 0, 0, 1, 1, 2.5}).message(),
              HasSubstr("element 5 is 2.5, expected a whole number"));

  const Space image = *Space::Box(0, 9, {2}, DType::kUint8);
  EXPECT_TRUE(image.ContainsFlat(std::array<uint8_t, 2>{0, 9}).ok());
  EXPECT_THAT(image.ContainsFlat(std::array<uint8_t, 2>{0, 10}).message(), HasSubstr("element 1 is 10"));
  EXPECT_FALSE(box.ContainsFlat(std::array<uint8_t, 2>{0, 0}).ok());
}

TEST(SpaceTest, ContainsActionKnowsEveryKind) {
  const auto word = [](int32_t value) { return ActionWord{.i32 = value}; };
  const auto real = [](float value) { return ActionWord{.f32 = value}; };
  EXPECT_TRUE(Space::Discrete(3, 7)->ContainsAction(std::array{word(9)}).ok());
  EXPECT_THAT(Space::Discrete(3, 7)->ContainsAction(std::array{word(10)}).message(),
              HasSubstr("element 0 is 10, expected an integer in [7, 9]"));
  EXPECT_FALSE(Space::MultiDiscrete({2, 2})->ContainsAction(std::array{word(1), word(2)}).ok());
  EXPECT_FALSE(Space::MultiBinary(1)->ContainsAction(std::array{word(-1)}).ok());
  EXPECT_TRUE(Space::Box(0, 1, {1})->ContainsAction(std::array{real(1.0f)}).ok());
  EXPECT_FALSE(Space::Box(0, 1, {1})->ContainsAction(std::array{real(std::nanf(""))}).ok());
  EXPECT_THAT(
      Mixed().ContainsAction(std::array{real(0), real(0), word(4), word(2), word(4), word(0), word(0)}).message(),
      HasSubstr("element 4 is 4"));
}

TEST(SpaceTest, SamplesAreInsideAndReachEveryCategory) {
  base::PhiloxSequence random = Random(11);
  const std::vector<Space> spaces = {Mixed(),
                                     *Space::Box(-HUGE_VAL, HUGE_VAL, {3}),
                                     *Space::Box(2, HUGE_VAL, {1}),
                                     *Space::Box(-HUGE_VAL, -2, {1}),
                                     *Space::Box(0, 3, {2}, DType::kUint8),
                                     *Space::Discrete(4, -1),
                                     *Space::Box(0.1, 0.1, {1})};
  for (const Space& space : spaces) {
    std::vector<ActionWord> action(static_cast<size_t>(space.action_words()));
    std::vector<float> row(static_cast<size_t>(space.flat_size()));
    for (int i = 0; i < 300; ++i) {
      space.SampleAction(random, {}, absl::MakeSpan(action));
      EXPECT_TRUE(space.ContainsAction(action).ok()) << space.ToString();
      space.SampleFlat(random, absl::MakeSpan(row));
      if (space.flat_dtype() == DType::kFloat32) {
        EXPECT_TRUE(space.ContainsFlat(row).ok()) << space.ToString();
      }
    }
  }
  std::array<int, 4> seen{};
  const Space discrete = *Space::Discrete(4, -1);
  for (int i = 0; i < 200; ++i) {
    ActionWord action{};
    discrete.SampleAction(random, {}, absl::MakeSpan(&action, 1));
    ++seen[static_cast<size_t>(action.i32 + 1)];
  }
  for (const int count : seen) EXPECT_GT(count, 20);
}

TEST(SpaceTest, SampleActionHonoursTheMask) {
  base::PhiloxSequence random = Random(12);
  const Space space = *Space::Tuple({*Space::Discrete(3, 5), *Space::Box(0, 1, {1}), *Space::MultiDiscrete({2, 2})});
  const std::array<uint8_t, 7> mask = {0, 1, 1, 0,
                                       1, 0, 0};  // the last leaf allows nothing: drawn as if it had no mask
  std::vector<ActionWord> action(4);
  std::array<int, 3> first{};
  std::array<int, 2> last{};
  for (int i = 0; i < 200; ++i) {
    space.SampleAction(random, mask, absl::MakeSpan(action));
    ++first[static_cast<size_t>(action[0].i32 - 5)];
    EXPECT_EQ(action[2].i32, 1);
    ++last[static_cast<size_t>(action[3].i32)];
  }
  EXPECT_EQ(first[0], 0);
  EXPECT_GT(first[1], 50);
  EXPECT_GT(first[2], 50);
  EXPECT_GT(last[0], 50);
  EXPECT_GT(last[1], 50);
}

TEST(SpaceTest, ActionLeavesFollowTheRow) {
  const std::vector<ActionLeaf> leaves = ActionLeaves(Mixed());  // arm, move, say
  ASSERT_EQ(leaves.size(), 6u);
  EXPECT_EQ(leaves[0].kind, ActionLeaf::Kind::kContinuous);
  EXPECT_EQ(leaves[0].words, 2);
  EXPECT_THAT(leaves[0].low, ElementsAre(-1.0f, -1.0f));
  EXPECT_EQ(leaves[1].word, 2);
  EXPECT_EQ(leaves[1].categories, 5);
  EXPECT_EQ(leaves[1].mask_offset, 0);
  EXPECT_EQ(leaves[3].word, 4);
  EXPECT_EQ(leaves[3].categories, 4);
  EXPECT_EQ(leaves[3].mask_offset, 8);
  EXPECT_EQ(leaves[5].word, 6);
  EXPECT_EQ(leaves[5].categories, 2);
  EXPECT_EQ(leaves[5].mask_offset, 14);
  EXPECT_EQ(ActionLeaves(*Space::Discrete(3, 7))[0].start, 7);
}

}  // namespace
}  // namespace troupe::space
