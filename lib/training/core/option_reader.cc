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

void OptionReader::Read(std::string_view key, double* member) {
  const auto found = spec_.options.find(key);
  const auto* const schedule =
      found == spec_.options.end() ? nullptr : std::get_if<policy::ScheduleValue>(&found->second);
  if (schedule == nullptr) return ReadAs(key, "a number, or a schedule", member);
  known_.emplace(key);
  *member = ValueAt(*schedule, now_);
}

void OptionReader::Read(std::string_view key, std::optional<double>* member) {
  double value = 0;
  Read(key, &value);
  if (Has(key)) *member = value;
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

}  // namespace troupe::training
