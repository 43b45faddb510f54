// YamlLoader's half for schedules.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_scalars.h"
#include "lib/policy/algorithm_spec.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {

absl::Status YamlLoader::LoadSchedule(const YAML::Node& node, const std::string& key, const Field& field,
                                      Message* message) {
  const v1::KeyRule& rule = RuleOf(field);
  v1::Schedule schedule;
  if (node.IsSequence()) {
    TROUPE_RETURN_IF_ERROR(LoadSchedulePoints(node, key, field, &schedule));
  } else if (node.IsMap() && node["points"].IsDefined()) {
    TROUPE_RETURN_IF_ERROR(LoadPointSchedule(node, key, field, &schedule));
  } else if (node.IsMap()) {
    TROUPE_RETURN_IF_ERROR(LoadLinearSchedule(node, key, field, &schedule));
  } else {
    const std::optional<double> value = ParseDouble(node);
    if (!value || !InRange(rule, *value)) return WrongValue(node, key, field);
    schedule.set_initial(*value);
    schedule.set_final(*value);
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(schedule);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadLinearSchedule(const YAML::Node& node, const std::string& key, const Field& field,
                                            v1::Schedule* schedule) {
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, key, &seen));
    if (name == "initial" || name == "final") {
      const std::optional<double> value = ParseDouble(entry.second);
      if (!value || !InRange(RuleOf(field), *value)) return WrongValue(entry.second, JoinKey(key, name), field);
      name == "initial" ? schedule->set_initial(*value) : schedule->set_final(*value);
    } else if (name == "env_steps") {
      const std::optional<int64_t> value = ParseInteger(entry.second);
      if (!value || *value < 1) {
        return Error(entry.second,
                     absl::StrCat(key, ".env_steps: got ", Describe(entry.second), ", expected an integer >= 1"));
      }
      schedule->set_env_steps(*value);
    } else {
      return Error(entry.first, absl::StrCat("unknown key \"", base::LogSafe(JoinKey(key, name), 128),
                                             "\"; expected one of initial, final, env_steps; or points and by"));
    }
  }
  for (const char* part : {"initial", "final", "env_steps"}) {
    if (seen.count(part) == 0)
      return Error(node, absl::StrCat(key, ".", part, " is missing; expected {initial, final, env_steps}"));
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadPointSchedule(const YAML::Node& node, const std::string& key, const Field& field,
                                           v1::Schedule* schedule) {
  Seen seen;
  for (const auto& entry : node) {
    // Not moved out of it: g++ 12 takes that for uninitialized.
    const absl::StatusOr<std::string> found = EntryName(entry.first, key, &seen);
    TROUPE_RETURN_IF_ERROR(found.status());
    const std::string& name = *found;
    if (name == "points") {
      TROUPE_RETURN_IF_ERROR(LoadSchedulePoints(entry.second, JoinKey(key, name), field, schedule));
    } else if (name == "by") {
      const auto* const by =
          entry.second.IsScalar() ? FindEnumWord(*v1::ScheduleBy_descriptor(), entry.second.Scalar()) : nullptr;
      if (by == nullptr) {
        return Error(entry.second,
                     absl::StrCat(key, ".by: got ", Describe(entry.second), ", expected one of env_steps, updates"));
      }
      schedule->set_by(static_cast<v1::ScheduleBy>(by->number()));
    } else {
      return Error(entry.first, absl::StrCat("unknown key \"", base::LogSafe(JoinKey(key, name), 128),
                                             "\"; expected one of points, by"));
    }
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadSchedulePoints(const YAML::Node& node, const std::string& key, const Field& field,
                                            v1::Schedule* schedule) {
  constexpr size_t kMaxPoints = policy::ScheduleValue::kMaxPoints;
  if (!node.IsSequence()) {
    return Error(node, absl::StrCat(key, ": got ", Describe(node), ", expected a list of [AT, VALUE]"));
  }
  if (node.size() == 0 || node.size() > kMaxPoints) {
    return Error(node, absl::StrCat(key, ": got ", node.size(), " points, expected 1 to ", kMaxPoints));
  }
  if (schedule->by() == v1::SCHEDULE_BY_UNSPECIFIED) schedule->set_by(v1::SCHEDULE_BY_ENV_STEPS);
  int64_t before = -1;
  for (const YAML::Node& pair : node) {
    if (!pair.IsSequence() || pair.size() != 2) {
      return Error(pair, absl::StrCat(key, ": got ", Describe(pair),
                                      " as a point, expected [AT, VALUE]; write [[0, 1.0e-3], [1000000, "
                                      "1.0e-4]] for a list of them"));
    }
    const std::optional<int64_t> at = ParseInteger(pair[0]);
    if (!at || *at <= before) {
      return Error(pair[0],
                   absl::StrCat(key, ": got ", Describe(pair[0]), " as the time of a point, expected an integer ",
                                before < 0 ? ">= 0" : absl::StrCat("above that of the point before, ", before)));
    }
    const std::optional<double> value = ParseDouble(pair[1]);
    if (!value || !InRange(RuleOf(field), *value)) return WrongValue(pair[1], key, field);
    v1::SchedulePoint& point = *schedule->add_points();
    point.set_at(*at);
    point.set_value(*value);
    before = *at;
  }
  schedule->set_initial(schedule->points(0).value());
  schedule->set_final(schedule->points(schedule->points_size() - 1).value());
  return absl::OkStatus();
}

}  // namespace troupe::config
