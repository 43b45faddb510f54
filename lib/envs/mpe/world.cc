#include "lib/envs/mpe/world.h"

#include <algorithm>
#include <cmath>

#include "lib/base/check.h"

namespace troupe::envs {
namespace {

std::vector<EntityTraits> Concatenate(const std::vector<EntityTraits>& a, const std::vector<EntityTraits>& b) {
  std::vector<EntityTraits> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

/// log(exp(0) + exp(x)) without overflow, as numpy's logaddexp(0, x).
double LogOnePlusExp(double x) { return x <= 0 ? std::log1p(std::exp(x)) : x + std::log1p(std::exp(-x)); }

}  // namespace

World::World(const std::vector<EntityTraits>& agents, const std::vector<EntityTraits>& landmarks, size_t channels)
    : num_agents_(agents.size()),
      channels_(channels),
      traits_(Concatenate(agents, landmarks)),
      said_(agents.size() * channels) {
  const size_t count = traits_.size();
  for (std::vector<double>* column : {&x, &y, &vx, &vy, &fx, &fy}) column->assign(count, 0.0);
  for (size_t a = 0; a < count; ++a) {
    if (traits_[a].movable) movable_.push_back(a);
    speed_limits_ = speed_limits_ || std::isfinite(traits_[a].max_speed);
    masses_ = masses_ || traits_[a].mass != 1;
    for (size_t b = a + 1; b < count; ++b) {
      if (!traits_[a].collide || !traits_[b].collide || (!traits_[a].movable && !traits_[b].movable)) continue;
      const double touch = traits_[a].size + traits_[b].size;
      // Beyond 45 margins the force is below 100 * 0.001 * exp(-45) = 3e-21: nothing beside a control force, and 1e-20
      // of speed without.
      const double reach = touch + 45 * kContactMargin;
      contacts_.push_back(Contact{a, b, touch, reach * reach});
    }
  }
}

void World::SetPower(size_t agent, double accel, double max_speed) {
  traits_[agent].accel = accel;
  traits_[agent].max_speed = max_speed;
  speed_limits_ = speed_limits_ || std::isfinite(max_speed);
}

void World::Rest() {
  for (std::vector<double>* column : {&vx, &vy, &fx, &fy, &said_}) std::fill(column->begin(), column->end(), 0.0);
}

void World::Scatter(size_t first, size_t count, double bound, base::PhiloxSequence& random) {
  for (size_t i = first; i < first + count; ++i) {
    x[i] = random.Uniform(-bound, bound);
    y[i] = random.Uniform(-bound, bound);
  }
}

void World::AddContactForce(const Contact& contact) {
  const size_t a = contact.a;
  const size_t b = contact.b;
  const double dx = x[a] - x[b];
  const double dy = y[a] - y[b];
  const double distance = std::sqrt(dx * dx + dy * dy);
  if (distance == 0) return;
  const double penetration = LogOnePlusExp(-(distance - contact.touch) / kContactMargin) * kContactMargin;
  const double force_x = kContactForce * dx / distance * penetration;
  const double force_y = kContactForce * dy / distance * penetration;
  // Whether a pushed entity moves is decided when forces are applied.
  fx[a] += force_x;
  fy[a] += force_y;
  fx[b] -= force_x;
  fy[b] -= force_y;
}

void World::Step() {
  for (const Contact& contact : contacts_) {
    if (SquaredDistance(contact.a, contact.b) < contact.reach_squared) AddContactForce(contact);
  }
  if (masses_) {
    for (const size_t i : movable_) {
      fx[i] /= traits_[i].mass;
      fy[i] /= traits_[i].mass;
    }
  }
  for (const size_t i : movable_) {
    x[i] += vx[i] * kTimeStep;
    y[i] += vy[i] * kTimeStep;
    vx[i] = vx[i] * (1 - kDamping) + fx[i] * kTimeStep;
    vy[i] = vy[i] * (1 - kDamping) + fy[i] * kTimeStep;
  }
  for (double& force : fx) force = 0;
  for (double& force : fy) force = 0;
  if (speed_limits_) LimitSpeeds();
}

void World::LimitSpeeds() {
  for (const size_t i : movable_) {
    const double speed = std::sqrt(vx[i] * vx[i] + vy[i] * vy[i]);
    if (speed <= traits_[i].max_speed) continue;
    vx[i] = vx[i] / speed * traits_[i].max_speed;
    vy[i] = vy[i] / speed * traits_[i].max_speed;
  }
}

void World::Set(const WorldState& state) {
  TROUPE_CHECK(state.agents.size() == num_agents() && state.landmarks.size() == num_landmarks());
  Rest();
  for (size_t i = 0; i < x.size(); ++i) {
    const WorldState::Entity& entity = i < num_agents_ ? state.agents[i] : state.landmarks[i - num_agents_];
    x[i] = entity.position[0];
    y[i] = entity.position[1];
    vx[i] = entity.velocity[0];
    vy[i] = entity.velocity[1];
    if (i < num_agents_ && entity.said.size() == channels_) {
      std::copy(entity.said.begin(), entity.said.end(), said_.begin() + static_cast<std::ptrdiff_t>(i * channels_));
    }
  }
}

}  // namespace troupe::envs
