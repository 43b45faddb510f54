#pragma once

#include <string>
#include <vector>

#include "lib/render/raster_canvas.h"

namespace troupe::render {

/// A picture as lines for a terminal that has Unicode and colors, two rows of pixels a line: a half block in the color
/// of the upper one before that of the lower one. `scale` x `scale` pixels are one of those, by their mean; what is
/// left at the right and below is cut off. `colors`: 256, else all of them.
std::vector<std::string> HalfBlocks(const Picture& picture, int scale, int colors);

}  // namespace troupe::render
