#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <nlohmann/json.hpp>

namespace troupe::base {

/// What JSON that somebody else wrote may ask for.
struct JsonLimits {
  size_t max_bytes = 0;
  int max_depth = 16;                   ///< containers inside one another; who walks a tree does so recursively
  size_t max_values = size_t{1} << 18;  ///< that are kept, keys and containers included: some 80 bytes each
  /// Whether a key's value is wanted, at the depth of the key, from 1; what is not costs no memory. Absent: all is.
  std::function<bool(int depth, const std::string& key)> keep;
};

/// INVALID_ARGUMENT, beginning with a verb: the text is no JSON or exceeds a limit. Nothing of the text is in the
/// message, for it may be any file's.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits);

/// A number written as an integer; throws nlohmann's type_error for all else. (`get<int64_t>` converts any number,
/// which is undefined for one that an int64_t cannot hold.)
int64_t JsonInteger(const nlohmann::json& value);

}  // namespace troupe::base
