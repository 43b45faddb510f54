#include "lib/render/text_canvas.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "lib/base/check.h"

namespace troupe::render {
namespace {

constexpr char kRamp[] = " .:-=+*#%@";
constexpr int kMostCells = 1000;

double LumaOf(int red, int green, int blue) { return (0.299 * red + 0.587 * green + 0.114 * blue) / 255; }

char MarkOf(env::Color color) {
  color.alpha = 255;
  const auto* const agent = std::find(std::begin(env::colors::kAgents), std::end(env::colors::kAgents), color);
  if (agent != std::end(env::colors::kAgents)) {
    return static_cast<char>('0' + std::distance(std::begin(env::colors::kAgents), agent));
  }
  if (color == env::colors::kAdversary) return 'x';
  if (color == env::colors::kLandmark) return 'o';
  const double luma = LumaOf(color.red, color.green, color.blue);
  return luma > 0.8 ? ' ' : luma < 0.25 ? '#' : '*';
}

bool IsFaint(env::Color color) { return color.alpha < 128; }
bool IsFinite(env::Point point) { return std::isfinite(point.x) && std::isfinite(point.y); }

}  // namespace

TextCanvas::TextCanvas(int columns, int rows) : columns_(columns), rows_(rows) {
  TROUPE_CHECK(columns > 0 && columns <= kMostCells && rows > 0 && rows <= kMostCells);
  Clear();
}

void TextCanvas::Clear() {
  lines_.assign(static_cast<size_t>(rows_), std::string(static_cast<size_t>(columns_), ' '));
  left_ = top_ = 0;
  cell_ = 1;
}

std::vector<std::string> TextCanvas::Lines() const {
  std::vector<std::string> lines = lines_;
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

void TextCanvas::View(double left, double bottom, double right, double top) {
  cell_ = std::max((right - left) / columns_, (top - bottom) / (2 * rows_));
  left_ = (left + right) / 2 - cell_ * columns_ / 2;
  top_ = (top + bottom) / 2 + cell_ * rows_;
}

void TextCanvas::Put(double column, double row, char mark, bool faint) {
  if (!(column >= 0 && column < columns_ && row >= 0 && row < rows_)) return;
  char& cell = lines_[static_cast<size_t>(row)][static_cast<size_t>(column)];
  if (!faint) {
    cell = mark;
  } else if (cell == ' ') {
    cell = '.';
  }
}

template <typename Fill>
void TextCanvas::ForEachCell(env::Point low, env::Point high, Fill fill) {
  if (!IsFinite(low) || !IsFinite(high)) return;
  const auto cell = [](double place, int most) {
    return static_cast<int>(std::clamp(std::floor(place), 0.0, most - 1.0));
  };
  for (int row = cell(RowOf(high.y), rows_); row <= cell(RowOf(low.y), rows_); ++row) {
    for (int column = cell(ColumnOf(low.x), columns_); column <= cell(ColumnOf(high.x), columns_); ++column) {
      fill(column, row, env::Point{left_ + (column + 0.5) * cell_, top_ - (row + 0.5) * 2 * cell_});
    }
  }
}

void TextCanvas::Circle(env::Point center, double radius, env::Color color) {
  if (!std::isfinite(radius) || radius <= 0) return;
  const char mark = MarkOf(color);
  const bool faint = IsFaint(color);
  ForEachCell({center.x - radius, center.y - radius}, {center.x + radius, center.y + radius},
              [&](int column, int row, env::Point middle) {
                // Not std::hypot, which glibc 2.34 has in another version only.
                const double x = middle.x - center.x, y = middle.y - center.y;
                if (x * x + y * y <= radius * radius) Put(column, row, mark, faint);
              });
  if (IsFinite(center)) Put(ColumnOf(center.x), RowOf(center.y), mark, faint);  // however small it is
}

void TextCanvas::Line(env::Point from, env::Point to, double width, env::Color color) {
  if (!IsFinite(from) || !IsFinite(to) || !(width > 0)) return;
  const double columns = std::abs(ColumnOf(to.x) - ColumnOf(from.x)), rows = std::abs(RowOf(to.y) - RowOf(from.y));
  const double most = 4.0 * (columns_ + rows_);
  const int steps = static_cast<int>(std::min(std::ceil(2 * std::max(columns, rows)), most)) + 1;
  for (int i = 0; i <= steps; ++i) {
    const double share = static_cast<double>(i) / steps;
    Put(ColumnOf(from.x + share * (to.x - from.x)), RowOf(from.y + share * (to.y - from.y)), MarkOf(color),
        IsFaint(color));
  }
}

void TextCanvas::Polygon(absl::Span<const env::Point> corners, env::Color color) {
  if (corners.size() < 3 || !std::all_of(corners.begin(), corners.end(), IsFinite)) return;
  env::Point low = corners[0], high = corners[0];
  for (const env::Point& corner : corners) {
    low = {std::min(low.x, corner.x), std::min(low.y, corner.y)};
    high = {std::max(high.x, corner.x), std::max(high.y, corner.y)};
  }
  bool any = false;
  ForEachCell(low, high, [&](int column, int row, env::Point middle) {
    bool inside = false;
    for (size_t i = 0, j = corners.size() - 1; i < corners.size(); j = i++) {
      const env::Point a = corners[i], b = corners[j];
      if ((a.y > middle.y) == (b.y > middle.y)) continue;
      if (middle.x < (b.x - a.x) * (middle.y - a.y) / (b.y - a.y) + a.x) inside = !inside;
    }
    if (inside) Put(column, row, MarkOf(color), IsFaint(color));
    any = any || inside;
  });
  if (any) return;
  // However thin it is: it lies between the middles of cells.
  const bool is_flat = high.x - low.x > high.y - low.y;
  if ((is_flat ? high.y - low.y : high.x - low.x) > 2 * cell_) return;
  const env::Point middle{(low.x + high.x) / 2, (low.y + high.y) / 2};
  if (is_flat) {
    Line({low.x, middle.y}, {high.x, middle.y}, cell_, color);
  } else {
    Line({middle.x, low.y}, {middle.x, high.y}, cell_, color);
  }
}

void TextCanvas::Text(env::Point at, std::string_view text, env::Color /*color*/) {
  if (!IsFinite(at)) return;
  const double row = std::floor(RowOf(at.y));
  double column = std::floor(std::min(ColumnOf(at.x), columns_ - static_cast<double>(text.size())));
  column = std::max(column, 0.0);
  for (const char letter : text.substr(0, static_cast<size_t>(columns_))) {
    Put(column++, row, letter < ' ' || letter > '~' ? '?' : letter, /*faint=*/false);
  }
}

void TextCanvas::Image(env::Point low, env::Point high, int width, int height, absl::Span<const uint8_t> rgb) {
  if (width < 1 || height < 1 || rgb.size() != 3 * static_cast<size_t>(width) * static_cast<size_t>(height)) return;
  if (!(high.x > low.x && high.y > low.y)) return;
  ForEachCell(low, high, [&](int column, int row, env::Point middle) {
    const double x = (middle.x - low.x) / (high.x - low.x), y = (high.y - middle.y) / (high.y - low.y);
    if (!(x >= 0 && x < 1 && y >= 0 && y < 1)) return;
    const size_t pixel = static_cast<size_t>(y * height) * static_cast<size_t>(width) + static_cast<size_t>(x * width);
    const double luma = LumaOf(rgb[3 * pixel], rgb[3 * pixel + 1], rgb[3 * pixel + 2]);
    Put(column, row, kRamp[static_cast<size_t>(luma * (sizeof(kRamp) - 2))], /*faint=*/false);
  });
}

}  // namespace troupe::render
