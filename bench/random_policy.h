#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lib/base/philox.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe {

/// A policy for one of simple_spread's agents, with the default networks.
inline policy::PolicySpec SpreadSpec(policy::PolicyId id) {
  policy::PolicySpec spec;
  spec.id = std::move(id);
  spec.observation_space = *space::Space::Box(-100, 100, {18});
  spec.action_space = *space::Space::Discrete(5);
  return spec;
}

/// Weights like those of a network in training; another `index`, others.
inline policy::WeightSnapshotPtr RandomWeights(const policy::PolicySpec& spec, uint32_t index = 0) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()));
  base::PhiloxSequence random(base::PhiloxKey::Make(1, base::RandomStream::kTest), {.env_id = index});
  for (float& w : weights->actor) w = static_cast<float>(random.Uniform(-0.2, 0.2));
  return weights;
}

}  // namespace troupe
