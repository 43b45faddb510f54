#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace troupe::base {

/// Whether `text` begins as a URL does, "s3://": Troupe reads and writes folders alone.
bool IsUrl(std::string_view text);

/// INVALID_ARGUMENT for a URL where only a path works.
absl::Status CheckIsPath(std::string_view text);

}  // namespace troupe::base
