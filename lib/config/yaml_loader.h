#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/config/algorithm_names.h"
#include "lib/config/schema.h"
#include "proto/troupe/v1/config.pb.h"
#include <yaml-cpp/yaml.h>

namespace troupe::config {

/// Where each key's value was written: full key -> "file:line:column".
using PlaceMap = std::map<std::string, std::string>;

/// Reads one YAML source into a configuration, driven by the schema's descriptor. Not thread-safe. Errors are
/// INVALID_ARGUMENT with the place.
class YamlLoader {
 public:
  /// `source` is the file's name. When `fixed_place` is not empty, errors and places show it instead of source, line
  /// and column (--set). `names` has read every source of the configuration; borrowed, as `places` is.
  YamlLoader(std::string source, std::string fixed_place, const AlgorithmNames* names, PlaceMap* places)
      : source_(std::move(source)), fixed_place_(std::move(fixed_place)), names_(*names), places_(*places) {}

  /// Sets the keys that `node` has; what it does not name stays as it is. Free mappings (also inside each other)
  /// and policies are merged entry by entry, lists and policy_mapping are replaced.
  absl::Status Load(const YAML::Node& node, v1::RunConfig* config);
  /// Sets one field of a section to what its rule gives as default.
  absl::Status LoadDefault(const YAML::Node& node, const google::protobuf::FieldDescriptor& field,
                           google::protobuf::Message* section) {
    return LoadKey(node, field.name(), field, section);
  }

 private:
  using Field = google::protobuf::FieldDescriptor;
  using Message = google::protobuf::Message;

  absl::Status LoadSection(const YAML::Node& node, const std::string& section, Message* message);
  /// The key of `entry`, where there is one, and the message that gets its value: the section, or an algorithm's
  /// options.
  struct Target {
    const Field* field = nullptr;
    Message* message = nullptr;
  };
  absl::StatusOr<Target> FindTarget(const YAML::Node& entry, const std::string& section, Message* message) const;
  absl::Status LoadKey(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadScalar(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadConvFilters(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadLeafEncoders(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadLeafEncoder(const YAML::Node& node, const std::string& key, v1::LeafEncoder* encoder);
  absl::Status LoadConvolution(const YAML::Node& node, const std::string& key, v1::ConvFilter* filter);
  absl::Status LoadIntegerList(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadStringList(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadArguments(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadReturnTargets(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadPolicies(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadPolicyMapping(const YAML::Node& node, const std::string& key, const Field& field, Message* message);

  // Of free mappings; in yaml_arguments.cc.
  using Arguments = google::protobuf::RepeatedPtrField<v1::Argument>;
  static constexpr int kMaxArgumentDepth = 16;
  static constexpr int64_t kMaxArgumentBytes = 512 << 10;  ///< of one free mapping: written out again it can be read
  static constexpr int64_t kMaxArgumentValues = 65536;     ///< of one free mapping; lists and mappings count, too
  /// Merges the entries of a mapping into `merged`: those that are there keep their places, others follow in their
  /// order. `depth`: lists and mappings around the mapping.
  absl::Status MergeArguments(const YAML::Node& node, const std::string& key, int depth, Arguments* merged);
  absl::Status LoadArgument(const YAML::Node& node, const std::string& key, int depth, v1::Argument* argument);
  absl::Status TooManyValues(const YAML::Node& node, const std::string& key) const;

  // Of schedules; in yaml_schedule.cc.
  absl::Status LoadSchedule(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadLinearSchedule(const YAML::Node& node, const std::string& key, const Field& field,
                                  v1::Schedule* schedule);
  absl::Status LoadPointSchedule(const YAML::Node& node, const std::string& key, const Field& field,
                                 v1::Schedule* schedule);
  /// [[at, value], ...]
  absl::Status LoadSchedulePoints(const YAML::Node& node, const std::string& key, const Field& field,
                                  v1::Schedule* schedule);

  // Of env; in yaml_env.cc.
  absl::Status LoadGroups(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadGroup(const YAML::Node& node, const std::string& key, v1::AgentGroup* group);
  absl::Status LoadRange(const YAML::Node& node, const std::string& key, const Field& field, Message* message);

  // Of multi_agent; in yaml_multi_agent.cc.
  absl::Status LoadPolicy(const YAML::Node& node, const std::string& key, v1::PolicyConfig* policy);
  absl::Status LoadPolicyClass(const YAML::Node& node, const std::string& key, v1::PolicyConfig* policy);
  absl::Status LoadAgents(const YAML::Node& node, const std::string& key, const Field& field, Message* message);
  absl::Status LoadAlgorithmOverrides(const YAML::Node& node, const std::string& key, v1::AlgorithmConfig* algorithm);
  absl::Status LoadModelOverrides(const YAML::Node& node, const std::string& key, v1::ModelConfig* model);
  /// An error where the word for "not set" is to override what is.
  absl::Status CheckOverrides(const YAML::Node& value, const std::string& key, const Field& field) const;
  /// The canonical text of a space.
  absl::StatusOr<std::string> LoadSpace(const YAML::Node& node, const std::string& key);
  /// What a rule maps to: an id, {id: weight} or {function: NAME}.
  absl::Status LoadMappedPolicies(const YAML::Node& node, const std::string& key, v1::PolicyMappingRule* rule);
  absl::Status LoadMappingFunction(const YAML::Node& node, const std::string& key, v1::PolicyMappingRule* rule);
  absl::Status LoadPoliciesToTrain(const YAML::Node& node, const std::string& key, const Field& field,
                                   Message* message);
  absl::Status LoadTrainRule(const YAML::Node& node, const std::string& key, v1::TrainRule* rule);
  absl::StatusOr<std::string> LoadFunctionName(const YAML::Node& node, const std::string& key);

  /// The names that a mapping or list has had.
  using Seen = std::map<std::string, bool>;
  using NameReader = absl::StatusOr<std::string> (YamlLoader::*)(const YAML::Node& node, const std::string& key,
                                                                 Seen* seen);
  static constexpr size_t kMaxNames = 1024;
  /// A list of 1 to kMaxNames different names.
  absl::StatusOr<std::vector<std::string>> LoadNames(const YAML::Node& node, const std::string& key, const char* what,
                                                     NameReader read);
  /// A policy's id that was not seen before.
  absl::StatusOr<std::string> NewPolicyId(const YAML::Node& node, const std::string& key, Seen* seen);
  /// A glob, or a name, that was not seen before.
  absl::StatusOr<std::string> NewGlob(const YAML::Node& node, const std::string& key, Seen* seen);

  /// The name of a mapping's entry; an error for one that is no scalar, empty or was seen before.
  absl::StatusOr<std::string> EntryName(const YAML::Node& name, const std::string& section, Seen* seen);
  std::string Place(const YAML::Node& node) const;
  absl::Status Error(const YAML::Node& node, const std::string& text) const;
  absl::Status WrongValue(const YAML::Node& node, const std::string& key, const Field& field) const;

  const std::string source_;
  const std::string fixed_place_;
  const AlgorithmNames& names_;
  PlaceMap& places_;
  std::string key_place_;        ///< of the last key read
  int64_t argument_bytes_ = 0;   ///< of the texts of those values
  int64_t argument_values_ = 0;  ///< read so far of the free mapping at hand
};

/// Gives every key of a section that has a default its default; recurses into sections. An algorithm gets the options
/// of its name.
void ApplyDefaults(google::protobuf::Message* section);

/// What was written, short and safe for an error message: `"abc"`, `1.5`, `a list`, `nothing`.
std::string Describe(const YAML::Node& node);

}  // namespace troupe::config
