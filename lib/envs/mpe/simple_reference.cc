#include <array>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr size_t kAgents = 2;
constexpr size_t kLandmarks = 3;
constexpr size_t kChannels = 10;

ParticleLayout MakeLayout() {
  ParticleLayout layout;
  layout.name = "mpe/simple_reference";
  for (size_t i = 0; i < kAgents; ++i) {
    layout.agents.push_back({.id = absl::StrCat("agent_", i),
                             .body = {.movable = true, .collide = false, .silent = false},
                             .observation_size = 2 + 2 * kLandmarks + 3 + kChannels});
  }
  layout.landmarks.assign(kLandmarks, EntityTraits{.collide = false});
  layout.channels = kChannels;
  return layout;
}

class SimpleReference final : public ParticleEnv {
 public:
  SimpleReference(double local_ratio, const ParticleOptions& options)
      : ParticleEnv(MakeLayout(), options), local_ratio_(local_ratio) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    for (size_t& goal : goals_) goal = random.Below(kLandmarks);
    world().Scatter(0, world().num_entities(), 1, random);
  }

  absl::Status BeginFrom(const WorldState& state) override {
    for (size_t i = 0; i < kAgents; ++i) {
      TROUPE_ASSIGN_OR_RETURN(goals_[i], GoalLandmark(state, state.agents[i], state.agents[i].goal_b));
    }
    return absl::OkStatus();
  }

  void Score(absl::Span<double> rewards) override {
    double sum = 0;
    for (size_t i = 0; i < kAgents; ++i) {
      rewards[i] = -world().Distance(1 - i, kAgents + goals_[i]);
      sum += rewards[i];
    }
    for (double& reward : rewards) reward = sum / kAgents * (1 - local_ratio_) + reward * local_ratio_;
  }

  void Observe(size_t agent, ObservationRow& row) override {
    row.OwnVelocity();
    row.AllLandmarks();
    for (size_t c = 0; c < kLandmarks; ++c) row.Value(c == goals_[agent] ? 0.75 : 0.25);  // the goal's color
    row.Said(1 - agent);
  }

  const double local_ratio_;
  std::array<size_t, kAgents> goals_{};  ///< the landmark where the other shall go
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleReference(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const double local_ratio, args.GetDouble("local_ratio", 0.5, 0, 1));
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions options, ParticleOptions::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_reference"));
  return std::make_unique<SimpleReference>(local_ratio, options);
}

}  // namespace troupe::envs
