#include "lib/training/core/schedule.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/option_reader.h"

namespace troupe::training {
namespace {

using policy::ScheduleUnit;
using policy::ScheduleValue;

double BetweenPoints(const std::vector<policy::SchedulePoint>& points, int64_t now) {
  const auto next = std::find_if(points.begin(), points.end(), [now](const auto& point) { return point.at > now; });
  if (next == points.begin()) return points.front().value;
  if (next == points.end()) return points.back().value;
  const policy::SchedulePoint& before = *(next - 1);
  return before.value + (next->value - before.value) *
                            (static_cast<double>(now - before.at) / static_cast<double>(next->at - before.at));
}

bool IsConstant(const ScheduleValue& schedule) {
  return schedule.points.empty() ? schedule.env_steps <= 0 : schedule.points.size() == 1;
}

absl::Status CheckTimes(const std::string& option, const ScheduleValue& schedule) {
  if (schedule.env_steps < 0) {
    return OptionError(option, static_cast<double>(schedule.env_steps), "env_steps of at least 0");
  }
  if (schedule.points.size() > ScheduleValue::kMaxPoints) {
    return OptionError(absl::StrCat(option, ".points"), static_cast<double>(schedule.points.size()),
                       absl::StrCat("at most ", ScheduleValue::kMaxPoints));
  }
  int64_t before = -1;
  for (const policy::SchedulePoint& point : schedule.points) {
    if (point.at <= before) {
      return OptionError(absl::StrCat(option, ".points"), static_cast<double>(point.at),
                         absl::StrCat("times that ascend, the next one above ", before));
    }
    before = point.at;
  }
  return absl::OkStatus();
}

/// When it turns, its first time not among them.
void AddTurns(const ScheduleValue& schedule, std::vector<ScheduleTime>* times) {
  if (schedule.points.empty() && schedule.env_steps > 0) times->push_back({.env_steps = schedule.env_steps});
  for (const policy::SchedulePoint& point : schedule.points) {
    times->push_back(schedule.by == ScheduleUnit::kUpdates ? ScheduleTime{.updates = point.at}
                                                           : ScheduleTime{.env_steps = point.at});
  }
}

}  // namespace

double ValueAt(const ScheduleValue& schedule, const ScheduleTime& time) {
  if (!schedule.points.empty()) {
    return BetweenPoints(schedule.points, schedule.by == ScheduleUnit::kUpdates ? time.updates : time.env_steps);
  }
  if (schedule.env_steps <= 0) return schedule.initial;
  if (time.env_steps >= schedule.env_steps) return schedule.final;
  return schedule.initial + (schedule.final - schedule.initial) *
                                (static_cast<double>(time.env_steps) / static_cast<double>(schedule.env_steps));
}

bool Moves(const policy::AlgorithmSpec& spec) {
  return std::any_of(spec.options.begin(), spec.options.end(), [](const auto& option) {
    const auto* const schedule = std::get_if<ScheduleValue>(&option.second);
    return schedule != nullptr && !IsConstant(*schedule);
  });
}

absl::StatusOr<StateForm> FormAtAllTimes(
    const policy::AlgorithmSpec& spec, absl::FunctionRef<absl::StatusOr<StateForm>(const ScheduleTime& time)> form_at) {
  std::vector<ScheduleTime> times;
  for (const auto& [key, value] : spec.options) {
    const auto* const schedule = std::get_if<ScheduleValue>(&value);
    if (schedule == nullptr) continue;
    TROUPE_RETURN_IF_ERROR(CheckTimes(key, *schedule));
    AddTurns(*schedule, &times);
  }
  TROUPE_ASSIGN_OR_RETURN(StateForm first, form_at({}));
  for (const ScheduleTime& time : times) {
    TROUPE_ASSIGN_OR_RETURN(const StateForm form, form_at(time));
    if (form == first) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("schedules of algorithm.*: the policy's state would change its form from \"", first.ToString(),
                     "\" to \"", form.ToString(), "\"; expected numbers that switch nothing on or off"));
  }
  return first;
}

}  // namespace troupe::training
