#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

/// What config.proto's descriptor says of a key. Everything else in lib/config is driven by it: a new key is a new
/// field.
namespace troupe::config {

/// How a key is written in YAML.
enum class KeyForm {
  kSection,          ///< a mapping whose keys are the fields of a message
  kScalar,           ///< a number, boolean, string or word of an enum
  kIntegerList,      ///< [64, 64]
  kStringList,       ///< ["actor.0.*"]
  kSchedule,         ///< a number, {initial, final, env_steps}, {points, by} or [[at, value]]
  kArguments,        ///< a free mapping of names to scalars
  kPolicies,         ///< a list of ids or a mapping from id to overrides
  kAgents,           ///< a mapping from glob over agent ids to overrides
  kPolicyMapping,    ///< an ordered mapping from glob to policy id, per_agent, or {function: NAME}
  kGroups,           ///< a mapping from name to a list of agent ids or {agents, obs_space, act_space}
  kConvFilters,      ///< [[channels, kernel, stride], ...]
  kLeafEncoders,     ///< an ordered mapping from glob to {hidden_sizes, conv_filters} or flat
  kRange,            ///< [low, high], or a number for [-number, number]
  kPoliciesToTrain,  ///< [id, {only_against: [id]}], which may be empty
  kReturnTargets,    ///< a number for the sum, or {policy:ID: number}
};
KeyForm FormOf(const google::protobuf::FieldDescriptor& field);

/// Whether the field is an entry of AlgorithmConfig.options: no key, its message's keys stand in the section itself.
bool IsOptions(const google::protobuf::FieldDescriptor& field);

const v1::KeyRule& RuleOf(const google::protobuf::FieldDescriptor& field);

/// "mappo" for ALGORITHM_NAME_MAPPO.
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);
/// Words of an enum without its UNSPECIFIED value.
std::vector<std::string> EnumWords(const google::protobuf::EnumDescriptor& type);
/// nullptr for an unknown word.
const google::protobuf::EnumValueDescriptor* FindEnumWord(const google::protobuf::EnumDescriptor& type,
                                                          std::string_view word);

/// What a value must be, for error messages: "a number in [0, 1]", "one of none, mean, sum", "an integer >= 1, or
/// auto".
std::string Expectation(const google::protobuf::FieldDescriptor& field);
/// Whether a number (or an element of a list) is in the rule's range.
bool InRange(const v1::KeyRule& rule, double value);

/// "algorithm.gamma" from "algorithm" and "gamma".
std::string JoinKey(std::string_view section, std::string_view name);
/// Names of a section's keys in the schema's order; of an algorithm's options the keys of this entry.
std::vector<std::string> KeyNames(const google::protobuf::Descriptor& section,
                                  const google::protobuf::FieldDescriptor* options = nullptr);
/// What the schema has under a key's name: a field of the section, or, of algorithms' options, one for each entry that
/// has the key.
std::vector<const google::protobuf::FieldDescriptor*> FieldsOf(const google::protobuf::Descriptor& section,
                                                               std::string_view name);
/// Every key of the schema that is not a section, with its full name, in order; one that several algorithms have once.
std::vector<std::string> AllKeys();

/// A key where it stands.
struct KeyIn {
  const google::protobuf::Message* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
};
/// The section's key of that name, or that of the options it has; nullptr twice: neither has it.
KeyIn FindKey(const google::protobuf::Message& section, std::string_view name);
/// Sets `field` to what it is in `from`, where it may be not set.
void CopyField(const google::protobuf::Message& from, const google::protobuf::FieldDescriptor& field,
               google::protobuf::Message* to);

}  // namespace troupe::config
