#pragma once

#include <cstdint>
#include <optional>

#include "proto/troupe/v1/config.pb.h"
#include <yaml-cpp/yaml.h>

/// What a YAML scalar reads as. Quoted ones ("5") are strings, whatever they look like.
namespace troupe::config {

bool IsPlain(const YAML::Node& node);
/// Finite numbers.
std::optional<double> ParseDouble(const YAML::Node& node);
/// Integers, and numbers like 1e6 that are one.
std::optional<int64_t> ParseInteger(const YAML::Node& node);
std::optional<bool> ParseBool(const YAML::Node& node);
/// The rule's word for a field that is not set: auto, none.
bool IsUnsetWord(const YAML::Node& node, const v1::KeyRule& rule);

}  // namespace troupe::config
