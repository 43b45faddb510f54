#pragma once

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"

namespace troupe::env {

/// A color; `alpha` 255 is opaque.
struct Color {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;
  uint8_t alpha = 255;

  bool operator==(const Color& other) const = default;
};

/// Colors that environments draw with, so that pictures of different ones look alike.
namespace colors {
inline constexpr Color kBackground{250, 250, 248};
inline constexpr Color kInk{40, 44, 52};
inline constexpr Color kLandmark{120, 124, 130};
inline constexpr Color kAdversary{214, 69, 65};
/// Of agents, by slot; again from the beginning when there are more.
inline constexpr Color kAgents[] = {{52, 120, 198}, {234, 142, 45}, {66, 158, 92},
                                    {143, 98, 190}, {36, 164, 170}, {194, 88, 140}};
inline Color Agent(int64_t slot) { return kAgents[static_cast<uint64_t>(slot) % (sizeof(kAgents) / sizeof(Color))]; }
}  // namespace colors

/// A point of the world that is drawn.
struct Point {
  double x = 0;
  double y = 0;
};

/// What an environment draws its state on, in units of its own world with y upwards. What lies outside the view is cut
/// off; numbers that are not finite draw nothing. Not thread-safe.
class Canvas {
 public:
  virtual ~Canvas() = default;

  /// The part of the world that is seen, right > left and top > bottom; called before anything is drawn. It is shown
  /// whole, with its proportions.
  virtual void View(double left, double bottom, double right, double top) = 0;
  virtual void Circle(Point center, double radius, Color color) = 0;
  virtual void Line(Point from, Point to, double width, Color color) = 0;
  /// Filled, by its corners in order; fewer than three draw nothing.
  virtual void Polygon(absl::Span<const Point> corners, Color color) = 0;
  /// A line of text that begins at `at`, its baseline; its size does not follow the view. Letters that are not
  /// printable ASCII may be shown otherwise.
  virtual void Text(Point at, std::string_view text, Color color) = 0;

  /// A picture that the environment has made itself, between two corners: [height, width, 3] bytes, red first, the top
  /// row first. Nothing for sides below 1 or another number of bytes.
  virtual void Image(Point low, Point high, int width, int height, absl::Span<const uint8_t> rgb) = 0;

  /// Filled, with sides along the axes.
  void Rectangle(Point low, Point high, Color color) {
    const Point corners[] = {low, {high.x, low.y}, high, {low.x, high.y}};
    Polygon(corners, color);
  }
};

}  // namespace troupe::env
