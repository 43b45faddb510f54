#include "lib/render/half_blocks.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace troupe::render {
namespace {

using Pixel = std::array<int, 3>;

Pixel MeanOf(const Picture& picture, int left, int top, int scale) {
  Pixel sum{};
  for (int y = top; y < top + scale; ++y) {
    for (int x = left; x < left + scale; ++x) {
      for (size_t c = 0; c < 3; ++c) {
        sum[c] +=
            picture.rgb[3 * (static_cast<size_t>(y) * static_cast<size_t>(picture.width) + static_cast<size_t>(x)) + c];
      }
    }
  }
  for (int& value : sum) value /= scale * scale;
  return sum;
}

/// The parameters of an escape sequence. Of 256 colors 216 are a cube of six levels.
std::string ColorText(const Pixel& pixel, int colors) {
  if (colors != 256) return absl::StrCat("2;", pixel[0], ";", pixel[1], ";", pixel[2]);
  const auto level = [](int value) { return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40; };
  return absl::StrCat("5;", 16 + 36 * level(pixel[0]) + 6 * level(pixel[1]) + level(pixel[2]));
}

}  // namespace

std::vector<std::string> HalfBlocks(const Picture& picture, int scale, int colors) {
  std::vector<std::string> lines;
  for (int top = 0; top + 2 * scale <= picture.height; top += 2 * scale) {
    std::string line, before;
    for (int left = 0; left + scale <= picture.width; left += scale) {
      const std::string color = absl::StrCat("\x1b[38;", ColorText(MeanOf(picture, left, top, scale), colors), ";48;",
                                             ColorText(MeanOf(picture, left, top + scale, scale), colors), "m");
      if (color != before) line += color;
      before = color;
      line += "▀";
    }
    lines.push_back(line + "\x1b[0m");
  }
  return lines;
}

}  // namespace troupe::render
