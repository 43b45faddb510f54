#include "lib/space/row_scaling.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::space {
namespace {

using tensor::DType;

Space Bytes(double low, double high, std::vector<int64_t> shape) {
  return *Space::Box(low, high, std::move(shape), DType::kUint8);
}

std::vector<float> Scaled(const RowScaling& scaling, const std::vector<uint8_t>& row) {
  std::vector<float> scaled(row.size());
  scaling.Apply(row.data(), static_cast<int64_t>(row.size()), scaled.data());
  return scaled;
}

TEST(RowScalingTest, BytesAreScaledByTheirOwnBounds) {
  EXPECT_EQ(Scaled(ScalingByBounds(Bytes(0, 1, {4})), {0, 1, 1, 0}), (std::vector<float>{0, 1, 1, 0}));
  EXPECT_EQ(Scaled(ScalingByBounds(Bytes(0, 4, {3})), {0, 1, 4}), (std::vector<float>{0, 0.25f, 1}));
  EXPECT_EQ(Scaled(ScalingByBounds(Bytes(100, 104, {3})), {100, 101, 104}), (std::vector<float>{0, 0.25f, 1}));
  EXPECT_EQ(Scaled(ScalingByBounds(Bytes(7, 7, {2})), {7, 7}), (std::vector<float>{0, 0}));
}

// Those of images have the bits of before there were bounds.
TEST(RowScalingTest, ABoxOf0To255IsDividedBy255) {
  for (const Space& space : {Bytes(0, 255, {16, 16, 1}), *ParseSpace("Box([0, 0], [255, 255], uint8)")}) {
    EXPECT_EQ(ScalingByBounds(space), ScalingBy255(space)) << space.ToString();
  }
  const RowScaling scaling = ScalingByBounds(Bytes(0, 255, {256}));
  EXPECT_TRUE(scaling.is_uniform());
  std::vector<uint8_t> row(256);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<uint8_t>(i);
  const std::vector<float> scaled = Scaled(scaling, row);
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(scaled[i], static_cast<float>(i) * (1.0f / 255.0f)) << i;
}

TEST(RowScalingTest, EachElementHasItsBounds) {
  const RowScaling scaling =
      ScalingByBounds(*Space::Box({0, 0, 10}, {1, 255, 12}, std::vector<int64_t>{3}, DType::kUint8));
  EXPECT_FALSE(scaling.is_uniform());
  EXPECT_EQ(Scaled(scaling, {1, 255, 11}), (std::vector<float>{1, 1, 0.5f}));
}

TEST(RowScalingTest, LeavesOfBytesAreScaledWhereTheyStand) {
  const Space space = *Space::Dict({{"board", Bytes(0, 2, {2})},
                                    {"place", *Space::Discrete(2)},
                                    {"rest", *Space::Tuple({*Space::Box(-9, 9, {1}), Bytes(0, 255, {1})})}});
  ASSERT_TRUE(HasBytes(space));
  const std::vector<float> row = {1, 2, 0, 1, -7, 51};
  std::vector<float> scaled(row.size());
  ScalingByBounds(space).Apply(row.data(), 6, scaled.data());
  EXPECT_EQ(scaled, (std::vector<float>{0.5f, 1, 0, 1, -7, 51 * (1.0f / 255.0f)}));
  EXPECT_TRUE(ScalingBy255(space).identity());
  EXPECT_TRUE(ScalingByBounds(*Space::Dict({{"flags", Bytes(0, 1, {3})}})).identity());
}

TEST(RowScalingTest, EverythingElseStays) {
  for (const std::string text : {"Box(0, 255, [3])", "Box(0, 1, [8], int32)", "Discrete(5)", "MultiBinary(3)",
                                 "Dict{a: Box(-1, 1, [3]), b: Discrete(2)}"}) {
    const Space space = *ParseSpace(text);
    EXPECT_FALSE(HasBytes(space)) << text;
    EXPECT_TRUE(ScalingByBounds(space).identity()) << text;
    EXPECT_TRUE(ScalingBy255(space).identity()) << text;
  }
}

TEST(RowScalingTest, UndoGivesTheBytesBack) {
  for (const Space& space :
       {Bytes(0, 255, {256}), Bytes(0, 1, {256}), Bytes(3, 250, {256}),
        *Space::Box(std::vector<double>(256, 1), std::vector<double>(256, 77), {256}, DType::kUint8)}) {
    const RowScaling scaling = ScalingByBounds(space);
    std::vector<uint8_t> row(256), back(256);
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<uint8_t>(i);
    const std::vector<float> scaled = Scaled(scaling, row);
    scaling.Undo(scaled.data(), 256, back.data());
    EXPECT_EQ(back, row) << space.ToString();
  }
}

}  // namespace
}  // namespace troupe::space
