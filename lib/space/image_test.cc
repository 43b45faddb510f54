#include "lib/space/image.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace troupe::space {
namespace {

Space Bytes(std::vector<int64_t> shape) { return *Space::Box(0, 255, std::move(shape), tensor::DType::kUint8); }

TEST(ImageTest, BoxesOfTwoAndThreeDimensionsHaveAnExtent) {
  const ImageExtent color = ImageOf(Bytes({10, 12, 3}));
  EXPECT_EQ(color.height, 10);
  EXPECT_EQ(color.width, 12);
  EXPECT_EQ(color.channels, 3);
  EXPECT_EQ(color.size(), 360);
  EXPECT_EQ(ImageOf(*Space::Box(0, 1, {4, 5})).size(), 20) << "of any type";
  EXPECT_EQ(ImageOf(Bytes({4, 10, 10, 3})).size(), 0);
  EXPECT_EQ(ImageOf(Bytes({100})).size(), 0);
  EXPECT_EQ(ImageOf(*Space::Discrete(3)).size(), 0);
  EXPECT_EQ(ImageOf(Space()).size(), 0);
}

TEST(ImageTest, AnImageIsOfBytesAndTenPixelsHighAndWide) {
  EXPECT_TRUE(IsByteImage(Bytes({10, 10})));
  EXPECT_TRUE(IsByteImage(Bytes({84, 84, 4})));
  EXPECT_FALSE(IsByteImage(Bytes({9, 84, 4})));
  EXPECT_FALSE(IsByteImage(Bytes({84, 9})));
  EXPECT_FALSE(IsByteImage(Bytes({3, 84, 84}))) << "channels come last";
  EXPECT_FALSE(IsByteImage(*Space::Box(0, 1, {84, 84, 4})));
}

TEST(ImageTest, OnlyBytesOf0To255AreTakenForAnImage) {
  EXPECT_TRUE(IsImage(Bytes({10, 10})));
  EXPECT_FALSE(IsImage(Bytes({9, 10}))) << "too small";
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{0, 1}, {0, 254}, {1, 255}}) {
    const Space grid = *Space::Box(low, high, {12, 12, 2}, tensor::DType::kUint8);
    EXPECT_TRUE(IsByteImage(grid));
    EXPECT_FALSE(IsImage(grid)) << grid.ToString();
  }
}

}  // namespace
}  // namespace troupe::space
