#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/pursuit.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr size_t kLeader = 0;  // an adversary, unless there is none
constexpr size_t kChannels = 4;
constexpr int kMaxForests = 64;  // a bit each

struct Options {
  PursuitSize size{.adversaries = 4, .good = 2, .obstacles = 1};
  size_t food = 2;
  size_t forests = 2;
};

std::string AgentName(const PursuitSize& size, size_t agent) {
  if (agent == kLeader) return "leadadversary_0";
  return size.is_good(agent) ? absl::StrCat("agent_", agent - size.adversaries) : absl::StrCat("adversary_", agent - 1);
}

/// Whether the agent hears the leader.
bool Hears(const PursuitSize& size, size_t agent) { return agent == kLeader || !size.is_good(agent); }

ParticleLayout MakeLayout(const Options& options) {
  const PursuitSize& size = options.size;
  const size_t landmarks = size.obstacles + options.food + options.forests;
  ParticleLayout layout;
  layout.name = "mpe/simple_world_comm";
  for (size_t i = 0; i < size.agents(); ++i) {
    const bool good = size.is_good(i);
    layout.agents.push_back({.id = AgentName(size, i),
                             .body = {.size = good ? 0.045 : 0.075,
                                      .movable = true,
                                      .max_speed = good ? 1.3 : 1.0,
                                      .accel = good ? 4.0 : 3.0,
                                      .silent = i != kLeader},
                             .observation_size = 4 + 2 * landmarks + 2 * (size.agents() - 1) + 2 * size.good_others(i) +
                                                 options.forests + (Hears(size, i) ? kChannels : 0)});
  }
  layout.landmarks.assign(size.obstacles, EntityTraits{.size = 0.2});
  layout.landmarks.insert(layout.landmarks.end(), options.food, EntityTraits{.size = 0.03, .collide = false});
  layout.landmarks.insert(layout.landmarks.end(), options.forests, EntityTraits{.size = 0.3, .collide = false});
  layout.channels = kChannels;
  layout.info_columns = {"collisions"};
  return layout;
}

class SimpleWorldComm final : public ParticleEnv {
 public:
  SimpleWorldComm(const Options& options, const ParticleOptions& common)
      : ParticleEnv(MakeLayout(options), common),
        options_(options),
        first_food_(num_agents() + options.size.obstacles),
        first_forest_(first_food_ + options.food),
        catches_(options.size),
        forests_(num_agents()) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    world().Scatter(0, num_agents(), 1, random);
    world().Scatter(num_agents(), world().num_landmarks(), 0.9, random);
    FindForests();
  }

  absl::Status BeginFrom(const WorldState& /*state*/) override {
    FindForests();
    return absl::OkStatus();
  }

  /// Who is in which forests.
  void FindForests() {
    for (size_t i = 0; i < num_agents(); ++i) {
      forests_[i] = 0;
      for (size_t f = 0; f < options_.forests; ++f) {
        if (world().Touch(i, first_forest_ + f)) forests_[i] |= uint64_t{1} << f;
      }
    }
  }

  void Score(absl::Span<double> rewards) override {
    FindForests();
    catches_.Count(world());
    for (size_t i = 0; i < rewards.size(); ++i) {
      rewards[i] = options_.size.is_good(i)
                       ? GoodReward(i)
                       : 5.0 * catches_.total() - 0.1 * Nearest(i, options_.size.adversaries, options_.size.good);
    }
  }

  double GoodReward(size_t agent) const {
    double reward = -5.0 * catches_.of(agent);
    reward -= 2 * BorderPenalty(world().x[agent]);
    reward -= 2 * BorderPenalty(world().y[agent]);
    for (size_t food = first_food_; food < first_forest_; ++food) reward += world().Touch(agent, food) ? 2 : 0;
    return reward - 0.05 * Nearest(agent, first_food_, options_.food);
  }

  /// Distance to the nearest of the entities [first, first + count).
  double Nearest(size_t agent, size_t first, size_t count) const {
    double squared = std::numeric_limits<double>::infinity();
    for (size_t entity = first; entity < first + count; ++entity) {
      squared = std::min(squared, world().SquaredDistance(agent, entity));
    }
    return std::sqrt(squared);
  }

  void Benchmark(size_t agent, absl::Span<double> values) const override {
    values[0] = options_.size.is_good(agent) ? 0 : catches_.of(agent);
  }

  /// Those in a common forest see each other, and those outside of all; the leader sees everybody.
  bool Sees(size_t agent, size_t other) const {
    return agent == kLeader || (forests_[agent] & forests_[other]) != 0 || (forests_[agent] | forests_[other]) == 0;
  }

  void Observe(size_t agent, ObservationRow& row) override {
    row.OwnVelocity();
    row.OwnPosition();
    row.AllLandmarks();
    for (size_t other = 0; other < num_agents(); ++other) {
      if (other == agent) continue;
      if (Sees(agent, other)) {
        row.Relative(other);
      } else {
        row.Zeros(2);
      }
    }
    if (Hears(options_.size, agent)) {
      WriteVelocities(agent, row);
      WriteForests(agent, row);
      row.Said(kLeader);
    } else {
      WriteForests(agent, row);
      WriteVelocities(agent, row);
    }
  }

  void WriteVelocities(size_t agent, ObservationRow& row) const {
    for (size_t other = options_.size.adversaries; other < num_agents(); ++other) {
      if (other == agent) continue;
      if (Sees(agent, other)) {
        row.Velocity(other);
      } else {
        row.Zeros(2);
      }
    }
  }

  void WriteForests(size_t agent, ObservationRow& row) const {
    for (size_t f = 0; f < options_.forests; ++f) row.Value((forests_[agent] >> f & 1) != 0 ? 1 : -1);
  }

  const Options options_;
  const size_t first_food_;
  const size_t first_forest_;
  Catches catches_;
  std::vector<uint64_t> forests_;  ///< of every agent: bit f says that it is in forest f
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleWorldComm(env::EnvArgs args) {
  Options options;
  // Without a good agent or food the original's rewards are an error.
  TROUPE_ASSIGN_OR_RETURN(options.size, PursuitSize::Read(args, options.size, 1));
  TROUPE_ASSIGN_OR_RETURN(const int64_t food, args.GetInt("num_food", 2, 1, kMaxParticles));
  TROUPE_ASSIGN_OR_RETURN(const int64_t forests, args.GetInt("num_forests", 2, 0, kMaxForests));
  options.food = static_cast<size_t>(food);
  options.forests = static_cast<size_t>(forests);
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions common, ParticleOptions::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_world_comm"));
  return std::make_unique<SimpleWorldComm>(options, common);
}

}  // namespace troupe::envs
