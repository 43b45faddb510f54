#include "lib/training/core/option_reader.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"

namespace troupe::training {
namespace {

std::string TypeOf(const policy::OptionValue& value) {
  constexpr const char* kTypes[] = {"a bool", "an integer", "a number", "a text", "a schedule", "a list"};
  return kTypes[value.index()];
}

}  // namespace

void OptionReader::Complain(std::string_view key, std::string_view got, std::string_view expected) {
  if (!status_.ok()) return;
  status_ =
      absl::InvalidArgumentError(absl::StrCat("algorithm.", std::string(key), " ", std::string(got), "; expected ",
                                              std::string(expected), " (algorithm \"", spec_.name, "\")"));
}

template <typename Member>
void OptionReader::ReadAs(std::string_view key, std::string_view expected, Member* member) {
  known_.emplace(key);
  const auto found = spec_.options.find(key);
  if (found == spec_.options.end()) return;
  if (const Member* value = std::get_if<Member>(&found->second)) {
    *member = *value;
  } else {
    Complain(key, absl::StrCat("is ", TypeOf(found->second)), expected);
  }
}

template void OptionReader::ReadAs(std::string_view, std::string_view, bool*);
template void OptionReader::ReadAs(std::string_view, std::string_view, int64_t*);
template void OptionReader::ReadAs(std::string_view, std::string_view, double*);
template void OptionReader::ReadAs(std::string_view, std::string_view, std::string*);
template void OptionReader::ReadAs(std::string_view, std::string_view, std::vector<std::string>*);

void OptionReader::Read(std::string_view key, LinearSchedule* member) {
  policy::ScheduleValue value = member->value();
  ReadAs(key, "a schedule", &value);
  *member = LinearSchedule(std::move(value));
}

absl::Status OptionReader::Finish() const {
  TROUPE_RETURN_IF_ERROR(status_);
  for (const auto& [key, value] : spec_.options) {
    if (known_.count(key) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("algorithm.", key, " is ", TypeOf(value), "; algorithm \"",
                                                   spec_.name, "\" has no such option, expected one of ",
                                                   absl::StrJoin(known_, ", ")));
  }
  return absl::OkStatus();
}

absl::Status OptionError(std::string_view option, double got, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.", std::string(option), " is ", got, "; expected ", std::string(expected)));
}

absl::Status CheckUnitInterval(std::string_view option, double value) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return OptionError(option, value, "a number in [0, 1]");
}

absl::Status CheckNotNegative(std::string_view option, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return OptionError(option, value, "a finite number of at least 0");
}

absl::Status CheckPositive(std::string_view option, double value) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return OptionError(option, value, "a finite number above 0");
}

absl::Status CheckSchedule(std::string_view option, const LinearSchedule& schedule) {
  TROUPE_RETURN_IF_ERROR(CheckNotNegative(option, schedule.initial));
  if (schedule.env_steps < 0)
    return OptionError(option, static_cast<double>(schedule.env_steps), "env_steps of at least 0");
  if (schedule.points.empty()) {
    return schedule.env_steps == 0 ? absl::OkStatus() : CheckNotNegative(option, schedule.final);
  }
  if (schedule.points.size() > policy::ScheduleValue::kMaxPoints) {
    return OptionError(absl::StrCat(std::string(option), ".points"), static_cast<double>(schedule.points.size()),
                       absl::StrCat("at most ", policy::ScheduleValue::kMaxPoints));
  }
  int64_t before = -1;
  for (const policy::SchedulePoint& point : schedule.points) {
    TROUPE_RETURN_IF_ERROR(CheckNotNegative(option, point.value));
    if (point.at <= before) {
      return OptionError(absl::StrCat(std::string(option), ".points"), static_cast<double>(point.at),
                         absl::StrCat("times that ascend, the next one above ", before));
    }
    before = point.at;
  }
  return absl::OkStatus();
}

}  // namespace troupe::training
