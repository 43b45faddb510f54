#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr size_t kAdversary = 0;
constexpr size_t kAgent = 1;
constexpr size_t kLandmarks = 2;
constexpr size_t kColors = 3;

ParticleLayout MakeLayout() {
  ParticleLayout layout;
  layout.name = "mpe/simple_push";
  layout.agents = {{.id = "adversary_0", .body = {.movable = true}, .observation_size = 8},
                   {.id = "agent_0", .body = {.movable = true}, .observation_size = 19}};
  layout.landmarks.assign(kLandmarks, EntityTraits{.collide = false});
  return layout;
}

class SimplePush final : public ParticleEnv {
 public:
  explicit SimplePush(const ParticleOptions& options) : ParticleEnv(MakeLayout(), options) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    goal_ = random.Below(kLandmarks);
    world().Scatter(0, world().num_entities(), 1, random);
  }

  absl::Status BeginFrom(const WorldState& state) override {
    TROUPE_ASSIGN_OR_RETURN(goal_, GoalLandmark(state, state.agents[0], state.agents[0].goal_a));
    return absl::OkStatus();
  }

  void Score(absl::Span<double> rewards) override {
    const double agent = world().Distance(kAgent, num_agents() + goal_);
    rewards[kAgent] = -agent;
    rewards[kAdversary] = agent - world().Distance(kAdversary, num_agents() + goal_);
  }

  void Observe(size_t agent, ObservationRow& row) override {
    row.OwnVelocity();
    if (agent == kAgent) {
      row.Relative(num_agents() + goal_);
      for (size_t c = 0; c < kColors; ++c) row.Value(c == goal_ + 1 ? 0.75 : 0.25);  // its color says the goal
    }
    row.AllLandmarks();
    if (agent == kAgent) {
      for (size_t l = 0; l < kLandmarks; ++l) {
        for (size_t c = 0; c < kColors; ++c) row.Value(c == l + 1 ? 0.9 : 0.1);
      }
    }
    row.OtherAgents();
  }

  size_t goal_ = 0;  ///< which landmark
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimplePush(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions options, ParticleOptions::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_push"));
  return std::make_unique<SimplePush>(options);
}

}  // namespace troupe::envs
