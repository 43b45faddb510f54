#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/nearest.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr double kAgentSize = 0.15;     // radius
constexpr double kCaptureRadius = 0.1;  // a landmark with an agent nearer than this is covered
constexpr size_t kChannels = 2;         // that nobody speaks on
constexpr int kLastStage = 1;

struct Options {
  size_t agents = 3;  ///< and landmarks
  double local_ratio = 0.5;
  Curriculum curriculum;
  bool terminate_on_success = false;
  NeighbourLimits limits;
};

ParticleLayout MakeLayout(const Options& options) {
  const size_t agents = options.agents;
  ParticleLayout layout;
  layout.name = "mpe/simple_spread";
  for (size_t i = 0; i < agents; ++i) {
    layout.agents.push_back({.id = absl::StrCat("agent_", i),
                             .body = {.size = kAgentSize, .movable = true},
                             .observation_size = 4 + 2 * Neighbours::Slots(options.limits.landmarks, agents) +
                                                 4 * Neighbours::Slots(options.limits.agents, agents - 1)});
  }
  layout.landmarks.assign(agents, EntityTraits{.collide = false});
  layout.channels = kChannels;
  layout.info_columns = {"benchmark_reward", "collisions", "min_dists", "occupied_landmarks"};
  layout.last_curriculum_stage = kLastStage;
  return layout;
}

class SimpleSpread final : public ParticleEnv {
 public:
  SimpleSpread(const Options& options, const ParticleOptions& common)
      : ParticleEnv(MakeLayout(options), common),
        options_(options),
        touches_(num_agents()),
        nearest_(num_agents()),
        landmarks_(options.limits.landmarks, num_agents()),
        others_(options.limits.agents, num_agents()) {
    SetCurriculumStage(options.curriculum.stage);
  }

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    world().Scatter(0, world().num_entities(), 1, random);
  }

  void Score(absl::Span<double> rewards) override {
    CountTouches();
    MeasureLandmarks();
    covered_ = 0;
    for (const double distance : nearest_) covered_ -= distance;
    const bool penalty = !options_.curriculum.on || curriculum_stage() > 0;
    for (size_t i = 0; i < rewards.size(); ++i) {
      const double local = penalty ? -touches_[i] : 0.0;
      rewards[i] = covered_ * (1 - options_.local_ratio) + local * options_.local_ratio;
    }
  }

  void CountTouches() {
    std::fill(touches_.begin(), touches_.end(), 0.0);
    const size_t agents = touches_.size();
    for (size_t a = 0; a < agents; ++a) {
      for (size_t b = a + 1; b < agents; ++b) {
        if (!World::Within(world().SquaredDistance(a, b), 2 * kAgentSize)) continue;
        ++touches_[a];
        ++touches_[b];
      }
    }
  }

  void MeasureLandmarks() {
    const size_t agents = touches_.size();
    for (size_t l = 0; l < nearest_.size(); ++l) {
      double squared = std::numeric_limits<double>::infinity();
      for (size_t a = 0; a < agents; ++a) squared = std::min(squared, world().SquaredDistance(a, agents + l));
      nearest_[l] = std::sqrt(squared);  // the root is monotone: the least of the roots
    }
  }

  bool Succeeded() const override {
    return options_.terminate_on_success &&
           std::all_of(nearest_.begin(), nearest_.end(), [](double distance) { return distance < kCaptureRadius; });
  }

  void Benchmark(size_t agent, absl::Span<double> values) const override {
    values[0] = covered_ - touches_[agent];
    values[1] = touches_[agent];
    values[2] = -covered_;
    values[3] = static_cast<double>(
        std::count_if(nearest_.begin(), nearest_.end(), [](double distance) { return distance < kCaptureRadius; }));
  }

  void Observe(size_t agent, ObservationRow& row) override {
    const size_t agents = num_agents();
    row.OwnVelocity();
    row.OwnPosition();
    if (landmarks_.all()) {
      row.AllLandmarks();
    } else {
      row.Padded(landmarks_.Find(world(), agent, agents, agents), landmarks_.slots(agents));
    }
    const size_t slots = others_.slots(agents - 1);
    if (others_.all()) {
      row.OtherAgents();
    } else {
      row.Padded(others_.Find(world(), agent, 0, agents), slots);
    }
    row.Zeros(kChannels * slots);  // agents are silent
  }

  const Options options_;
  double covered_ = 0;           ///< minus the sum of nearest_
  std::vector<double> touches_;  ///< of every agent
  std::vector<double> nearest_;  ///< of every landmark: distance to the nearest agent
  Neighbours landmarks_;
  Neighbours others_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleSpread(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t agents, args.GetInt("N", 3, 1, kMaxParticles));
  options.agents = static_cast<size_t>(agents);
  TROUPE_ASSIGN_OR_RETURN(options.local_ratio, args.GetDouble("local_ratio", 0.5, 0, 1));
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions common, ParticleOptions::Read(args));
  TROUPE_ASSIGN_OR_RETURN(options.curriculum, Curriculum::Read(args, kLastStage));
  TROUPE_ASSIGN_OR_RETURN(options.terminate_on_success, args.GetBool("terminate_on_success", false));
  TROUPE_ASSIGN_OR_RETURN(options.limits, NeighbourLimits::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_spread"));
  return std::make_unique<SimpleSpread>(options, common);
}

}  // namespace troupe::envs
