#include "lib/cli/watch_layout.h"

#include <algorithm>

namespace troupe::cli {
namespace {

constexpr int kLeastPictureRows = 4, kMostPictureRows = 80;

}  // namespace

WatchLayout LayOutWatch(int screen_rows, size_t agents) {
  WatchLayout layout;
  const int lines = std::max(1, screen_rows - 1);
  int left = std::max(0, lines - kLeastPictureRows);  // for captions
  layout.has_title = left > 0;
  if (layout.has_title) --left;
  layout.agents_told = std::min({agents, kMostAgentsTold, static_cast<size_t>(left)});
  if (layout.agents_told < agents && left > 0) {
    layout.tells_rest = true;
    if (layout.agents_told == static_cast<size_t>(left)) --layout.agents_told;
  }
  const size_t captions = layout.agents_told + (layout.has_title ? 1 : 0) + (layout.tells_rest ? 1 : 0);
  layout.picture_rows = std::min(lines - static_cast<int>(captions), kMostPictureRows);
  return layout;
}

}  // namespace troupe::cli
