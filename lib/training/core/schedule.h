#pragma once

#include <cstdint>

#include "lib/policy/algorithm_spec.h"

namespace troupe::training {

/// A value that moves linearly from `initial` to `final` over `env_steps` steps and stays; env_steps 0: constant.
struct LinearSchedule {
  double initial = 0;
  double final = 0;
  int64_t env_steps = 0;

  static LinearSchedule Of(const policy::ScheduleValue& value) { return {value.initial, value.final, value.env_steps}; }
  policy::ScheduleValue value() const { return {initial, final, env_steps}; }

  double At(int64_t now) const {
    if (env_steps <= 0) return initial;
    if (now >= env_steps) return final;
    return initial + (final - initial) * (static_cast<double>(now) / static_cast<double>(env_steps));
  }
};

}  // namespace troupe::training
