#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/policy/parameter_layout.h"

namespace troupe::policy {

/// Which entries of a layout globs over their names match (`*` any run, `?` one character), by entry. `more` are names
/// that a glob may match beside them. INVALID_ARGUMENT, with `owner` (`policy "p"`), for a glob that matches none, with
/// the nearest name or, where nothing is near, the names.
absl::StatusOr<std::vector<bool>> MatchEntries(const ParameterLayout& layout, const std::vector<std::string>& globs,
                                               std::string_view owner, const std::vector<std::string>& more = {});

}  // namespace troupe::policy
