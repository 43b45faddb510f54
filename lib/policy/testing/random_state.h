#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/philox.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::policy {

/// A valid state of `spec` whose numbers are all drawn from `seed`.
inline PolicyState RandomState(const PolicySpec& spec, uint64_t seed) {
  base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
  const auto draw = [&random](auto* values, int64_t count) {
    values->resize(static_cast<size_t>(count));
    for (auto& value : *values) value = 1.0f + 0.25f * static_cast<float>(random.Below(1000)) / 1000;
  };
  PolicyState state;
  state.id = spec.id;
  state.version = {3, static_cast<int64_t>(seed)};
  const int64_t size = ParameterLayout::For(spec).size();
  draw(&state.parameters, size);
  draw(&state.adam_exp_avg, size);
  draw(&state.adam_exp_avg_sq, size);
  state.adam_steps = 17;
  const int64_t moments = spec.normalize_observations ? spec.observation_size() : 0;
  state.observation_moments.count = static_cast<double>(moments);
  draw(&state.observation_moments.mean, moments);
  draw(&state.observation_moments.variance, moments);
  state.value_moments.count = 12.5;
  draw(&state.value_moments.mean, 1);
  draw(&state.value_moments.variance, 1);
  state.trained_rows = 100 + static_cast<int64_t>(seed);
  state.skipped_updates = 2;
  state.consecutive_skips = 1;
  return state;
}

}  // namespace troupe::policy
