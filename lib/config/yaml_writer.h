#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace troupe::config {

/// Canonical YAML: every key in the schema's order, numbers in the shortest form that reads back exactly.
std::string WriteYaml(const v1::RunConfig& config);

/// Whether a key is to be written.
using KeyFilter = std::function<bool(const google::protobuf::FieldDescriptor& key)>;
/// The same of these keys alone.
std::string WriteYaml(const v1::RunConfig& config, const KeyFilter& include);

/// The same with each key's meaning, range and default above it as a comment.
std::string WriteCommentedYaml(const v1::RunConfig& config);

/// The canonical value of one key ("algorithm.gamma"), which may have several lines; the key must exist. Empty where it
/// is one of another algorithm.
std::string ValueText(const v1::RunConfig& config, std::string_view key);

/// The same of a section's own key.
std::string ValueText(const google::protobuf::Message& section, const google::protobuf::FieldDescriptor& key);

/// An argument's value in YAML's flow form, so that it takes one line.
std::string ArgumentText(const v1::Argument& argument);

/// Tables of keys, one a section, and one for each algorithm's.
std::string WriteMarkdown(const v1::RunConfig& config);

}  // namespace troupe::config
