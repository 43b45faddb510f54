#include "lib/render/raster_canvas.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace troupe::render {
namespace {

using env::Color;
using env::Point;

constexpr Color kRed{255, 0, 0};
constexpr Color kBlue{0, 0, 255};

Color At(const RasterCanvas& canvas, int x, int y) {
  const Picture picture = canvas.picture();
  const uint8_t* const pixel = picture.rgb.data() + 3 * (y * picture.width + x);
  return {pixel[0], pixel[1], pixel[2]};
}

int64_t Inked(const RasterCanvas& canvas) {
  int64_t count = 0;
  const Picture picture = canvas.picture();
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) count += At(canvas, x, y) == env::colors::kBackground ? 0 : 1;
  }
  return count;
}

TEST(RasterCanvasTest, TheWorldStandsUprightAndKeepsItsProportions) {
  RasterCanvas canvas(200, 100, 100);
  canvas.View(-1, -1, 1, 1);  // 50 pixels a unit, in the middle of the width
  canvas.Circle({0.5, 0.5}, 0.2, kRed);
  canvas.Rectangle({-1, -1}, {-0.5, -0.5}, kBlue);
  EXPECT_EQ(At(canvas, 125, 25), kRed);
  EXPECT_EQ(At(canvas, 125, 75), env::colors::kBackground);
  EXPECT_EQ(At(canvas, 62, 88), kBlue);
  EXPECT_EQ(At(canvas, 20, 50), env::colors::kBackground);
  EXPECT_NEAR(static_cast<double>(Inked(canvas)), 3.14159 * 10 * 10 + 25 * 25, 80);
}

TEST(RasterCanvasTest, LinesHaveTheirWidth) {
  RasterCanvas canvas(100, 100, 100);
  canvas.View(0, 0, 10, 10);
  canvas.Line({2, 5}, {8, 5}, 1, kRed);
  EXPECT_EQ(At(canvas, 50, 50), kRed);
  EXPECT_EQ(At(canvas, 50, 47), kRed);
  EXPECT_EQ(At(canvas, 50, 42), env::colors::kBackground);
  EXPECT_EQ(At(canvas, 90, 50), env::colors::kBackground);
}

TEST(RasterCanvasTest, NothingOfTheWorldCoversTheCaptions) {
  RasterCanvas canvas(50, 80, 50);
  canvas.View(0, 0, 1, 1);
  canvas.Rectangle({-5, -5}, {5, 5}, kRed);
  EXPECT_EQ(At(canvas, 25, 49), kRed);
  EXPECT_EQ(At(canvas, 25, 50), env::colors::kBackground);
  canvas.Caption(2, 52, "step 3", env::colors::kInk);
  EXPECT_EQ(Inked(canvas) > 50 * 50 + 20, true) << "letters have pixels";
  canvas.Clear();
  EXPECT_EQ(Inked(canvas), 0);
}

TEST(RasterCanvasTest, WhatHasNoPlaceDrawsNothing) {
  RasterCanvas canvas(50, 50, 50);
  canvas.View(0, 0, 1, 1);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double bad : {kNan, kInfinity, -kInfinity, 1e300}) {
    canvas.Circle({bad, 0.5}, 0.1, kRed);
    canvas.Circle({0.5, 0.5}, bad, kRed);
    canvas.Line({0, 0}, {1, bad}, 0.1, kRed);
    canvas.Line({0, 0}, {1, 1}, bad, kRed);
    canvas.Rectangle({0, 0}, {1, bad}, kRed);
    canvas.Text({bad, 0}, "text", kRed);
  }
  canvas.Circle({0.5, 0.5}, -1, kRed);
  const Point two[] = {{0, 0}, {1, 1}};
  canvas.Polygon(two, kRed);
  EXPECT_EQ(Inked(canvas), 0);
  canvas.Circle({2, 2}, 0.5, kRed);
  EXPECT_EQ(Inked(canvas), 0) << "outside of the view";
}

// A picture of 4 x 2 pixels: red, green / blue, white in quarters of two columns each.
TEST(RasterCanvasTest, APictureFillsItsPlaceAndIsShrunkByMeans) {
  const std::vector<uint8_t> quarters = {255, 0, 0,   255, 0, 0,   0,   255, 0,   0,   255, 0,  //
                                         0,   0, 255, 0,   0, 255, 255, 255, 255, 255, 255, 255};
  const auto at = [](const RasterCanvas& canvas, int x, int y) {
    const uint8_t* const pixel = canvas.picture().rgb.data() + (y * canvas.picture().width + x) * 3;
    return std::vector<int>(pixel, pixel + 3);
  };
  const auto draw = [&](RasterCanvas& canvas) {
    canvas.View(0, 0, 4, 2);
    canvas.Image({0, 0}, {4, 2}, 4, 2, quarters);
  };
  RasterCanvas large(40, 30, 20);
  draw(large);
  EXPECT_EQ(at(large, 0, 0), (std::vector<int>{255, 0, 0}));
  EXPECT_EQ(at(large, 19, 9), (std::vector<int>{255, 0, 0}));
  EXPECT_EQ(at(large, 20, 0), (std::vector<int>{0, 255, 0}));
  EXPECT_EQ(at(large, 0, 10), (std::vector<int>{0, 0, 255}));
  EXPECT_EQ(at(large, 39, 19), (std::vector<int>{255, 255, 255}));
  EXPECT_NE(at(large, 39, 20), (std::vector<int>{255, 255, 255})) << "below is for captions";
  RasterCanvas small(1, 1, 1);
  small.View(0, 0, 4, 4);
  small.Image({0, 0}, {4, 4}, 4, 2, quarters);
  EXPECT_EQ(at(small, 0, 0), (std::vector<int>{128, 128, 128})) << "the mean of all";
  RasterCanvas two(2, 1, 1);
  draw(two);
  EXPECT_EQ(at(two, 0, 0), (std::vector<int>{128, 0, 128}));
  EXPECT_EQ(at(two, 1, 0), (std::vector<int>{128, 255, 128}));
  // Partly outside of the view.
  RasterCanvas part(10, 10, 10);
  part.View(0, 0, 1, 1);
  part.Image({-1, -1}, {1, 1}, 4, 2, quarters);
  EXPECT_EQ(at(part, 0, 0), (std::vector<int>{0, 255, 0})) << "its upper right quarter";
  EXPECT_EQ(at(part, 9, 9), (std::vector<int>{0, 255, 0}));
}

TEST(RasterCanvasTest, APictureThatIsNoneDrawsNothing) {
  RasterCanvas canvas(10, 10, 10);
  canvas.View(0, 0, 1, 1);
  const std::vector<uint8_t> bytes(12, 0);
  canvas.Image({0, 0}, {1, 1}, 2, 3, bytes);
  canvas.Image({0, 0}, {1, 1}, 0, 2, {});
  canvas.Image({0, 0}, {1, 1}, -2, -2, bytes);
  canvas.Image({1, 1}, {0, 0}, 2, 2, bytes);
  canvas.Image({0, 0}, {std::numeric_limits<double>::quiet_NaN(), 1}, 2, 2, bytes);
  EXPECT_EQ(Inked(canvas), 0);
}

// Names come from environments and from other people's runs.
TEST(RasterCanvasTest, LettersThatTheFontDoesNotHaveAreQuestionMarks) {
  RasterCanvas expected(400, 40, 40), canvas(400, 40, 40);
  expected.Caption(0, 0, "a??b??????", env::colors::kInk);
  canvas.Caption(0, 0,
                 "a\xc3\xa4"
                 "b\x01\x1f\x7f\x80\xff\n",
                 env::colors::kInk);
  EXPECT_EQ(canvas.picture().rgb, expected.picture().rgb);
  expected.Text({5, 5}, "?", env::colors::kInk);
  canvas.Text({5, 5}, std::string_view("\0", 1), env::colors::kInk);
  EXPECT_EQ(canvas.picture().rgb, expected.picture().rgb) << "a zero, too";
  canvas.Caption(0, 20, std::string(1 << 20, 'w'), env::colors::kInk);
}

TEST(RasterCanvasTest, TextOfAPointInThePictureIsWhole) {
  RasterCanvas inside(100, 40, 40);
  inside.View(0, 0, 100, 40);
  inside.Text({30, 20}, "agent_10", kRed);
  for (const double x : {0.0, 60.0, 99.0}) {
    RasterCanvas canvas(100, 40, 40);
    canvas.View(0, 0, 100, 40);
    canvas.Text({x, 20}, "agent_10", kRed);
    EXPECT_EQ(Inked(canvas), Inked(inside)) << x;
  }
  RasterCanvas canvas(100, 40, 40);
  canvas.View(0, 0, 100, 40);
  canvas.Text({101, 20}, "agent_10", kRed);
  EXPECT_EQ(Inked(canvas), 0) << "what is outside of the view has no name in it";
  canvas.Text({50, 20}, std::string(100, 'w'), kRed);
  EXPECT_GT(Inked(canvas), 0) << "of what does not fit, the begin";
}

TEST(RasterCanvasDeathTest, SidesAreChecked) {
  EXPECT_DEATH(RasterCanvas(0, 10, 10), "CHECK failed");
  EXPECT_DEATH(RasterCanvas(10, RasterCanvas::kMostPixels + 1, 10), "CHECK failed");
  EXPECT_DEATH(RasterCanvas(10, 10, 11), "CHECK failed");
}

}  // namespace
}  // namespace troupe::render
