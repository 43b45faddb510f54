#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"

namespace troupe::env {

// What crosses the border of plugin_abi.h as JSON.

/// The spec of environment `name` that the JSON describes. INVALID_ARGUMENT with the key that is wrong, or as
/// EnvSpec::Validate says.
absl::StatusOr<EnvSpec> ParsePluginSpec(std::string_view name, std::string_view json);
/// The JSON that ParsePluginSpec reads.
std::string PluginSpecJson(const EnvSpec& spec);

/// The inverse of ArgsJson; empty text is {}. A number is an integer when it is written as one. INVALID_ARGUMENT for
/// what is no JSON object, and for lists and mappings nested more than 16 deep.
absl::StatusOr<EnvArgs> ParseEnvArgsJson(std::string_view json);

}  // namespace troupe::env
