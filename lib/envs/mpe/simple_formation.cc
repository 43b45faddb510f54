#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"
#include "lib/envs/mpe/target_match.h"

namespace troupe::envs {
namespace {

constexpr double kRadius = 0.5;
constexpr double kTurn = 2 * std::numbers::pi;

ParticleLayout MakeLayout(size_t agents) {
  ParticleLayout layout;
  layout.name = "mpe/simple_formation";
  for (size_t i = 0; i < agents; ++i) {
    layout.agents.push_back({.id = absl::StrCat("agent_", i), .body = {.movable = true}, .observation_size = 6});
  }
  layout.landmarks = {{.size = 0.03, .collide = false}};
  return layout;
}

class SimpleFormation final : public ParticleEnv {
 public:
  SimpleFormation(size_t agents, bool terminate_on_success, const ParticleOptions& options)
      : ParticleEnv(MakeLayout(agents), options), terminate_on_success_(terminate_on_success), match_(agents) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    world().Scatter(0, num_agents(), 1, random);
    world().Scatter(num_agents(), 1, 0.5, random);
  }

  void Score(absl::Span<double> rewards) override {
    PlaceTargets();
    std::fill(rewards.begin(), rewards.end(), match_.Score(world()));
  }

  /// The circle begins at the least angle of an agent, seen from the landmark.
  void PlaceTargets() {
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
      match_.target_x[i] = x + kRadius * std::cos(angle);
      match_.target_y[i] = y + kRadius * std::sin(angle);
    }
  }

  bool Succeeded() const override { return terminate_on_success_ && match_.Reached(); }

  void Observe(size_t /*agent*/, ObservationRow& row) override {
    row.OwnVelocity();
    row.OwnPosition();
    row.AllLandmarks();
  }

  const bool terminate_on_success_;
  TargetMatch match_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleFormation(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t agents, args.GetInt("N", 4, 1, kMaxParticles));
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions options, ParticleOptions::Read(args));
  TROUPE_ASSIGN_OR_RETURN(const bool terminate_on_success, args.GetBool("terminate_on_success", false));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_formation"));
  return std::make_unique<SimpleFormation>(static_cast<size_t>(agents), terminate_on_success, options);
}

}  // namespace troupe::envs
