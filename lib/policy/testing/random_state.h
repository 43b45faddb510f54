#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/philox.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_state.h"

namespace troupe::policy {

/// A valid state of `spec`, with the blocks that PPO has, whose numbers are all drawn from `seed`.
inline PolicyState RandomState(const PolicySpec& spec, uint64_t seed) {
  base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
  const auto draw = [&random](auto values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    for (auto& value : values) value = 1.0f + 0.25f * static_cast<float>(random.Below(1000)) / 1000;
    return values;
  };
  const auto moments = [&draw](double count, int64_t columns) {
    RunningMoments drawn;
    drawn.count = count;
    drawn.mean = draw(std::vector<double>(), columns);
    drawn.variance = draw(std::vector<double>(), columns);
    return drawn;
  };
  PolicyState state;
  state.id = spec.id;
  state.version = {3, static_cast<int64_t>(seed)};
  const int64_t size = ParameterLayout::For(spec).size();
  state.Set(kParameters, draw(std::vector<float>(), size));
  state.Set("adam.exp_avg", draw(std::vector<float>(), size));
  state.Set("adam.exp_avg_sq", draw(std::vector<float>(), size));
  state.SetInteger("adam.steps", 17);
  if (spec.normalize_observations) state.SetMoments(kObservationMoments, moments(5, spec.observation_size()));
  state.SetMoments("value_moments", moments(12.5, 1));
  state.SetInteger("trained_rows", 100 + static_cast<int64_t>(seed));
  state.SetInteger("skipped_updates", 2);
  state.SetInteger("consecutive_skips", 1);
  return state;
}

}  // namespace troupe::policy
