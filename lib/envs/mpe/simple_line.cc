#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/envs/mpe/scenarios.h"
#include "lib/envs/mpe/target_match.h"

namespace troupe::envs {
namespace {

constexpr char kName[] = "mpe/simple_line";
constexpr double kLength = 1.25;  // between the landmarks
constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kTurnAway = 5 * std::numbers::pi / 180;

class SimpleLine final : public TargetEnv {
 public:
  explicit SimpleLine(const TargetOptions& options)
      : TargetEnv(kName, {.size = 0.03, .movable = true},
                  std::vector<EntityTraits>(2, {.size = 0.02, .collide = false}), options) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    const size_t from = num_agents();
    const size_t to = from + 1;
    World& w = world();
    w.Scatter(0, num_agents(), 1, random);
    w.Scatter(from, 1, 0.25, random);
    // Some direction, turned until the second landmark lies in the arena.
    for (double angle = random.Uniform(0, kTurn);; angle += kTurnAway) {
      w.x[to] = w.x[from] + kLength * std::cos(angle);
      w.y[to] = w.y[from] + kLength * std::sin(angle);
      if (std::abs(w.x[to]) < 1 && std::abs(w.y[to]) < 1) break;
    }
  }

  /// Evenly from one landmark to the other; a single agent belongs to the first.
  void PlaceTargets(TargetMatch& match) const override {
    const size_t from = num_agents();
    const size_t to = from + 1;
    const double intervals = static_cast<double>(std::max<size_t>(num_agents() - 1, 1));
    for (size_t i = 0; i < num_agents(); ++i) {
      const double part = static_cast<double>(i) / intervals;
      match.target_x[i] = world().x[from] + part * (world().x[to] - world().x[from]);
      match.target_y[i] = world().y[from] + part * (world().y[to] - world().y[from]);
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleLine(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const TargetOptions options, TargetOptions::Read(args, kName));
  return std::make_unique<SimpleLine>(options);
}

}  // namespace troupe::envs
