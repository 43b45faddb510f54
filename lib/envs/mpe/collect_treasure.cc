#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

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
constexpr double kCollectorSize = 0.05;
constexpr double kDepositSize = 0.075;
constexpr double kTreasureSize = 0.025;
constexpr double kGone = 1e6;  // distance of a treasure that was picked up: behind all others
constexpr int kNothing = -1;   // what a collector holds that holds no treasure
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
         .body = {.size = collector ? kCollectorSize : kDepositSize,
                  .movable = true,
                  .collide = false,
                  .max_speed = 1,
                  .accel = 1.5,
                  .mass = collector ? 1 : 2.25},
         .observation_size = seen + (collector ? types : 0),
         .benchmark_columns = {collector ? 0 : 1, 2}});
  }
  layout.landmarks.assign(options.treasures, EntityTraits{.size = kTreasureSize, .collide = false});
  return layout;
}

/// Nobody pushes anybody here. In a step: bodies move, treasures are picked up or appear again, deposits are made, and
/// only then rewards and observations follow.
///
/// Agents observe each other and the treasures by distance. These are compared by their squares, and their order is
/// kept from step to step, since little changes in it.
class CollectTreasure final : public ParticleEnv {
 public:
  CollectTreasure(const Options& options, const ParticleOptions& common)
      : ParticleEnv(MakeLayout(options), common),
        options_(options),
        types_(options.deposits),
        treasure_types_(options.treasures),
        alive_(options.treasures),
        holding_(options.collectors, kNothing),
        agents_squared_(options.agents() * options.agents()),
        treasures_squared_(options.agents() * options.treasures),
        agent_order_(options.agents() * (options.agents() - 1)),
        treasure_order_(options.agents() * options.treasures),
        seen_(options.agents() * (2 + 2 * types_)),
        treasure_codes_(options.treasures * types_) {
    for (size_t d = 0; d < types_; ++d) Code(options.collectors + d)[d] = 1;
    for (size_t a = 0; a < options.agents(); ++a) {
      const absl::Span<size_t> others = AgentOrder(a);
      for (size_t i = 0; i < others.size(); ++i) others[i] = i < a ? i : i + 1;
      const absl::Span<size_t> treasures = TreasureOrder(a);
      std::iota(treasures.begin(), treasures.end(), size_t{0});
    }
  }

  bool has_drawn() const override { return has_drawn_; }

 private:
  void Begin(const env::EpisodeSeed& seed, base::PhiloxSequence& random) override {
    dynamics_ = seed.Sequence(base::RandomStream::kDynamics);
    respawns_.clear();
    next_respawn_ = 0;
    world().Scatter(0, num_agents(), 1, random);
    for (size_t t = 0; t < options_.treasures; ++t) {
      const int type = static_cast<int>(random.Below(static_cast<uint32_t>(types_)));
      world().Scatter(Entity(t), 1, kArena, random);
      SetTreasure(t, type, true);
    }
    for (size_t c = 0; c < options_.collectors; ++c) SetHolding(c, kNothing);
    MeasureAll();
  }

  absl::Status BeginFrom(const WorldState& state) override {
    const auto check = [&](const std::string& name, int type, int least) {
      if (type >= least && type < static_cast<int>(types_)) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("world: ", base::LogSafe(name), " has treasure type ", type,
                                                     ", expected one in [", least, ", ", types_ - 1, "]"));
    };
    for (size_t t = 0; t < options_.treasures; ++t) {
      const WorldState::Entity& treasure = state.landmarks[t];
      TROUPE_RETURN_IF_ERROR(check(treasure.name, treasure.type, 0));
      SetTreasure(t, treasure.type, treasure.alive);
    }
    for (size_t c = 0; c < options_.collectors; ++c) {
      TROUPE_RETURN_IF_ERROR(check(state.agents[c].name, state.agents[c].holding, kNothing));
      SetHolding(c, state.agents[c].holding);
    }
    for (const WorldState::Respawn& respawn : state.respawns) {
      TROUPE_RETURN_IF_ERROR(check("a respawn", respawn.type, 0));
    }
    respawns_ = state.respawns;
    next_respawn_ = 0;
    has_drawn_ = false;
    dynamics_ = env::EpisodeSeed().Sequence(base::RandomStream::kDynamics);
    MeasureAll();
    return absl::OkStatus();
  }

  void Score(absl::Span<double> rewards) override {
    MeasureAgents();
    for (size_t t = 0; t < options_.treasures; ++t) MeasureTreasure(t);
    double shared = 0;
    for (size_t t = 0; t < options_.treasures; ++t) {
      if (alive_[t] == 0) {
        Respawn(t);
      } else if (PickUp(t)) {
        shared += 5;
      }
    }
    for (size_t c = 0; c < options_.collectors; ++c) shared += Deliver(c) ? 5 : 0;
    for (size_t a = 0; a < num_agents(); ++a) {
      MendOrder(AgentsSquared(a), AgentOrder(a));
      MendOrder(TreasuresSquared(a), TreasureOrder(a));
      rewards[a] = (a < options_.collectors ? CollectorReward(a) : DepositReward(a)) + shared;
    }
  }

  /// The first collector that touches the treasure and has its hands free takes it.
  bool PickUp(size_t treasure) {
    for (size_t c = 0; c < options_.collectors; ++c) {
      if (!World::Within(TreasuresSquared(c)[treasure], kCollectorSize + kTreasureSize) || holding_[c] != kNothing)
        continue;
      SetHolding(c, treasure_types_[treasure]);
      SetTreasure(treasure, treasure_types_[treasure], false);
      MeasureTreasure(treasure);
      return true;
    }
    return false;
  }

  void Respawn(size_t treasure) {
    int type = 0;
    if (next_respawn_ < respawns_.size()) {
      const WorldState::Respawn& respawn = respawns_[next_respawn_++];
      world().x[Entity(treasure)] = respawn.position[0];
      world().y[Entity(treasure)] = respawn.position[1];
      type = respawn.type;
    } else {
      world().Scatter(Entity(treasure), 1, kArena, dynamics_);
      type = static_cast<int>(dynamics_.Below(static_cast<uint32_t>(types_)));
      has_drawn_ = true;
    }
    SetTreasure(treasure, type, true);
    MeasureTreasure(treasure);
  }

  bool Deliver(size_t collector) {
    if (holding_[collector] == kNothing) return false;
    const size_t deposit = options_.collectors + static_cast<size_t>(holding_[collector]);
    if (!World::Within(AgentsSquared(collector)[deposit], kCollectorSize + kDepositSize)) return false;
    SetHolding(collector, kNothing);
    return true;
  }

  double CollectorReward(size_t agent) {
    const double* agents = AgentsSquared(agent);
    int touches = 0;
    for (size_t c = 0; c < options_.collectors; ++c) touches += World::Within(agents[c], 2 * kCollectorSize) ? 1 : 0;
    touches -= 1;  // of itself
    double goal = 0;
    if (holding_[agent] != kNothing) {
      goal = std::sqrt(agents[options_.collectors + static_cast<size_t>(holding_[agent])]);
    } else if (const size_t nearest = TreasureOrder(agent)[0]; alive_[nearest] != 0) {
      goal = std::sqrt(TreasuresSquared(agent)[nearest]);
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
      nearest = std::min(nearest, holding_[c] == type ? AgentsSquared(agent)[c] : kInfinity);
      x += world().x[c];
      y += world().y[c];
    }
    if (nearest < kInfinity) return -0.1 * std::sqrt(nearest);
    x = x / static_cast<double>(options_.collectors) - world().x[agent];
    y = y / static_cast<double>(options_.collectors) - world().y[agent];
    return -0.1 * std::sqrt(x * x + y * y);
  }

  void Benchmark(size_t agent, absl::Span<double> values) const override {
    const int type = static_cast<int>(agent) - static_cast<int>(options_.collectors);
    values[0] = type < 0 ? holding_[agent] : static_cast<double>(std::count(holding_.begin(), holding_.end(), type));
    values[1] = static_cast<double>(std::count(alive_.begin(), alive_.end(), uint8_t{1}));
  }

  void BeforeObservations() override {
    for (size_t a = 0; a < num_agents(); ++a) {
      Seen(a)[0] = static_cast<float>(world().vx[a]);
      Seen(a)[1] = static_cast<float>(world().vy[a]);
    }
  }

  void Observe(size_t agent, ObservationRow& row) override {
    if (types_ == Options().deposits) {
      ObserveTypes(agent, row, std::integral_constant<size_t, Options().deposits>());
    } else {
      ObserveTypes(agent, row, types_);
    }
  }

  /// `types`: types_, as a constant where the compiler may know it.
  template <typename Types>
  void ObserveTypes(size_t agent, ObservationRow& row, Types types) {
    row.OwnPosition();
    row.OwnVelocity();
    if (agent < options_.collectors) row.Copy(Code(agent) + types, types);
    // Copies of bytes might change any pointer, for all that the compiler knows.
    const double* const x = world().x.data();
    const double* const y = world().y.data();
    const double own_x = x[agent];
    const double own_y = y[agent];
    const float* const seen = seen_.data();
    for (const size_t other : AgentOrder(agent)) {
      row.Pair(x[other] - own_x, y[other] - own_y);
      row.Copy(seen + other * (2 + 2 * types), 2 + 2 * types);
    }
    const double* const treasure_x = x + Entity(0);
    const double* const treasure_y = y + Entity(0);
    const float* const codes = treasure_codes_.data();
    for (const size_t t : TreasureOrder(agent)) {
      if (alive_[t] != 0) {
        row.Pair(treasure_x[t] - own_x, treasure_y[t] - own_y);
      } else {
        row.Zeros(2);
      }
      row.Copy(codes + t * types, types);
    }
  }

  void SetHolding(size_t collector, int type) {
    holding_[collector] = type;
    float* const held = Code(collector) + types_;
    std::fill_n(held, types_, 0.0f);
    if (type != kNothing) held[type] = 1;
  }

  /// A treasure that is not alive has no place and shows no type.
  void SetTreasure(size_t treasure, int type, bool alive) {
    treasure_types_[treasure] = type;
    alive_[treasure] = alive ? 1 : 0;
    float* const code = treasure_codes_.data() + treasure * types_;
    std::fill_n(code, types_, 0.0f);
    if (alive) code[type] = 1;
  }

  void MeasureAll() {
    MeasureAgents();
    for (size_t t = 0; t < options_.treasures; ++t) MeasureTreasure(t);
    for (size_t a = 0; a < num_agents(); ++a) {
      SortByDistance(AgentsSquared(a), AgentOrder(a));
      SortByDistance(TreasuresSquared(a), TreasureOrder(a));
    }
  }

  void MeasureAgents() {
    const size_t agents = num_agents();
    for (size_t a = 0; a < agents; ++a) {
      for (size_t b = 0; b < a; ++b) {
        const double squared = world().SquaredDistance(a, b);
        agents_squared_[a * agents + b] = squared;
        agents_squared_[b * agents + a] = squared;
      }
    }
  }

  void MeasureTreasure(size_t treasure) {
    for (size_t a = 0; a < num_agents(); ++a) {
      treasures_squared_[a * options_.treasures + treasure] =
          alive_[treasure] != 0 ? world().SquaredDistance(a, Entity(treasure)) : kGone * kGone;
    }
  }

  float* Seen(size_t agent) { return seen_.data() + agent * (2 + 2 * types_); }
  float* Code(size_t agent) { return Seen(agent) + 2; }
  size_t Entity(size_t treasure) const { return options_.agents() + treasure; }
  const double* AgentsSquared(size_t agent) const { return agents_squared_.data() + agent * options_.agents(); }
  const double* TreasuresSquared(size_t agent) const { return treasures_squared_.data() + agent * options_.treasures; }
  absl::Span<size_t> AgentOrder(size_t agent) {
    const size_t others = options_.agents() - 1;
    return absl::MakeSpan(agent_order_.data() + agent * others, others);
  }
  absl::Span<size_t> TreasureOrder(size_t agent) {
    return absl::MakeSpan(treasure_order_.data() + agent * options_.treasures, options_.treasures);
  }

  const Options options_;
  const size_t types_;
  std::vector<int> treasure_types_;
  std::vector<uint8_t> alive_;  ///< of every treasure: it lies there
  std::vector<int> holding_;    ///< of every collector: a type or kNothing
  base::PhiloxSequence dynamics_ = env::EpisodeSeed().Sequence(base::RandomStream::kDynamics);
  std::vector<WorldState::Respawn> respawns_;  ///< that a recording gave
  size_t next_respawn_ = 0;
  bool has_drawn_ = false;
  std::vector<double> agents_squared_;     ///< [agents, agents]
  std::vector<double> treasures_squared_;  ///< [agents, treasures]
  std::vector<size_t> agent_order_;        ///< [agents, agents - 1]: the others, nearest first
  std::vector<size_t> treasure_order_;     ///< [agents, treasures]: nearest first, those that are gone last
  /// [agents, 2 + 2 * types]: its velocity, what it accepts and what it holds, one-hot: as others see it.
  std::vector<float> seen_;
  std::vector<float> treasure_codes_;  ///< [treasures, types], one-hot, zeros of one that is gone
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
