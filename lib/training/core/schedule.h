#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/state_form.h"

/// Schedules of an AlgorithmSpec. An algorithm knows none: it parses its options at a time, at which every schedule is
/// a number (OptionReader).
namespace troupe::training {

/// Where a run stands.
struct ScheduleTime {
  int64_t env_steps = 0;  ///< trained ones
  int64_t updates = 0;
};

/// The value of a schedule at that time.
double ValueAt(const policy::ScheduleValue& schedule, const ScheduleTime& time);

/// True if any option of the spec is another number at another time.
bool Moves(const policy::AlgorithmSpec& spec);

/// The form that `form_at` gives of the spec's state at every time at which one of its schedules turns, of which the
/// first is 0. Between two of them all numbers are between theirs. INVALID_ARGUMENT for a schedule that is none
/// (at most ScheduleValue::kMaxPoints points, whose times are at least 0 and ascend), what `form_at` says at any of the
/// times, and where two forms differ.
absl::StatusOr<StateForm> FormAtAllTimes(
    const policy::AlgorithmSpec& spec, absl::FunctionRef<absl::StatusOr<StateForm>(const ScheduleTime& time)> form_at);

}  // namespace troupe::training
