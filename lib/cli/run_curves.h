#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/cli/run_record.h"

namespace troupe::cli {

/// Values of a metric over env steps or seconds; `x` ascends, both are as long.
struct Curve {
  std::vector<double> x;
  std::vector<double> values;

  /// Between two points on the straight line; nullopt outside of the curve.
  std::optional<double> At(double x) const;
};

/// The values of `metric`, a key of progress.jsonl, over the key `x` ("env_steps", "wall_clock_s"). Lines without it,
/// and those that are no JSON objects, are left out; of env steps that were trained twice, after a resume, the later
/// lines count, also where they are without it. Reads kMostProgressBytes at most, a piece at a time, and keeps
/// `most_points`: RESOURCE_EXHAUSTED beyond. NOT_FOUND where there is no such file, or no line with the metric: the
/// message names metrics that there are.
absl::StatusOr<Curve> ReadCurve(const std::string& folder, const std::string& metric, const std::string& x,
                                size_t most_points);
/// Of all curves of a command together.
inline constexpr size_t kMostPoints = 10'000'000;
inline constexpr int64_t kMostProgressBytes = int64_t{512} << 20;
inline constexpr size_t kMostLineBytes = size_t{4} << 20;

/// A mean over seeds.
struct SeedMean {
  size_t seeds = 0;
  double mean = 0;
  std::optional<double> half_width;  ///< of its 95 % interval, by Student's t; nullopt of a single seed
};
SeedMean MeanOf(absl::Span<const double> values);
/// The 97.5 % quantile of Student's t.
double StudentT(size_t degrees_of_freedom);

/// Runs that were configured alike but for the seed, names and places, and how long they train (`stop`).
struct RunGroup {
  /// What tells it from the others, "algorithm.lr: 0.001"; of a single group: "". Where that is longer than
  /// kMostLabelBytes the names of its runs are.
  std::string label;
  std::vector<size_t> runs;  ///< places in what was grouped
};
inline constexpr size_t kMostLabelBytes = 80;
/// In the order in which a group's first run comes. A run whose configuration cannot be read is a group of its own.
std::vector<RunGroup> GroupRuns(absl::Span<const RunRecord> runs);

/// A group's curve with its band; `low` and `high` are empty of a single seed.
struct BandCurve {
  std::vector<double> x, mean, low, high;
};
/// On `points` values of x between the latest begin and the earliest end of the curves; of a single one its own points.
/// FAILED_PRECONDITION where they have no x in common.
absl::StatusOr<BandCurve> BandOf(absl::Span<const Curve> curves, size_t points = 200);

/// What tells how good a group's runs are, as the first that has begun says it: "return_sum", or the returns of its
/// first kMostPolicies policies where agents' rewards differ.
std::vector<std::string> UsualMetrics(const RunGroup& group, absl::Span<const RunRecord> runs);
inline constexpr size_t kMostPolicies = 6;

}  // namespace troupe::cli
