#include <array>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/nearest.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/pursuit.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr double kGoodAccel = 4;
constexpr double kGoodSpeed = 1.3;
/// What part of their power the good agents have in each curriculum stage.
constexpr std::array<double, 3> kPowerOfStage = {0.5, 0.75, 1};
constexpr int kLastStage = static_cast<int>(kPowerOfStage.size()) - 1;

struct Options {
  PursuitSize size{.adversaries = 3, .good = 1, .obstacles = 2};
  Curriculum curriculum;
  bool terminate_on_success = false;
  NeighbourLimits limits;
};

ParticleLayout MakeLayout(const Options& options) {
  const PursuitSize& size = options.size;
  ParticleLayout layout;
  layout.name = "mpe/simple_tag";
  for (size_t i = 0; i < size.agents(); ++i) {
    const bool good = size.is_good(i);
    const size_t positions = 2 * Neighbours::Slots(options.limits.agents, size.agents() - 1);
    const size_t velocities = options.limits.agents < 0 ? 2 * size.good_others(i) : positions;
    layout.agents.push_back({.id = good ? absl::StrCat("agent_", i - size.adversaries) : absl::StrCat("adversary_", i),
                             .body = {.size = good ? 0.05 : 0.075,
                                      .movable = true,
                                      .max_speed = good ? kGoodSpeed : 1.0,
                                      .accel = good ? kGoodAccel : 3.0},
                             .observation_size = 4 + 2 * Neighbours::Slots(options.limits.landmarks, size.obstacles) +
                                                 positions + velocities});
  }
  layout.landmarks.assign(size.obstacles, EntityTraits{.size = 0.2});
  layout.info_columns = {"collisions"};
  layout.last_curriculum_stage = kLastStage;
  return layout;
}

class SimpleTag final : public ParticleEnv {
 public:
  SimpleTag(const Options& options, const ParticleOptions& common)
      : ParticleEnv(MakeLayout(options), common),
        options_(options),
        catches_(options.size),
        others_(options.limits.agents, num_agents()),
        landmarks_(options.limits.landmarks, world().num_landmarks()) {
    SetCurriculumStage(options.curriculum.stage);
  }

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    world().Scatter(0, num_agents(), 1, random);
    world().Scatter(num_agents(), world().num_landmarks(), 0.9, random);
    SetPower();
  }

  absl::Status BeginFrom(const WorldState& /*state*/) override {
    SetPower();
    return absl::OkStatus();
  }

  /// A stage counts from an episode's start on.
  void SetPower() {
    if (!options_.curriculum.on) return;
    const double power = kPowerOfStage[static_cast<size_t>(curriculum_stage())];
    for (size_t i = options_.size.adversaries; i < num_agents(); ++i) {
      world().SetPower(i, kGoodAccel * power, kGoodSpeed * power);
    }
  }

  void Score(absl::Span<double> rewards) override {
    catches_.Count(world());
    for (size_t i = 0; i < rewards.size(); ++i) {
      rewards[i] = options_.size.is_good(i)
                       ? -10.0 * catches_.of(i) - BorderPenalty(world().x[i]) - BorderPenalty(world().y[i])
                       : 10.0 * catches_.total();
    }
  }

  bool Succeeded() const override { return options_.terminate_on_success && catches_.all_caught(); }

  void Benchmark(size_t agent, absl::Span<double> values) const override {
    values[0] = options_.size.is_good(agent) ? 0 : catches_.of(agent);
  }

  void Observe(size_t agent, ObservationRow& row) override {
    row.OwnVelocity();
    row.OwnPosition();
    const size_t obstacles = options_.size.obstacles;
    row.Padded(landmarks_.Find(world(), agent, num_agents(), obstacles), landmarks_.slots(obstacles));
    const absl::Span<const size_t> others = others_.Find(world(), agent, 0, num_agents());
    const size_t slots = others_.slots(num_agents() - 1);
    row.Padded(others, slots);
    // Velocities of good agents; with a limit, an adversary among the nearest has a place of zeros.
    for (const size_t other : others) {
      if (options_.size.is_good(other)) {
        row.Velocity(other);
      } else if (!others_.all()) {
        row.Zeros(2);
      }
    }
    row.Zeros(2 * (slots - others.size()));
  }

  const Options options_;
  Catches catches_;
  Neighbours others_;
  Neighbours landmarks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleTag(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(options.size, PursuitSize::Read(args, options.size, 0));
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions common, ParticleOptions::Read(args));
  TROUPE_ASSIGN_OR_RETURN(options.curriculum, Curriculum::Read(args, kLastStage));
  TROUPE_ASSIGN_OR_RETURN(options.terminate_on_success, args.GetBool("terminate_on_success", false));
  TROUPE_ASSIGN_OR_RETURN(options.limits, NeighbourLimits::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_tag"));
  return std::make_unique<SimpleTag>(options, common);
}

}  // namespace troupe::envs
