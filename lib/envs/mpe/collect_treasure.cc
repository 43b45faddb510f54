#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/nearest.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr int kMaxTypes = 6;     // as many colors as the original has
constexpr double kArena = 0.95;  // treasures lie in [-0.95, 0.95)^2
constexpr double kGone = 1e6;    // distance of a treasure that was picked up: behind all others
constexpr int kNothing = -1;     // what a collector holds that holds no treasure
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Options {
  size_t collectors = 6;
  size_t deposits = 2;  // also of types
  size_t treasures = 6;

  size_t agents() const { return collectors + deposits; }
};

ParticleLayout MakeLayout(const Options& options) {
  const size_t types = options.deposits;
  const size_t seen = 4 + (options.agents() - 1) * (4 + 2 * types) + options.treasures * (2 + types);
  ParticleLayout layout;
  layout.name = "mpe/collect_treasure";
  layout.info_columns = {"holding", "carriers", "treasures"};
  for (size_t i = 0; i < options.agents(); ++i) {
    const bool collector = i < options.collectors;
    layout.agents.push_back(
        {.id = collector ? absl::StrCat("collector_", i) : absl::StrCat("deposit_", i - options.collectors),
         .body = {.size = collector ? 0.05 : 0.075,
                  .movable = true,
                  .collide = false,
                  .max_speed = 1,
                  .accel = 1.5,
                  .mass = collector ? 1 : 2.25},
         .observation_size = seen + (collector ? types : 0),
         .benchmark_columns = {collector ? 0 : 1, 2}});
  }
  layout.landmarks.assign(options.treasures, EntityTraits{.size = 0.025, .collide = false});
  return layout;
}

/// Nobody pushes anybody here. In a step: bodies move, treasures are picked up or appear again, deposits are made, and
/// only then rewards and observations follow.
class CollectTreasure final : public ParticleEnv {
 public:
  CollectTreasure(const Options& options, const ParticleOptions& common)
      : ParticleEnv(MakeLayout(options), common),
        options_(options),
        types_(options.deposits),
        treasure_types_(options.treasures),
        alive_(options.treasures),
        holding_(options.collectors, kNothing),
        agent_distances_(options.agents() * options.agents()),
        treasure_distances_(options.agents() * options.treasures),
        agent_codes_(options.agents() * 2 * types_),
        treasure_codes_(options.treasures * types_),
        order_(std::max(options.agents(), options.treasures)) {}

  bool has_drawn() const override { return has_drawn_; }

 private:
  void Begin(const env::EpisodeSeed& seed, base::PhiloxSequence& random) override {
    dynamics_ = seed.Sequence(base::RandomStream::kDynamics);
    respawns_.clear();
    world().Scatter(0, num_agents(), 1, random);
    for (size_t t = 0; t < options_.treasures; ++t) {
      treasure_types_[t] = static_cast<int>(random.Below(static_cast<uint32_t>(types_)));
      world().Scatter(Entity(t), 1, kArena, random);
      alive_[t] = 1;
    }
    std::fill(holding_.begin(), holding_.end(), kNothing);
    Measure();
  }

  absl::Status BeginFrom(const WorldState& state) override {
    const auto check = [&](const WorldState::Entity& entity, int type, int least) {
      if (type >= least && type < static_cast<int>(types_)) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("world: ", base::LogSafe(entity.name), " has treasure type ", type,
                                                     ", expected one in [", least, ", ", types_ - 1, "]"));
    };
    for (size_t t = 0; t < options_.treasures; ++t) {
      const WorldState::Entity& treasure = state.landmarks[t];
      TROUPE_RETURN_IF_ERROR(check(treasure, treasure.type, 0));
      treasure_types_[t] = treasure.type;
      alive_[t] = treasure.alive ? 1 : 0;
    }
    for (size_t c = 0; c < options_.collectors; ++c) {
      TROUPE_RETURN_IF_ERROR(check(state.agents[c], state.agents[c].holding, kNothing));
      holding_[c] = state.agents[c].holding;
    }
    for (const WorldState::Respawn& respawn : state.respawns) {
      TROUPE_RETURN_IF_ERROR(check({.name = "a respawn"}, respawn.type, 0));
    }
    respawns_ = state.respawns;
    next_respawn_ = 0;
    has_drawn_ = false;
    dynamics_ = env::EpisodeSeed().Sequence(base::RandomStream::kDynamics);
    Measure();
    return absl::OkStatus();
  }

  void Score(absl::Span<double> rewards) override {
    double shared = 0;
    for (size_t t = 0; t < options_.treasures; ++t) {
      if (alive_[t] == 0) {
        Respawn(t);
      } else if (PickUp(t)) {
        shared += 5;
      }
    }
    for (size_t c = 0; c < options_.collectors; ++c) shared += Deliver(c) ? 5 : 0;
    Measure();
    for (size_t i = 0; i < rewards.size(); ++i) {
      rewards[i] = (i < options_.collectors ? CollectorReward(i) : DepositReward(i)) + shared;
    }
  }

  /// The first collector that touches the treasure and has its hands free takes it.
  bool PickUp(size_t treasure) {
    for (size_t c = 0; c < options_.collectors; ++c) {
      if (holding_[c] != kNothing || !world().Touch(Entity(treasure), c)) continue;
      alive_[treasure] = 0;
      holding_[c] = treasure_types_[treasure];
      return true;
    }
    return false;
  }

  void Respawn(size_t treasure) {
    if (next_respawn_ < respawns_.size()) {
      const WorldState::Respawn& respawn = respawns_[next_respawn_++];
      world().x[Entity(treasure)] = respawn.position[0];
      world().y[Entity(treasure)] = respawn.position[1];
      treasure_types_[treasure] = respawn.type;
    } else {
      world().Scatter(Entity(treasure), 1, kArena, dynamics_);
      treasure_types_[treasure] = static_cast<int>(dynamics_.Below(static_cast<uint32_t>(types_)));
      has_drawn_ = true;
    }
    alive_[treasure] = 1;
  }

  bool Deliver(size_t collector) {
    if (holding_[collector] == kNothing) return false;
    if (!world().Touch(collector, options_.collectors + static_cast<size_t>(holding_[collector]))) return false;
    holding_[collector] = kNothing;
    return true;
  }

  double CollectorReward(size_t agent) const {
    const double* agents = AgentDistances(agent);
    int touches = 0;
    for (size_t c = 0; c < options_.collectors; ++c) {
      touches += c != agent && agents[c] < 2 * world().traits(agent).size ? 1 : 0;
    }
    double goal = 0;
    if (holding_[agent] != kNothing) {
      goal = agents[options_.collectors + static_cast<size_t>(holding_[agent])];
    } else if (num_alive_ > 0) {
      goal = kInfinity;
      for (size_t t = 0; t < options_.treasures; ++t) {
        goal = std::min(goal, alive_[t] != 0 ? TreasureDistances(agent)[t] : kInfinity);
      }
    }
    return -5.0 * touches - 0.1 * goal;
  }

  /// Towards the nearest collector that brings something; else towards the middle of all collectors.
  double DepositReward(size_t agent) const {
    const int type = static_cast<int>(agent - options_.collectors);
    double nearest = kInfinity;
    double x = 0;
    double y = 0;
    for (size_t c = 0; c < options_.collectors; ++c) {
      nearest = std::min(nearest, holding_[c] == type ? AgentDistances(agent)[c] : kInfinity);
      x += world().x[c];
      y += world().y[c];
    }
    if (nearest < kInfinity) return -0.1 * nearest;
    x = x / static_cast<double>(options_.collectors) - world().x[agent];
    y = y / static_cast<double>(options_.collectors) - world().y[agent];
    return -0.1 * std::sqrt(x * x + y * y);
  }

  void Benchmark(size_t agent, absl::Span<double> values) const override {
    const int type = static_cast<int>(agent) - static_cast<int>(options_.collectors);
    values[0] = type < 0 ? holding_[agent] : static_cast<double>(std::count(holding_.begin(), holding_.end(), type));
    values[1] = static_cast<double>(num_alive_);
  }

  /// Distances and codes, which rewards and all observations share.
  void Measure() {
    const size_t agents = num_agents();
    for (size_t a = 0; a < agents; ++a) {
      agent_distances_[a * agents + a] = -1;  // before all others
      for (size_t b = 0; b < a; ++b) {
        const double distance = world().Distance(a, b);
        agent_distances_[a * agents + b] = distance;
        agent_distances_[b * agents + a] = distance;
      }
      for (size_t t = 0; t < options_.treasures; ++t) {
        treasure_distances_[a * options_.treasures + t] = alive_[t] != 0 ? world().Distance(a, Entity(t)) : kGone;
      }
    }
    // An agent's code: which type it accepts and which it holds, both one-hot.
    std::fill(agent_codes_.begin(), agent_codes_.end(), 0.0);
    for (size_t a = 0; a < agents; ++a) {
      double* code = agent_codes_.data() + a * 2 * types_;
      if (a >= options_.collectors) {
        code[a - options_.collectors] = 1;
      } else if (holding_[a] != kNothing) {
        code[types_ + static_cast<size_t>(holding_[a])] = 1;
      }
    }
    std::fill(treasure_codes_.begin(), treasure_codes_.end(), 0.0);
    for (size_t t = 0; t < options_.treasures; ++t) {
      if (alive_[t] != 0) treasure_codes_[t * types_ + static_cast<size_t>(treasure_types_[t])] = 1;
    }
    num_alive_ = std::accumulate(alive_.begin(), alive_.end(), size_t{0});
  }

  void Observe(size_t agent, ObservationRow& row) override {
    row.OwnPosition();
    row.OwnVelocity();
    const auto agent_code = [&](size_t a) {
      return absl::MakeConstSpan(agent_codes_.data() + a * 2 * types_, 2 * types_);
    };
    if (agent < options_.collectors) row.Values(agent_code(agent).subspan(types_));
    // The agent itself comes first.
    for (const size_t other : order_.Sort(AgentDistances(agent), num_agents(), num_agents()).subspan(1)) {
      row.Relative(other);
      row.Velocity(other);
      row.Values(agent_code(other));
    }
    for (const size_t t : order_.Sort(TreasureDistances(agent), options_.treasures, options_.treasures)) {
      if (alive_[t] != 0) {
        row.Relative(Entity(t));
      } else {
        row.Zeros(2);
      }
      row.Values(absl::MakeConstSpan(treasure_codes_.data() + t * types_, types_));
    }
  }

  size_t Entity(size_t treasure) const { return options_.agents() + treasure; }
  const double* AgentDistances(size_t agent) const { return agent_distances_.data() + agent * options_.agents(); }
  const double* TreasureDistances(size_t agent) const {
    return treasure_distances_.data() + agent * options_.treasures;
  }

  const Options options_;
  const size_t types_;
  std::vector<int> treasure_types_;
  std::vector<uint8_t> alive_;  ///< of every treasure: it lies there
  size_t num_alive_ = 0;
  std::vector<int> holding_;  ///< of every collector: a type or kNothing
  base::PhiloxSequence dynamics_ = env::EpisodeSeed().Sequence(base::RandomStream::kDynamics);
  std::vector<WorldState::Respawn> respawns_;  ///< that a recording gave
  size_t next_respawn_ = 0;
  bool has_drawn_ = false;
  std::vector<double> agent_distances_;     ///< [agents, agents]
  std::vector<double> treasure_distances_;  ///< [agents, treasures]
  std::vector<double> agent_codes_;         ///< [agents, 2 * types]
  std::vector<double> treasure_codes_;      ///< [treasures, types]
  NearestOrder order_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeCollectTreasure(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t collectors, args.GetInt("num_collectors", 6, 1, kMaxParticles));
  TROUPE_ASSIGN_OR_RETURN(const int64_t deposits, args.GetInt("num_deposits", 2, 1, kMaxTypes));
  TROUPE_ASSIGN_OR_RETURN(const int64_t treasures, args.GetInt("num_treasures", 6, 1, kMaxParticles));
  options.collectors = static_cast<size_t>(collectors);
  options.deposits = static_cast<size_t>(deposits);
  options.treasures = static_cast<size_t>(treasures);
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions common, ParticleOptions::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/collect_treasure"));
  return std::make_unique<CollectTreasure>(options, common);
}

}  // namespace troupe::envs
