#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lib/policy/algorithm_spec.h"

namespace troupe::training {

/// Where a run stands.
struct ScheduleTime {
  int64_t env_steps = 0;  ///< trained ones
  int64_t updates = 0;
};

/// A policy::ScheduleValue that is asked for its value. A number is a constant one.
struct LinearSchedule : policy::ScheduleValue {
  LinearSchedule(double constant = 0) : LinearSchedule(constant, constant, 0) {}  // NOLINT(google-explicit-constructor)
  LinearSchedule(double initial, double final, int64_t env_steps) : ScheduleValue{initial, final, env_steps} {}
  explicit LinearSchedule(policy::ScheduleValue value) : ScheduleValue(std::move(value)) {}

  const policy::ScheduleValue& value() const { return *this; }
  bool is_constant() const { return points.empty() ? env_steps <= 0 : points.size() == 1; }

  double At(const ScheduleTime& time) const {
    if (!points.empty()) return BetweenPoints(by == policy::ScheduleUnit::kUpdates ? time.updates : time.env_steps);
    if (env_steps <= 0) return initial;
    if (time.env_steps >= env_steps) return final;
    return initial + (final - initial) * (static_cast<double>(time.env_steps) / static_cast<double>(env_steps));
  }

 private:
  double BetweenPoints(int64_t now) const {
    const auto next = std::find_if(points.begin(), points.end(), [now](const auto& point) { return point.at > now; });
    if (next == points.begin()) return points.front().value;
    if (next == points.end()) return points.back().value;
    const policy::SchedulePoint& before = *(next - 1);
    return before.value + (next->value - before.value) *
                              (static_cast<double>(now - before.at) / static_cast<double>(next->at - before.at));
  }
};

}  // namespace troupe::training
