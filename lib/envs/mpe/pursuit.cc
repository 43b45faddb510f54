#include "lib/envs/mpe/pursuit.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"

namespace troupe::envs {

absl::StatusOr<PursuitSize> PursuitSize::Read(env::EnvArgs& args, const PursuitSize& defaults, int least_good) {
  const auto as_int = [](size_t count) { return static_cast<int64_t>(count); };
  TROUPE_ASSIGN_OR_RETURN(const int64_t good,
                          args.GetInt("num_good", as_int(defaults.good), least_good, kMaxParticles));
  TROUPE_ASSIGN_OR_RETURN(const int64_t adversaries,
                          args.GetInt("num_adversaries", as_int(defaults.adversaries), 0, kMaxParticles));
  TROUPE_ASSIGN_OR_RETURN(const int64_t obstacles,
                          args.GetInt("num_obstacles", as_int(defaults.obstacles), 0, kMaxParticles));
  if (good + adversaries < 1 || good + adversaries > kMaxParticles) {
    return absl::InvalidArgumentError(absl::StrCat("arguments num_good and num_adversaries make ", good + adversaries,
                                                   " agents, expected 1 to ", kMaxParticles));
  }
  return PursuitSize{static_cast<size_t>(adversaries), static_cast<size_t>(good), static_cast<size_t>(obstacles)};
}

double BorderPenalty(double coordinate) {
  const double x = std::abs(coordinate);
  if (x < 0.9) return 0;
  if (x < 1.0) return (x - 0.9) * 10;
  return std::min(std::exp(2 * x - 2), 10.0);
}

void Catches::Count(const World& world) {
  std::fill(of_.begin(), of_.end(), 0);
  total_ = 0;
  for (size_t good = size_.adversaries; good < of_.size(); ++good) {
    for (size_t adversary = 0; adversary < size_.adversaries; ++adversary) {
      if (!world.Touch(good, adversary)) continue;
      ++of_[good];
      ++of_[adversary];
      ++total_;
    }
  }
}

bool Catches::all_caught() const {
  return std::all_of(of_.begin() + static_cast<std::ptrdiff_t>(size_.adversaries), of_.end(),
                     [](int touches) { return touches > 0; });
}

}  // namespace troupe::envs
