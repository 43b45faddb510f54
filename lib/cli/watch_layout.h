#pragma once

#include <cstddef>

namespace troupe::cli {

/// How `watch` shares the rows of a terminal out.
struct WatchLayout {
  int picture_rows = 1;     ///< at most
  bool has_title = false;   ///< a line on environment, weights and episode
  size_t agents_told = 0;   ///< a line each
  bool tells_rest = false;  ///< a line on how many more there are
};
inline constexpr size_t kMostAgentsTold = 6;

/// Never more than screen_rows - 1 lines, as the cursor stands below them, but for a picture of one row: what is longer
/// than the screen cannot be drawn over. Where rows do not suffice captions give way before the picture.
WatchLayout LayOutWatch(int screen_rows, size_t agents);

}  // namespace troupe::cli
