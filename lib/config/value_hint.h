#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/troupe/v1/config.pb.h"
#include <yaml-cpp/yaml.h>

namespace troupe::config {

/// The end of an error about a value that a key cannot have: what to write where that can be told ("; write 4000" for
/// 4_000, true for yes, [64, 64] for 64,64, a schedule for RLlib's list), else the key's default. Empty: neither.
std::string ValueHint(const YAML::Node& node, std::string_view key, const google::protobuf::FieldDescriptor& field);

/// What is wrong with a text that names no return, and what to write: `got "hunter", expected sum, mean, policy:ID or
/// agent:GLOB; write policy:hunter`.
std::string NoReturn(std::string_view text);

/// The same where a section was expected: `algorithm: PPO` is `algorithm: {name: ppo}`, `lr:1e-3` lacks a space.
/// `section` is empty for the configuration itself, `keys` are those it may have; `as_override`: it was given by --set.
std::string SectionHint(const YAML::Node& node, std::string_view section, const google::protobuf::Descriptor& type,
                        const std::vector<std::string>& keys, bool as_override);

}  // namespace troupe::config
