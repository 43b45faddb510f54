#include "lib/env/plugin_canvas.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/checked_env.h"
#include "lib/env/plugin_env.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ColorText(Color color) {
  return absl::StrCat(color.red, ",", color.green, ",", color.blue, ",", color.alpha);
}

/// Writes down what is drawn.
class Notes final : public Canvas {
 public:
  void View(double left, double bottom, double right, double top) override {
    drawn.push_back(absl::StrCat("view ", left, " ", bottom, " ", right, " ", top));
  }
  void Circle(Point center, double radius, Color color) override {
    drawn.push_back(absl::StrCat("circle ", center.x, " ", center.y, " ", radius, " ", ColorText(color)));
  }
  void Line(Point from, Point to, double width, Color color) override {
    drawn.push_back(
        absl::StrCat("line ", from.x, " ", from.y, " ", to.x, " ", to.y, " ", width, " ", ColorText(color)));
  }
  void Polygon(absl::Span<const Point> corners, Color color) override {
    std::string text = "polygon";
    for (const Point& corner : corners) absl::StrAppend(&text, " ", corner.x, " ", corner.y);
    drawn.push_back(absl::StrCat(text, " ", ColorText(color)));
  }
  void Text(Point at, std::string_view text, Color color) override {
    drawn.push_back(absl::StrCat("text ", at.x, " ", at.y, " ", std::string(text), " ", ColorText(color)));
  }
  void Image(Point low, Point high, int width, int height, absl::Span<const uint8_t> rgb) override {
    drawn.push_back(absl::StrCat(
        "image ", low.x, " ", low.y, " ", high.x, " ", high.y, " ", width, "x", height, " ",
        absl::StrJoin(rgb, ",", [](std::string* out, uint8_t byte) { absl::StrAppend(out, static_cast<int>(byte)); })));
  }

  std::vector<std::string> drawn;
};

std::unique_ptr<MultiAgentEnv> MakeOf(const std::string& library, const std::string& name, const std::string& text) {
  const auto plugin = EnvPlugin::Load(std::string(TROUPE_PLUGINS_DIR) + "/libtroupe_" + library + "_plugin.so");
  EXPECT_TRUE(plugin.ok()) << plugin.status();
  const EnvArgs args = text.empty() ? EnvArgs(ArgMap{}) : EnvArgs(ArgMap{{"text", text}});
  auto env = (*plugin)->Make(name, args);
  EXPECT_TRUE(env.ok()) << env.status();
  return *std::move(env);
}

absl::Status DrawAtFirst(const std::string& library, const std::string& name, const std::string& text, Notes* notes) {
  CheckedEnv env(MakeOf(library, name, text));
  SlotBuffers buffers(env.spec(), 1);
  EXPECT_TRUE(env.Reset({}, buffers.BeginStep(0)).ok());
  return env.Draw(*notes);
}

TEST(PluginCanvasTest, WhatAPluginDrawsComesThrough) {
  Notes notes;
  ASSERT_TRUE(DrawAtFirst("test", "whole", "", &notes).ok());
  EXPECT_THAT(notes.drawn, ElementsAre("view -8 -8 8 8", "circle 1 2 3 234,142,45,255", "line 0 0 1 0 0.5 1,2,3,4",
                                       "polygon 0 0 2 0 2 1 0 1 9,8,7,255", "text 1 1 step 0 0,0,0,255",
                                       "image 0 0 2 1 2x1 1,2,3,4,5,6"));
}

TEST(PluginCanvasTest, ALibraryOfBeforeAndAnEnvironmentWithoutPicturesSaySo) {
  Notes notes;
  EXPECT_EQ(DrawAtFirst("undrawn", "still", "", &notes).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(DrawAtFirst("test", "wrong", "", &notes).code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(notes.drawn.empty());
}

TEST(PluginCanvasTest, WhatGoesWrongIsAnErrorOfTheDraw) {
  Notes notes;
  EXPECT_EQ(DrawAtFirst("test", "whole", "throws", &notes), absl::InternalError("the pencil broke"));
  EXPECT_THAT(std::string(DrawAtFirst("test", "whole", "no view", &notes).message()),
              HasSubstr("a shape came before the view"));
  Notes many;
  EXPECT_EQ(DrawAtFirst("test", "whole", "many", &many), absl::InternalError("draw: more shapes than 100000"));
  EXPECT_EQ(many.drawn.size(), 1u + TROUPE_CANVAS_SHAPES);
}

/// What Finish says after `draw`.
template <typename DrawWith>
std::string Refused(DrawWith draw) {
  Notes notes;
  PluginCanvas canvas(&notes);
  draw(canvas.functions());
  return std::string(canvas.Finish().message());
}

TEST(PluginCanvasTest, LimitsAndNullsAreRefused) {
  const auto with_view = [](auto draw) {
    return Refused([&](const TroupeCanvas& out) {
      out.view(out.context, 0, 0, 1, 1);
      draw(out);
    });
  };
  EXPECT_THAT(Refused([](const TroupeCanvas&) {}), HasSubstr("got no view"));
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), HUGE_VAL}) {
    EXPECT_THAT(Refused([&](const TroupeCanvas& out) { out.view(out.context, 0, 0, wrong, 1); }), HasSubstr("view"));
  }
  EXPECT_THAT(with_view([](const TroupeCanvas& out) { out.view(out.context, 0, 0, 1, 1); }), HasSubstr("expected one"));
  const std::string longest(TROUPE_CANVAS_TEXT_BYTES - 1, 'x'), longer = longest + "x";
  EXPECT_EQ(with_view([&](const TroupeCanvas& out) { out.text(out.context, 0, 0, longest.c_str(), 0); }), "");
  for (const char* const text : {longer.c_str(), static_cast<const char*>(nullptr)}) {
    EXPECT_THAT(with_view([&](const TroupeCanvas& out) { out.text(out.context, 0, 0, text, 0); }), HasSubstr("1023"));
  }
  const std::vector<double> corners(2 * (TROUPE_CANVAS_CORNERS + 1));
  EXPECT_EQ(with_view([&](const TroupeCanvas& out) {
              out.polygon(out.context, corners.data(), TROUPE_CANVAS_CORNERS, 0);
              out.polygon(out.context, nullptr, 0, 0);
            }),
            "");
  EXPECT_THAT(with_view([&](const TroupeCanvas& out) {
                out.polygon(out.context, corners.data(), TROUPE_CANVAS_CORNERS + 1, 0);
              }),
              HasSubstr("65537 corners"));
  EXPECT_THAT(with_view([](const TroupeCanvas& out) { out.polygon(out.context, nullptr, 3, 0); }),
              HasSubstr("not there"));
  const uint8_t pixel[3] = {};
  for (const uint32_t side : {0u, TROUPE_CANVAS_IMAGE_SIDE + 1}) {
    EXPECT_THAT(with_view([&](const TroupeCanvas& out) { out.image(out.context, 0, 0, 1, 1, side, 1, pixel); }),
                HasSubstr("expected sides of 1 to 2048"));
  }
  EXPECT_THAT(with_view([](const TroupeCanvas& out) { out.image(out.context, 0, 0, 1, 1, 1, 1, nullptr); }),
              HasSubstr("without bytes"));
}

}  // namespace
}  // namespace troupe::env
