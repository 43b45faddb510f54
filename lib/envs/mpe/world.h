#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lib/base/philox.h"

namespace troupe::envs {

/// What an entity of a particle world is; fixed for the world's life.
struct EntityTraits {
  double size = 0.05;
  bool movable = false;
  bool collide = true;
  double max_speed = std::numeric_limits<double>::infinity();
};

/// Positions and velocities of a world as numbers: what a recorded episode starts from.
struct WorldState {
  struct Entity {
    std::string name;
    double position[2] = {0, 0};
    double velocity[2] = {0, 0};
  };
  std::vector<Entity> agents;
  std::vector<Entity> landmarks;
  int curriculum_stage = -1;  ///< -1: as the environment's arguments say
};

/// The physics that the environments of mpe2 1.1.1 share: round bodies in a plane, a soft contact force between
/// colliding ones, damped velocities, in double precision as numpy computes. Agents come first, then landmarks. Columns
/// are arrays of their own, so that loops over entities stay in a cache line or two.
///
/// Per step (dt = 0.1): forces of the agents' actions, contact forces from the positions before the step, then
///   p += v dt;  v = v (1 - 0.25) + (f / m) dt, m = 1;  |v| bounded by max_speed.
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

  World(const std::vector<EntityTraits>& agents, const std::vector<EntityTraits>& landmarks);

  int num_agents() const { return num_agents_; }
  int num_entities() const { return static_cast<int>(x.size()); }
  int num_landmarks() const { return num_entities() - num_agents_; }
  const EntityTraits& traits(int entity) const { return traits_[static_cast<size_t>(entity)]; }

  /// Uniform positions in [-1, 1)^2 and no velocity for every entity, in order.
  void ResetUniform(base::PhiloxSequence& random);
  /// One step with the control forces in fx, fy (of agents; those of landmarks must be 0). Consumes the forces.
  void Step();

  /// Copies of positions and velocities; `state` must have this world's numbers of agents and landmarks.
  void Set(const WorldState& state);

  // One element an entity.
  std::vector<double> x, y, vx, vy, fx, fy;

 private:
  /// Two entities that can touch, in the original's order of evaluation.
  struct Contact {
    int a = 0;
    int b = 0;
    double touch = 0;          ///< distance at which they touch
    double reach_squared = 0;  ///< beyond it there is no force
  };

  void AddContactForce(const Contact& contact);

  const int num_agents_;
  const std::vector<EntityTraits> traits_;
  std::vector<Contact> contacts_;
  std::vector<int> movable_;
  bool speed_limits_ = false;
};

}  // namespace troupe::envs
