#pragma once

#include <string>
#include <vector>

#include "lib/env/canvas.h"

namespace troupe::render {

/// A canvas of characters, half as wide as high each. Shapes are marks by their color: agents' digits by slot, x an
/// adversary, o a landmark, # what is dark, * another color; what is bright is blank, and what is rather transparent
/// shows only where nothing else is, as dots. Not thread-safe.
class TextCanvas final : public env::Canvas {
 public:
  /// 1 to 1000 of each (checked).
  TextCanvas(int columns, int rows);

  /// Blank, and of the world that View says next.
  void Clear();
  /// From the top; without blanks at their ends.
  std::vector<std::string> Lines() const;

  void View(double left, double bottom, double right, double top) override;
  void Circle(env::Point center, double radius, env::Color color) override;
  void Line(env::Point from, env::Point to, double width, env::Color color) override;
  void Polygon(absl::Span<const env::Point> corners, env::Color color) override;
  void Text(env::Point at, std::string_view text, env::Color color) override;
  void Image(env::Point low, env::Point high, int width, int height, absl::Span<const uint8_t> rgb) override;

 private:
  /// Calls `fill` with column, row and the world's point in the middle of each cell from `low` to `high`.
  template <typename Fill>
  void ForEachCell(env::Point low, env::Point high, Fill fill);
  double ColumnOf(double x) const { return (x - left_) / cell_; }
  double RowOf(double y) const { return (top_ - y) / (2 * cell_); }
  void Put(double column, double row, char mark, bool faint);

  const int columns_;
  const int rows_;
  double left_ = 0, top_ = 0;
  double cell_ = 1;  ///< units of the world that a character is wide
  std::vector<std::string> lines_;
};

}  // namespace troupe::render
