#include "lib/training/core/advantages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lib/policy/weight_snapshot.h"
#include "lib/training/core/moments.h"

namespace troupe::training {
namespace {

constexpr double kAdvantageEpsilon = 1e-8;

/// The value of what follows a segment's last row.
double ValueAfter(const learner::TrainSegment& segment, absl::Span<const float> final_values,
                  bool time_limit_bootstrap) {
  if (segment.truncated && !time_limit_bootstrap) return 0.0;
  return segment.final_row < 0 ? 0.0 : final_values[segment.final_row];
}

}  // namespace

Advantages ComputeGae(const std::vector<learner::TrainSegment>& segments, absl::Span<const float> rewards,
                      absl::Span<const float> values, absl::Span<const float> final_values, double gamma, double lambda,
                      bool time_limit_bootstrap, absl::Span<const int32_t> waits) {
  Advantages result;
  result.advantages.assign(rewards.size(), 0.0f);
  result.returns.assign(values.begin(), values.end());
  for (const learner::TrainSegment& segment : segments) {
    double next_value = ValueAfter(segment, final_values, time_limit_bootstrap);
    double advantage = 0.0;
    for (int64_t row = segment.first_row + segment.rows - 1; row >= segment.first_row; --row) {
      const double value = values[row];
      const double discount = waits.empty() ? gamma : std::pow(gamma, waits[row]);
      advantage = rewards[row] + discount * next_value - value + discount * lambda * advantage;
      result.advantages[row] = static_cast<float>(advantage);
      result.returns[row] = static_cast<float>(advantage + value);
      next_value = value;
    }
  }
  return result;
}

Advantages ComputeVtrace(const std::vector<learner::TrainSegment>& segments, absl::Span<const float> rewards,
                         absl::Span<const float> values, absl::Span<const float> final_values,
                         absl::Span<const float> ratios, double gamma, double lambda, const VtraceClips& clips,
                         bool time_limit_bootstrap, absl::Span<const int32_t> waits) {
  Advantages result;
  result.advantages.assign(rewards.size(), 0.0f);
  result.returns.assign(values.begin(), values.end());
  for (const learner::TrainSegment& segment : segments) {
    double next_value = ValueAfter(segment, final_values, time_limit_bootstrap);
    double error = 0.0;  // of the next row: its target minus its value
    for (int64_t row = segment.first_row + segment.rows - 1; row >= segment.first_row; --row) {
      const double value = values[row];
      const double ratio = ratios[row];
      const double discount = waits.empty() ? gamma : std::pow(gamma, waits[row]);
      const double delta = rewards[row] + discount * next_value - value;
      const double ahead = discount * lambda * error;
      result.advantages[row] = static_cast<float>(std::min(clips.pg_rho, ratio) * (delta + ahead));
      error = std::min(clips.rho, ratio) * delta + std::min(1.0, ratio) * ahead;
      result.returns[row] = static_cast<float>(error + value);
      next_value = value;
    }
  }
  return result;
}

std::vector<float> NormalizeAdvantages(const std::vector<float>& advantages, absl::Span<const int32_t> active,
                                       absl::Span<const int32_t> counted) {
  policy::RunningMoments moments = MomentsOf(advantages, 1, active);
  const bool has_deviation = active.size() >= 2 && moments.variance[0] > 0;
  if (!has_deviation && active.size() != counted.size()) moments = MomentsOf(advantages, 1, counted);
  const double mean = moments.mean[0];
  const double scale = 1.0 / (std::sqrt(moments.variance[0]) + kAdvantageEpsilon);
  std::vector<float> normalized(advantages.size(), 0.0f);
  for (const int32_t row : counted) normalized[row] = static_cast<float>((advantages[row] - mean) * scale);
  return normalized;
}

double ExplainedVariance(absl::Span<const float> returns, absl::Span<const float> values,
                         absl::Span<const int32_t> active) {
  std::vector<float> residuals(returns.size());
  for (size_t row = 0; row < returns.size(); ++row) residuals[row] = returns[row] - values[row];
  const auto moments = MomentsOfEach<2>({returns, residuals}, active);
  const double total = moments[0].variance[0];
  if (!(total > 0)) return 0.0;
  return 1.0 - moments[1].variance[0] / total;
}

}  // namespace troupe::training
