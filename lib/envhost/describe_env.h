#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/env/env_spec.h"
#include <nlohmann/json.hpp>

namespace troupe::envhost {

/// The spec of an environment `name` from the description that its process sends (python/troupe/env_host.py). Checked
/// like everything from outside; INVALID_ARGUMENT names the agent and what is wrong.
absl::StatusOr<env::EnvSpec> ReadDescription(const std::string& name, const nlohmann::json& description);

/// What the process took the environment for, in words for people: "PettingZoo parallel, 3 agents". Empty: it did not
/// say.
std::string RecognizedAs(const nlohmann::json& description);

/// A space from its JSON form: {"type": "Box", "shape", "dtype", "low", "high"} with bounds as a number, "inf", "-inf"
/// or a list of them, Discrete {n, start}, MultiDiscrete {nvec}, MultiBinary {n}, Dict and Tuple {spaces}. Other keys
/// are ignored.
absl::StatusOr<space::Space> ReadSpace(const nlohmann::json& json, int depth = 0);

}  // namespace troupe::envhost
