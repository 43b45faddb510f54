#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lib/base/status_macros.h"
#include "lib/envs/mpe/scenarios.h"
#include "lib/envs/mpe/target_match.h"

namespace troupe::envs {
namespace {

constexpr char kName[] = "mpe/simple_formation";
constexpr double kRadius = 0.5;
constexpr double kTurn = 2 * std::numbers::pi;

class SimpleFormation final : public TargetEnv {
 public:
  explicit SimpleFormation(const TargetOptions& options)
      : TargetEnv(kName, {.movable = true}, {{.size = 0.03, .collide = false}}, options) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    world().Scatter(0, num_agents(), 1, random);
    world().Scatter(num_agents(), 1, 0.5, random);
  }

  /// The circle begins at the least angle of an agent, seen from the landmark.
  void PlaceTargets(TargetMatch& match) const override {
    const double x = world().x[num_agents()];
    const double y = world().y[num_agents()];
    double first = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < num_agents(); ++i) {
      const double angle = std::atan2(world().y[i] - y, world().x[i] - x);
      first = std::min(first, angle < 0 ? angle + kTurn : angle);
    }
    const double apart = kTurn / static_cast<double>(num_agents());
    for (size_t i = 0; i < num_agents(); ++i) {
      const double angle = first + static_cast<double>(i) * apart;
      match.target_x[i] = x + kRadius * std::cos(angle);
      match.target_y[i] = y + kRadius * std::sin(angle);
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleFormation(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const TargetOptions options, TargetOptions::Read(args, kName));
  return std::make_unique<SimpleFormation>(options);
}

}  // namespace troupe::envs
