#pragma once

#include <string>
#include <string_view>

#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {

/// Canonical YAML: every key in the schema's order, numbers in the shortest form that reads back exactly.
std::string WriteYaml(const v1::RunConfig& config);

/// The same with each key's meaning, range and default above it as a comment.
std::string WriteCommentedYaml(const v1::RunConfig& config);

/// The canonical value of one key ("algorithm.gamma"), which may have several lines; the key must exist.
std::string ValueText(const v1::RunConfig& config, std::string_view key);

/// Tables of keys, one a section.
std::string WriteMarkdown(const v1::RunConfig& config);

}  // namespace troupe::config
