#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace troupe::policy {

/// Names of what is written in Python begin with it: "python:MODULE:NAME", or "python:PATH/FILE.py:NAME".
inline constexpr std::string_view kPythonPrefix = "python:";
/// Characters of such a name at most, prefix included.
inline constexpr size_t kMaxPythonNameLength = 1024;

inline bool IsPythonName(std::string_view name) { return name.substr(0, kPythonPrefix.size()) == kPythonPrefix; }
/// What follows the prefix; all of a name without it.
inline std::string_view WithoutPythonPrefix(std::string_view name) {
  return IsPythonName(name) ? name.substr(kPythonPrefix.size()) : name;
}
/// INVALID_ARGUMENT for a name without module or attribute, or one that is too long. Whether Python finds it is not
/// looked at.
absl::Status ValidatePythonName(std::string_view name);

}  // namespace troupe::policy
