#include "lib/envs/mpe/target_match.h"

#include <algorithm>
#include <cmath>

namespace troupe::envs {
namespace {

constexpr double kReached = 0.05;
constexpr double kFarthest = 2;  // beyond it the reward does not fall

}  // namespace

double TargetMatch::Score(const World& world) {
  const size_t count = target_x.size();
  for (size_t a = 0; a < count; ++a) {
    for (size_t t = 0; t < count; ++t) {
      const double dx = world.x[a] - target_x[t];
      const double dy = world.y[a] - target_y[t];
      cost_[a * count + t] = std::sqrt(dx * dx + dy * dy);
    }
  }
  const absl::Span<const size_t> places = assignment_.Solve(cost_.data());
  double sum = 0;
  for (size_t a = 0; a < count; ++a) {
    distances_[a] = cost_[a * count + places[a]];
    sum += std::min(distances_[a], kFarthest);
  }
  return -sum / static_cast<double>(count);
}

bool TargetMatch::Reached() const {
  return std::all_of(distances_.begin(), distances_.end(), [](double distance) { return distance < kReached; });
}

}  // namespace troupe::envs
