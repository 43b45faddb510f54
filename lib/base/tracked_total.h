#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::base {

/// Of what callbacks track: names of a run, and of one worker process; characters of a name.
inline constexpr size_t kMaxTrackedNames = 256;
inline constexpr size_t kMaxTrackedNameBytes = 128;

/// Of one worker process and name: what is added up over workers and time stays a number. A number that is tracked is
/// itself at most kMaxTrackedSum either way.
inline constexpr double kMaxTrackedSum = 1e100;
inline constexpr int64_t kMaxTrackedEpisodes = int64_t{1} << 40;

/// A name under which a number may be tracked: 1 to kMaxTrackedNameBytes printable characters of ASCII.
inline bool IsTrackedName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTrackedNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

/// Whether a number may be tracked: not beyond kMaxTrackedSum, and no NaN.
inline bool IsTrackedNumber(double number) { return std::abs(number) <= kMaxTrackedSum; }

/// What callbacks of episodes have tracked under a name so far: over `episodes` the sum of the means that each of them
/// tracked. Plain value.
struct TrackedTotal {
  std::string name;
  double sum = 0;
  int64_t episodes = 0;

  friend bool operator==(const TrackedTotal&, const TrackedTotal&) = default;
};

}  // namespace troupe::base
