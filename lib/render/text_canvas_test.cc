// Of text_canvas.h and half_blocks.h: pictures in a terminal.

#include "lib/render/text_canvas.h"

#include <limits>
#include <vector>

#include "lib/render/half_blocks.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::render {
namespace {

using ::testing::ElementsAre;

TEST(TextCanvasTest, ShapesAreMarksOfTheirColor) {
  TextCanvas canvas(20, 5);
  canvas.View(0, 0, 20, 10);
  canvas.Rectangle({0, 0}, {20, 10}, {255, 255, 255});
  canvas.Circle({3, 5}, 2.2, env::colors::Agent(1));
  canvas.Circle({9.5, 5}, 0.01, env::colors::kAdversary);
  canvas.Line({12, 1}, {12, 9}, 0.1, env::colors::kLandmark);
  canvas.Circle({16, 5}, 2.2, {52, 120, 198, 60});
  canvas.Circle({16, 5}, 0.1, env::colors::Agent(0));
  canvas.Text({15, 9}, "ab\x01", env::colors::kInk);
  EXPECT_THAT(canvas.Lines(), ElementsAre("            o  ab?", "  11        o  ..", " 1111    x  o ..0.",
                                          "  11        o  ..", "            o"));
}

TEST(TextCanvasTest, ProportionsStayAndWhatLiesOutsideIsCutOff) {
  TextCanvas canvas(10, 5);
  canvas.View(0, 0, 1, 10);  // high: in the middle
  canvas.Rectangle({0, 0}, {1, 10}, env::colors::kInk);
  EXPECT_THAT(canvas.Lines(), ElementsAre("    #", "    #", "    #", "    #", "    #"));
  canvas.Clear();
  canvas.View(0, 0, 10, 10);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  canvas.Circle({nan, 0}, 1, {});
  canvas.Circle({1e300, 1e300}, 1e299, {});
  canvas.Line({-1e300, 5}, {1e300, 5}, 1, {});
  canvas.Polygon({{{0, 0}, {nan, 1}, {1, 1}}}, {});
  canvas.Text({-50, 1}, "left", {});
  canvas.Text({50, 3}, "right", {});
  EXPECT_EQ(canvas.Lines()[4], "left");
  EXPECT_EQ(canvas.Lines()[3], "     right");
}

// A cart between two rows is there all the same.
TEST(TextCanvasTest, WhatIsThinIsSeenWhereverItLies) {
  TextCanvas canvas(10, 5);
  canvas.View(0, 0, 10, 10);
  canvas.Rectangle({2, 3.9}, {7.5, 4.1}, env::colors::Agent(0));
  canvas.Rectangle({8.9, 6.1}, {9.1, 9.9}, env::colors::Agent(1));
  canvas.Polygon({{{20, 3}, {30, 4}, {30, 2}}}, env::colors::Agent(2));
  EXPECT_THAT(canvas.Lines(), ElementsAre("         1", "         1", "", "  000000", ""));
}

TEST(TextCanvasTest, AnImageIsItsBrightness) {
  TextCanvas canvas(4, 1);
  canvas.View(0, 0, 4, 2);
  canvas.Image({0, 0}, {4, 2}, 2, 1, std::vector<uint8_t>{255, 255, 255, 0, 0, 0});
  EXPECT_THAT(canvas.Lines(), ElementsAre("@@"));
  canvas.Image({0, 0}, {4, 2}, 2, 1, std::vector<uint8_t>{1});
  EXPECT_THAT(canvas.Lines(), ElementsAre("@@"));
}

TEST(HalfBlocksTest, TwoRowsAreALine) {
  // 2 x 4 pixels of which 2 x 2 are one: red above blue.
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 8; ++i) {
    const std::vector<uint8_t> color = i < 4 ? std::vector<uint8_t>{255, 0, 0} : std::vector<uint8_t>{0, 0, 100};
    pixels.insert(pixels.end(), color.begin(), color.end());
  }
  EXPECT_THAT(HalfBlocks({2, 4, pixels}, 2, 1 << 24), ElementsAre("\x1b[38;2;255;0;0;48;2;0;0;100m▀\x1b[0m"));
  EXPECT_THAT(HalfBlocks({2, 4, pixels}, 2, 256), ElementsAre("\x1b[38;5;196;48;5;17m▀\x1b[0m"));
  EXPECT_THAT(HalfBlocks({2, 4, pixels}, 1, 256),
              ElementsAre("\x1b[38;5;196;48;5;196m▀▀\x1b[0m", "\x1b[38;5;17;48;5;17m▀▀\x1b[0m"));
  EXPECT_TRUE(HalfBlocks({2, 3, {pixels.data(), 18}}, 2, 256).empty()) << "what is left below is cut off";
}

}  // namespace
}  // namespace troupe::render
