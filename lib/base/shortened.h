#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::base {

/// `text`; where it has more than `max_bytes` so many of them at most, cut between two characters, and "..." for the
/// rest.
std::string Shortened(std::string_view text, size_t max_bytes);

}  // namespace troupe::base
