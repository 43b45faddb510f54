#include "lib/render/raster_canvas.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lib/base/check.h"
#include <agg2/agg_conv_stroke.h>
#include <agg2/agg_ellipse.h>
#include <agg2/agg_embedded_raster_fonts.h>
#include <agg2/agg_glyph_raster_bin.h>
#include <agg2/agg_path_storage.h>
#include <agg2/agg_pixfmt_rgb.h>
#include <agg2/agg_rasterizer_scanline_aa.h>
#include <agg2/agg_renderer_base.h>
#include <agg2/agg_renderer_raster_text.h>
#include <agg2/agg_renderer_scanline.h>
#include <agg2/agg_rendering_buffer.h>
#include <agg2/agg_scanline_u.h>

namespace troupe::render {
namespace {

using Renderer = agg::renderer_base<agg::pixfmt_rgb24>;
using Glyphs = agg::glyph_raster_bin<agg::rgba8>;

/// What is further away than that, in pixels, is outside of every picture; the rasterizer's coordinates end not much
/// later.
constexpr double kFar = 1e6;
constexpr size_t kMostLetters = RasterCanvas::kMostPixels;  // of a line: no letter is narrower than a pixel

/// The font has these letters alone, and AGG would read beyond it for others.
std::string Printable(std::string_view text) {
  std::string printable(text.substr(0, kMostLetters));
  for (char& letter : printable) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return printable;
}

agg::rgba8 ColorOf(env::Color color) { return {color.red, color.green, color.blue, color.alpha}; }

}  // namespace

struct RasterCanvas::Surface {
  Surface(int width, int height)
      : pixels(static_cast<size_t>(width) * static_cast<size_t>(height) * 3),
        buffer(pixels.data(), static_cast<unsigned>(width), static_cast<unsigned>(height), width * 3),
        format(buffer),
        renderer(format),
        glyphs(agg::verdana12) {}

  template <typename Path>
  void Fill(Path& path, env::Color color) {
    rasterizer.reset();
    rasterizer.add_path(path);
    agg::render_scanlines_aa_solid(rasterizer, scanline, renderer, ColorOf(color));
  }
  double WidthOf(std::string_view text) { return glyphs.width(Printable(text).c_str()); }

  void Write(double x, double y, std::string_view text, env::Color color) {
    agg::renderer_raster_htext_solid<Renderer, Glyphs> writer(renderer, glyphs);
    writer.color(ColorOf(color));
    writer.render_text(x, y, Printable(text).c_str(), /*flip=*/true);
  }

  std::vector<uint8_t> pixels;
  agg::rendering_buffer buffer;
  agg::pixfmt_rgb24 format;
  Renderer renderer;
  agg::rasterizer_scanline_aa<> rasterizer;
  agg::scanline_u8 scanline;
  Glyphs glyphs;
};

RasterCanvas::RasterCanvas(int width, int height, int world_height)
    : width_(width), height_(height), world_height_(world_height) {
  TROUPE_CHECK(width > 0 && width <= kMostPixels && height > 0 && height <= kMostPixels);
  TROUPE_CHECK(world_height > 0 && world_height <= height);
  surface_ = std::make_unique<Surface>(width, height);
  Clear();
}

RasterCanvas::~RasterCanvas() = default;

void RasterCanvas::Clear() {
  surface_->renderer.reset_clipping(true);
  surface_->renderer.clear(ColorOf(env::colors::kBackground));
}

void RasterCanvas::Caption(int left, int top, std::string_view text, env::Color color) {
  surface_->renderer.reset_clipping(true);
  surface_->Write(left, top + kLineHeight - 4, text, color);
}

Picture RasterCanvas::picture() const { return {width_, height_, surface_->pixels}; }

void RasterCanvas::View(double left, double bottom, double right, double top) {
  scale_ = std::min(width_ / (right - left), world_height_ / (top - bottom));
  origin_ = {width_ / 2.0 - scale_ * (left + right) / 2, world_height_ / 2.0 + scale_ * (bottom + top) / 2};
  surface_->renderer.clip_box(0, 0, width_ - 1, world_height_ - 1);
}

env::Point RasterCanvas::PixelOf(env::Point point) const {
  return {origin_.x + scale_ * point.x, origin_.y - scale_ * point.y};
}

bool RasterCanvas::IsDrawable(env::Point point) const {
  const env::Point pixel = PixelOf(point);
  return std::abs(pixel.x) < kFar && std::abs(pixel.y) < kFar;  // false for NaN
}

void RasterCanvas::Circle(env::Point center, double radius, env::Color color) {
  const double pixels = scale_ * radius;
  if (!IsDrawable(center) || !(pixels > 0 && pixels < kFar)) return;
  const env::Point at = PixelOf(center);
  agg::ellipse ellipse(at.x, at.y, pixels, pixels, static_cast<unsigned>(std::clamp(pixels * 4, 24.0, 360.0)));
  surface_->Fill(ellipse, color);
}

void RasterCanvas::Line(env::Point from, env::Point to, double width, env::Color color) {
  const double pixels = scale_ * width;
  if (!IsDrawable(from) || !IsDrawable(to) || !(pixels > 0 && pixels < kFar)) return;
  agg::path_storage path;
  path.move_to(PixelOf(from).x, PixelOf(from).y);
  path.line_to(PixelOf(to).x, PixelOf(to).y);
  agg::conv_stroke<agg::path_storage> stroke(path);
  stroke.width(pixels);
  stroke.line_cap(agg::round_cap);
  surface_->Fill(stroke, color);
}

void RasterCanvas::Polygon(absl::Span<const env::Point> corners, env::Color color) {
  if (corners.size() < 3) return;
  agg::path_storage path;
  for (const env::Point& corner : corners) {
    if (!IsDrawable(corner)) return;
    const env::Point at = PixelOf(corner);
    if (&corner == corners.data()) {
      path.move_to(at.x, at.y);
    } else {
      path.line_to(at.x, at.y);
    }
  }
  path.close_polygon();
  surface_->Fill(path, color);
}

void RasterCanvas::Text(env::Point at, std::string_view text, env::Color color) {
  if (!IsDrawable(at)) return;
  env::Point pixel = PixelOf(at);
  const double room = width_ - kTextMargin - surface_->WidthOf(text);
  if (pixel.x >= 0 && pixel.x < width_) pixel.x = std::max<double>(kTextMargin, std::min(pixel.x, room));
  surface_->Write(pixel.x, pixel.y, text, color);
}

void RasterCanvas::Image(env::Point low, env::Point high, int width, int height, absl::Span<const uint8_t> rgb) {
  if (width < 1 || height < 1 || rgb.size() != static_cast<size_t>(width) * static_cast<size_t>(height) * 3) return;
  if (!IsDrawable(low) || !IsDrawable(high)) return;
  const env::Point first = PixelOf({low.x, high.y});
  const env::Point last = PixelOf({high.x, low.y});
  const double across = width / (last.x - first.x);  // of its pixels, for one of ours
  const double down = height / (last.y - first.y);
  if (!(across > 0) || !(down > 0)) return;
  // Those of its pixels, at least one, that lie under pixel `at` of ours.
  const auto under = [](int at, double begin, double step, int size) {
    const int from = std::clamp(static_cast<int>((at - begin) * step), 0, size - 1);
    return std::pair(from, std::clamp(static_cast<int>((at + 1 - begin) * step), from + 1, size));
  };
  const int left = std::max(0, static_cast<int>(std::lround(first.x)));
  const int right = std::min(width_, static_cast<int>(std::lround(last.x)));
  const int bottom = std::min(world_height_, static_cast<int>(std::lround(last.y)));
  for (int y = std::max(0, static_cast<int>(std::lround(first.y))); y < bottom; ++y) {
    const auto [top_row, end_row] = under(y, first.y, down, height);
    for (int x = left; x < right; ++x) {
      const auto [from, end] = under(x, first.x, across, width);
      int64_t sums[3] = {0, 0, 0};
      for (int row = top_row; row < end_row; ++row) {
        const uint8_t* pixel = rgb.data() + (static_cast<size_t>(row) * static_cast<size_t>(width) + from) * 3;
        for (int column = from; column < end; ++column, pixel += 3) {
          for (int color = 0; color < 3; ++color) sums[color] += pixel[color];
        }
      }
      const int64_t count = int64_t{end_row - top_row} * (end - from);
      uint8_t* const to =
          surface_->pixels.data() + (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3;
      for (int color = 0; color < 3; ++color) to[color] = static_cast<uint8_t>((sums[color] + count / 2) / count);
    }
  }
}

}  // namespace troupe::render
