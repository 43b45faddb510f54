#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"
#include "lib/envs/mpe/target_match.h"

namespace troupe::envs {
namespace {

constexpr double kLength = 1.25;  // between the landmarks
constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kTurnAway = 5 * std::numbers::pi / 180;

ParticleLayout MakeLayout(size_t agents) {
  ParticleLayout layout;
  layout.name = "mpe/simple_line";
  for (size_t i = 0; i < agents; ++i) {
    layout.agents.push_back(
        {.id = absl::StrCat("agent_", i), .body = {.size = 0.03, .movable = true}, .observation_size = 8});
  }
  layout.landmarks.assign(2, EntityTraits{.size = 0.02, .collide = false});
  return layout;
}

class SimpleLine final : public ParticleEnv {
 public:
  SimpleLine(size_t agents, bool terminate_on_success, const ParticleOptions& options)
      : ParticleEnv(MakeLayout(agents), options), terminate_on_success_(terminate_on_success), match_(agents) {}

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
    PlaceTargets();
  }

  absl::Status BeginFrom(const WorldState& /*state*/) override {
    PlaceTargets();
    return absl::OkStatus();
  }

  /// Evenly from one landmark to the other; a single agent belongs to the first.
  void PlaceTargets() {
    const size_t from = num_agents();
    const size_t to = from + 1;
    const double intervals = static_cast<double>(std::max<size_t>(num_agents() - 1, 1));
    for (size_t i = 0; i < num_agents(); ++i) {
      const double part = static_cast<double>(i) / intervals;
      match_.target_x[i] = world().x[from] + part * (world().x[to] - world().x[from]);
      match_.target_y[i] = world().y[from] + part * (world().y[to] - world().y[from]);
    }
  }

  void Score(absl::Span<double> rewards) override { std::fill(rewards.begin(), rewards.end(), match_.Score(world())); }

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

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleLine(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t agents, args.GetInt("N", 4, 1, kMaxParticles));
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions options, ParticleOptions::Read(args));
  TROUPE_ASSIGN_OR_RETURN(const bool terminate_on_success, args.GetBool("terminate_on_success", false));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_line"));
  return std::make_unique<SimpleLine>(static_cast<size_t>(agents), terminate_on_success, options);
}

}  // namespace troupe::envs
