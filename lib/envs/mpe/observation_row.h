#pragma once

#include <cstddef>
#include <cstring>

#include "absl/types/span.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// Writes one agent's observation from front to back, rounded to float32 as the original does. A value; used by one
/// thread.
class ObservationRow {
 public:
  ObservationRow(const World& world, size_t self, float* begin) : world_(world), self_(self), next_(begin) {}

  void Value(double value) { *next_++ = static_cast<float>(value); }
  void Pair(double a, double b) {
    next_[0] = static_cast<float>(a);
    next_[1] = static_cast<float>(b);
    next_ += 2;
  }
  void Values(absl::Span<const double> values) {
    for (const double value : values) Value(value);
  }
  /// Numbers that are float32 already. So few that a call of memcpy would cost more than they do, unless the compiler
  /// knows how many: then it is a move or two.
  void Copy(const float* values, size_t count) {
    if (__builtin_constant_p(count)) {
      std::memcpy(next_, values, count * sizeof(float));
    } else {
      for (size_t i = 0; i < count; ++i) next_[i] = values[i];
    }
    next_ += count;
  }
  void Zeros(size_t count) {
    for (size_t i = 0; i < count; ++i) next_[i] = 0;
    next_ += count;
  }
  void OwnPosition() { Pair(world_.x[self_], world_.y[self_]); }
  void Velocity(size_t entity) { Pair(world_.vx[entity], world_.vy[entity]); }
  void OwnVelocity() { Velocity(self_); }
  /// The entity's position as seen from the agent.
  void Relative(size_t entity) { Pair(world_.x[entity] - world_.x[self_], world_.y[entity] - world_.y[self_]); }
  void AllLandmarks() {
    for (size_t entity = world_.num_agents(); entity < world_.num_entities(); ++entity) Relative(entity);
  }
  void OtherAgents() {
    for (size_t agent = 0; agent < world_.num_agents(); ++agent) {
      if (agent != self_) Relative(agent);
    }
  }
  /// Some entities and zeros in place of those that are missing to `slots`.
  void Padded(absl::Span<const size_t> entities, size_t slots) {
    for (const size_t entity : entities) Relative(entity);
    Zeros(2 * (slots - entities.size()));
  }
  /// What the agent said in the last step.
  void Said(size_t agent) { Values(absl::MakeConstSpan(world_.said(agent), world_.channels())); }

  const float* next() const { return next_; }

 private:
  const World& world_;
  const size_t self_;
  float* next_;
};

}  // namespace troupe::envs
