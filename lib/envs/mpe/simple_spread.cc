#include "lib/envs/mpe/simple_spread.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

constexpr double kAgentSize = 0.15;     // radius
constexpr double kCaptureRadius = 0.1;  // a landmark with an agent nearer than this is covered
constexpr size_t kChannels = 2;         // that nobody speaks on

ParticleLayout MakeLayout(const SimpleSpread::Options& options) {
  const size_t agents = static_cast<size_t>(options.num_agents);
  ParticleLayout layout;
  layout.name = "mpe/simple_spread";
  for (size_t i = 0; i < agents; ++i) {
    layout.agents.push_back({.id = absl::StrCat("agent_", i),
                             .body = {.size = kAgentSize, .movable = true},
                             .observation_size = 4 + 2 * Neighbours::Slots(options.num_landmark_neighbors, agents) +
                                                 4 * Neighbours::Slots(options.num_agent_neighbors, agents - 1)});
  }
  layout.landmarks.assign(agents, EntityTraits{.collide = false});
  layout.channels = kChannels;
  layout.info_columns = {"benchmark_reward", "collisions", "min_dists", "occupied_landmarks"};
  layout.last_curriculum_stage = 1;
  return layout;
}

}  // namespace

SimpleSpread::SimpleSpread(const Options& options)
    : ParticleEnv(MakeLayout(options), {options.max_cycles, options.continuous_actions, options.benchmark_data}),
      options_(options),
      touches_(num_agents()),
      nearest_(num_agents()),
      landmarks_(options.num_landmark_neighbors, num_agents()),
      others_(options.num_agent_neighbors, num_agents()) {
  SetCurriculumStage(options.curriculum_stage);
}

absl::StatusOr<std::unique_ptr<SimpleSpread>> SimpleSpread::Make(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t num_agents, args.GetInt("N", 3, 1, kMaxParticles));
  options.num_agents = static_cast<int>(num_agents);
  TROUPE_ASSIGN_OR_RETURN(options.local_ratio, args.GetDouble("local_ratio", 0.5, 0, 1));
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions common, ParticleOptions::Read(args));
  options.max_cycles = common.max_cycles;
  options.continuous_actions = common.continuous_actions;
  options.benchmark_data = common.benchmark_data;
  TROUPE_ASSIGN_OR_RETURN(const Curriculum curriculum, Curriculum::Read(args, 1));
  options.curriculum = curriculum.on;
  options.curriculum_stage = curriculum.stage;
  TROUPE_ASSIGN_OR_RETURN(options.terminate_on_success, args.GetBool("terminate_on_success", false));
  TROUPE_ASSIGN_OR_RETURN(const NeighbourLimits limits, NeighbourLimits::Read(args));
  options.num_agent_neighbors = limits.agents;
  options.num_landmark_neighbors = limits.landmarks;
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_spread"));
  return std::make_unique<SimpleSpread>(options);
}

void SimpleSpread::Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) {
  world().Scatter(0, world().num_entities(), 1, random);
}

void SimpleSpread::Score(absl::Span<double> rewards) {
  CountTouches();
  MeasureLandmarks();
  covered_ = 0;
  for (const double distance : nearest_) covered_ -= distance;
  const bool penalty = !options_.curriculum || curriculum_stage() > 0;
  for (size_t i = 0; i < rewards.size(); ++i) {
    const double local = penalty ? -touches_[i] : 0.0;
    rewards[i] = covered_ * (1 - options_.local_ratio) + local * options_.local_ratio;
  }
}

void SimpleSpread::CountTouches() {
  constexpr double kTouch = kAgentSize + kAgentSize;
  std::fill(touches_.begin(), touches_.end(), 0.0);
  const size_t agents = touches_.size();
  for (size_t a = 0; a < agents; ++a) {
    for (size_t b = a + 1; b < agents; ++b) {
      const double squared = world().SquaredDistance(a, b);
      // The square first, since it is far almost always; the root decides, as in the original.
      if (squared < kTouch * kTouch * 1.001 && std::sqrt(squared) < kTouch) {
        ++touches_[a];
        ++touches_[b];
      }
    }
  }
}

void SimpleSpread::MeasureLandmarks() {
  const size_t agents = touches_.size();
  for (size_t l = 0; l < nearest_.size(); ++l) {
    double squared = std::numeric_limits<double>::infinity();
    for (size_t a = 0; a < agents; ++a) squared = std::min(squared, world().SquaredDistance(a, agents + l));
    nearest_[l] = std::sqrt(squared);  // the root is monotone: the least of the roots
  }
}

bool SimpleSpread::Succeeded() const {
  return options_.terminate_on_success &&
         std::all_of(nearest_.begin(), nearest_.end(), [](double distance) { return distance < kCaptureRadius; });
}

void SimpleSpread::Benchmark(size_t agent, absl::Span<double> values) const {
  values[0] = covered_ - touches_[agent];
  values[1] = touches_[agent];
  values[2] = -covered_;
  values[3] = static_cast<double>(
      std::count_if(nearest_.begin(), nearest_.end(), [](double distance) { return distance < kCaptureRadius; }));
}

void SimpleSpread::Observe(size_t agent, ObservationRow& row) {
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

}  // namespace troupe::envs
