#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lib/base/philox.h"

namespace troupe::envs {

/// What an entity of a particle world is.
struct EntityTraits {
  double size = 0.05;
  bool movable = false;
  bool collide = true;
  double max_speed = std::numeric_limits<double>::infinity();
  double accel = 5;    ///< control force of a full action
  double mass = 1;     ///< what forces are divided by
  bool silent = true;  ///< of an agent: it has no channel to speak on
};

/// A world as numbers: what a recorded episode starts from. What an environment does not have is left as it is here.
struct WorldState {
  struct Entity {
    std::string name;
    double position[2] = {0, 0};
    double velocity[2] = {0, 0};
    std::vector<double> said;  ///< of an agent: one number a channel; empty is silence
    std::string goal_a;        ///< name of an entity, empty: none
    std::string goal_b;        ///< likewise
    std::vector<double> key;   ///< of the agent that encrypts
    int type = 0;              ///< of a treasure
    bool alive = true;         ///< of a treasure: it lies there
    int holding = -1;          ///< of a collector: the type of treasure that it carries, -1: none
  };
  /// Where a treasure will appear again, and of which type.
  struct Respawn {
    double position[2] = {0, 0};
    int type = 0;
  };
  std::vector<Entity> agents;
  std::vector<Entity> landmarks;
  int curriculum_stage = -1;      ///< -1: as the environment's arguments say
  std::vector<Respawn> respawns;  ///< those of the episode, in order, as far as they are known
};

/// The physics that the environments of mpe2 1.1.1 share: round bodies in a plane, a soft contact force between
/// colliding ones, damped velocities, and what agents say, in double precision as numpy computes. Agents come first,
/// then landmarks. Columns are arrays of their own, so that loops over entities stay in a cache line or two.
///
/// Per step (dt = 0.1): forces of the agents' actions, contact forces from the positions before the step, then
///   p += v dt;  v = v (1 - 0.25) + (f / m) dt;  |v| bounded by max_speed.
/// Contact of a and b at distance d: f = 100 (p_a - p_b) / d * k log(1 + exp(-(d - size_a - size_b) / k)), k = 0.001.
/// Two differences from the original: a contact further than 45 k outside touch gives exactly no force (there: below
/// 3e-21), and bodies at the very same place do not push each other (there: NaN).
///
/// Not thread-safe; no allocation after construction.
class World {
 public:
  static constexpr double kTimeStep = 0.1;
  static constexpr double kDamping = 0.25;
  static constexpr double kContactForce = 100.0;
  static constexpr double kContactMargin = 1e-3;

  /// `channels`: how many numbers an agent that is not silent says in a step.
  World(const std::vector<EntityTraits>& agents, const std::vector<EntityTraits>& landmarks, size_t channels = 0);

  size_t num_agents() const { return num_agents_; }
  size_t num_entities() const { return x.size(); }
  size_t num_landmarks() const { return num_entities() - num_agents_; }
  size_t channels() const { return channels_; }
  const EntityTraits& traits(size_t entity) const { return traits_[entity]; }
  /// The first channel of what the agent says, 0 where it is silent.
  double* said(size_t agent) { return said_.data() + agent * channels_; }
  const double* said(size_t agent) const { return said_.data() + agent * channels_; }

  double SquaredDistance(size_t a, size_t b) const {
    const double dx = x[a] - x[b];
    const double dy = y[a] - y[b];
    return dx * dx + dy * dy;
  }
  double Distance(size_t a, size_t b) const { return std::sqrt(SquaredDistance(a, b)); }
  /// Whether a distance of this square is less than `distance`. The square first, since it is far almost always; the
  /// root decides, as in the original.
  static bool Within(double squared, double distance) {
    return squared < distance * distance * 1.001 && std::sqrt(squared) < distance;
  }
  /// Whether the bodies overlap, colliding or not.
  bool Touch(size_t a, size_t b) const { return Within(SquaredDistance(a, b), traits_[a].size + traits_[b].size); }

  /// Another force of a full action and another bound of the speed from the next step on.
  void SetPower(size_t agent, double accel, double max_speed);

  /// No velocities, no forces, silence.
  void Rest();
  /// Uniform positions in [-bound, bound)^2 for `count` entities from `first` on, in order.
  void Scatter(size_t first, size_t count, double bound, base::PhiloxSequence& random);
  /// One step with the control forces in fx, fy (of agents; those of landmarks must be 0). Consumes the forces.
  void Step();

  /// Copies of positions, velocities and what is said; `state` must have this world's numbers of agents and landmarks.
  void Set(const WorldState& state);

  // One element an entity.
  std::vector<double> x, y, vx, vy, fx, fy;

 private:
  /// Two entities that can touch, in the original's order of evaluation.
  struct Contact {
    size_t a = 0;
    size_t b = 0;
    double touch = 0;          ///< distance at which they touch
    double reach_squared = 0;  ///< beyond it there is no force
  };

  void AddContactForce(const Contact& contact);
  void LimitSpeeds();

  const size_t num_agents_;
  const size_t channels_;
  std::vector<EntityTraits> traits_;
  std::vector<Contact> contacts_;
  std::vector<size_t> movable_;
  std::vector<double> said_;   ///< [agents, channels]
  bool speed_limits_ = false;  ///< some speed is bounded
  bool masses_ = false;        ///< some mass is not 1
};

}  // namespace troupe::envs
