#include "lib/policy/python_callable.h"

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace troupe::policy {

absl::Status ValidatePythonName(std::string_view name) {
  if (name.size() > kMaxPythonNameLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("got a name of ", name.size(), " characters, expected at most ", kMaxPythonNameLength));
  }
  const std::string_view rest = IsPythonName(name) ? name.substr(kPythonPrefix.size()) : std::string_view();
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && colon > 0 && colon + 1 < rest.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("got \"", base::LogSafe(name, 64), "\", expected python:MODULE:NAME"));
}

}  // namespace troupe::policy
