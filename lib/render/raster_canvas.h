#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "lib/env/canvas.h"

namespace troupe::render {

/// Pixels of a picture, made by nobody but their canvas: [height, width, 3] bytes, red first, the top row first.
struct Picture {
  int width = 0;
  int height = 0;
  absl::Span<const uint8_t> rgb;
};

/// A canvas of pixels, with smooth edges (Anti-Grain Geometry). The world is drawn into its upper `world_height` rows;
/// what is below is for captions. Not thread-safe.
class RasterCanvas final : public env::Canvas {
 public:
  static constexpr int kLineHeight = 16;    ///< pixels of a line of text
  static constexpr int kMostPixels = 4096;  ///< of a side
  static constexpr int kTextMargin = 2;     ///< pixels between Text and a side

  /// Sides of 1 to kMostPixels; 0 < world_height <= height (checked).
  RasterCanvas(int width, int height, int world_height);
  ~RasterCanvas() override;

  /// A picture of the background alone, of the world that View says next.
  void Clear();
  /// A line of text below the world or above it, by the pixel of its upper left corner. Letters that are not printable
  /// ASCII are question marks, here and in Text.
  void Caption(int left, int top, std::string_view text, env::Color color);
  /// Valid until something is drawn.
  Picture picture() const;

  void View(double left, double bottom, double right, double top) override;
  void Circle(env::Point center, double radius, env::Color color) override;
  void Line(env::Point from, env::Point to, double width, env::Color color) override;
  void Polygon(absl::Span<const env::Point> corners, env::Color color) override;
  /// Where it would leave the picture at a side, it begins as far left or right as it fits.
  void Text(env::Point at, std::string_view text, env::Color color) override;
  /// A pixel is the mean of those that lie under it.
  void Image(env::Point low, env::Point high, int width, int height, absl::Span<const uint8_t> rgb) override;

 private:
  struct Surface;
  env::Point PixelOf(env::Point point) const;
  bool IsDrawable(env::Point point) const;

  const int width_;
  const int height_;
  const int world_height_;
  double scale_ = 1;         ///< pixels of a unit
  env::Point origin_{0, 0};  ///< of the world, in pixels
  std::unique_ptr<Surface> surface_;
};

}  // namespace troupe::render
