#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace troupe::base {

/// The candidate that is most like `name`, for "did you mean": fewest insertions, deletions, replacements and swaps of
/// neighbours (Damerau's distance without overlaps), ignoring case; the first of equals. Empty when none is near: more
/// than a third of the longer name away, at least 2.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

/// NOT_FOUND: there is no `what` of that name; with the nearest of `known`, or all of them.
absl::Status NoSuchName(std::string_view what, std::string_view name, const std::vector<std::string>& known);

/// "a, b and 5 more": the first `most` of the names, which are one or more.
std::string FewOf(const std::vector<std::string>& names, size_t most);

}  // namespace troupe::base
