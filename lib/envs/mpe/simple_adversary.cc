#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/nearest.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr size_t kAdversary = 0;  // the good agents follow

struct Options {
  size_t num_good = 2;  // also of landmarks
  NeighbourLimits limits;
};

ParticleLayout MakeLayout(const Options& options) {
  const size_t landmarks = options.num_good;
  const size_t seen = 2 * Neighbours::Slots(options.limits.landmarks, landmarks) +
                      2 * Neighbours::Slots(options.limits.agents, landmarks);
  const EntityTraits body{.size = 0.15, .movable = true, .collide = false};
  ParticleLayout layout;
  layout.name = "mpe/simple_adversary";
  layout.agents.push_back({.id = "adversary_0",
                           .body = body,
                           .observation_size = seen,
                           .benchmark_columns = {static_cast<int>(landmarks)}});
  for (size_t i = 0; i < options.num_good; ++i) {
    layout.agents.push_back({.id = absl::StrCat("agent_", i), .body = body, .observation_size = 2 + seen});
    layout.info_columns.push_back(absl::StrCat("landmark_", i, "_squared_distance"));
  }
  layout.info_columns.push_back("goal_squared_distance");
  layout.landmarks.assign(landmarks, EntityTraits{.size = 0.08, .collide = false});
  return layout;
}

class SimpleAdversary final : public ParticleEnv {
 public:
  SimpleAdversary(const Options& options, const ParticleOptions& common)
      : ParticleEnv(MakeLayout(options), common),
        others_(options.limits.agents, num_agents()),
        landmarks_(options.limits.landmarks, num_agents()) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    goal_ = num_agents() + random.Below(static_cast<uint32_t>(world().num_landmarks()));
    world().Scatter(0, world().num_entities(), 1, random);
  }

  absl::Status BeginFrom(const WorldState& state) override {
    TROUPE_ASSIGN_OR_RETURN(const size_t goal, GoalLandmark(state, state.agents[0], state.agents[0].goal_a));
    goal_ = num_agents() + goal;
    return absl::OkStatus();
  }

  void Score(absl::Span<double> rewards) override {
    const double adversary = world().Distance(kAdversary, goal_);
    double nearest = std::numeric_limits<double>::infinity();  // squared
    for (size_t i = 1; i < num_agents(); ++i) nearest = std::min(nearest, world().SquaredDistance(i, goal_));
    rewards[kAdversary] = -adversary;
    for (size_t i = 1; i < num_agents(); ++i) rewards[i] = -std::sqrt(nearest) + adversary;
  }

  void Benchmark(size_t agent, absl::Span<double> values) const override {
    const size_t landmarks = agent == kAdversary ? 0 : world().num_landmarks();
    for (size_t i = 0; i < landmarks; ++i) values[i] = world().SquaredDistance(agent, num_agents() + i);
    values[landmarks] = world().SquaredDistance(agent, goal_);
  }

  void Observe(size_t agent, ObservationRow& row) override {
    if (agent != kAdversary) row.Relative(goal_);
    const size_t landmarks = world().num_landmarks();
    row.Padded(landmarks_.Find(world(), agent, num_agents(), landmarks), landmarks_.slots(landmarks));
    row.Padded(others_.Find(world(), agent, 0, num_agents()), others_.slots(num_agents() - 1));
  }

  size_t goal_ = 1;  ///< the entity
  Neighbours others_;
  Neighbours landmarks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleAdversary(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t good, args.GetInt("N", 2, 1, kMaxParticles));
  options.num_good = static_cast<size_t>(good);
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions common, ParticleOptions::Read(args));
  TROUPE_ASSIGN_OR_RETURN(options.limits, NeighbourLimits::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_adversary"));
  return std::make_unique<SimpleAdversary>(options, common);
}

}  // namespace troupe::envs
