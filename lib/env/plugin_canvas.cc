#include "lib/env/plugin_canvas.h"

#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::env {
namespace {

Color ColorOf(uint32_t word) {
  return {static_cast<uint8_t>(word >> 24), static_cast<uint8_t>(word >> 16), static_cast<uint8_t>(word >> 8),
          static_cast<uint8_t>(word)};
}

}  // namespace

PluginCanvas::PluginCanvas(Canvas* canvas)
    : canvas_(*canvas),
      functions_{.size = sizeof(TroupeCanvas),
                 .context = this,
                 .view = &View,
                 .circle = &Circle,
                 .line = &Line,
                 .polygon = &Polygon,
                 .text = &Text,
                 .image = &Image} {}

absl::Status PluginCanvas::Finish() const {
  if (!refused_.ok() || has_view_) return refused_;
  return absl::InternalError("draw: got no view, expected one before anything is drawn");
}

void PluginCanvas::Refuse(absl::Status why) {
  if (refused_.ok()) refused_ = std::move(why);
}

bool PluginCanvas::Takes() {
  if (!refused_.ok()) return false;
  if (!has_view_) Refuse(absl::InternalError("draw: a shape came before the view, expected the view first"));
  if (++shapes_ > TROUPE_CANVAS_SHAPES) {
    Refuse(absl::InternalError(absl::StrCat("draw: more shapes than ", TROUPE_CANVAS_SHAPES)));
  }
  return refused_.ok();
}

void PluginCanvas::View(void* context, double left, double bottom, double right, double top) noexcept {
  PluginCanvas& self = Self(context);
  const bool holds = std::isfinite(right - left) && std::isfinite(top - bottom) && right > left && top > bottom;
  if (!holds || self.has_view_) {
    self.Refuse(absl::InternalError(absl::StrCat("draw: view from (", left, ", ", bottom, ") to (", right, ", ", top,
                                                 "), expected one, finite, from low to high")));
    return;
  }
  self.has_view_ = true;
  self.canvas_.View(left, bottom, right, top);
}

void PluginCanvas::Circle(void* context, double x, double y, double radius, uint32_t color) noexcept {
  PluginCanvas& self = Self(context);
  if (self.Takes()) self.canvas_.Circle({x, y}, radius, ColorOf(color));
}

void PluginCanvas::Line(void* context, double from_x, double from_y, double to_x, double to_y, double width,
                        uint32_t color) noexcept {
  PluginCanvas& self = Self(context);
  if (self.Takes()) self.canvas_.Line({from_x, from_y}, {to_x, to_y}, width, ColorOf(color));
}

void PluginCanvas::Polygon(void* context, const double* corners, uint64_t num_corners, uint32_t color) noexcept {
  PluginCanvas& self = Self(context);
  if (!self.Takes()) return;
  if (num_corners > TROUPE_CANVAS_CORNERS || (corners == nullptr && num_corners > 0)) {
    self.Refuse(absl::InternalError(absl::StrCat("draw: a polygon of ", num_corners,
                                                 corners == nullptr ? " corners that are not there" : " corners",
                                                 ", expected at most ", TROUPE_CANVAS_CORNERS)));
    return;
  }
  std::vector<Point> points;
  for (uint64_t i = 0; i < num_corners; ++i) points.push_back({corners[2 * i], corners[2 * i + 1]});
  self.canvas_.Polygon(points, ColorOf(color));
}

void PluginCanvas::Text(void* context, double x, double y, const char* text, uint32_t color) noexcept {
  PluginCanvas& self = Self(context);
  if (!self.Takes()) return;
  const size_t length = text == nullptr ? TROUPE_CANVAS_TEXT_BYTES : strnlen(text, TROUPE_CANVAS_TEXT_BYTES);
  if (length == TROUPE_CANVAS_TEXT_BYTES) {
    self.Refuse(absl::InternalError(
        absl::StrCat("draw: got a text that is missing or too long, expected at most ", length - 1, " bytes")));
    return;
  }
  self.canvas_.Text({x, y}, std::string_view(text, length), ColorOf(color));
}

void PluginCanvas::Image(void* context, double left, double bottom, double right, double top, uint32_t width,
                         uint32_t height, const uint8_t* rgb) noexcept {
  PluginCanvas& self = Self(context);
  if (!self.Takes()) return;
  const auto fits = [](uint32_t side) { return side > 0 && side <= TROUPE_CANVAS_IMAGE_SIDE; };
  if (!fits(width) || !fits(height) || rgb == nullptr) {
    self.Refuse(absl::InternalError(absl::StrCat("draw: an image of ", width, "x", height,
                                                 rgb == nullptr ? " without bytes" : "", ", expected sides of 1 to ",
                                                 TROUPE_CANVAS_IMAGE_SIDE)));
    return;
  }
  self.canvas_.Image({left, bottom}, {right, top}, static_cast<int>(width), static_cast<int>(height),
                     {rgb, static_cast<size_t>(width) * height * 3});
}

}  // namespace troupe::env
