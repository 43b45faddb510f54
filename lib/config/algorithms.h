#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

/// What config.proto says of algorithms: which names there are, and the keys that each brings. The schema alone knows
/// them: an algorithm more is a message, an entry of AlgorithmConfig.options and the names that stand for it.
///
/// `options` below is one of those entries.
namespace troupe::config {

/// In the schema's order.
std::vector<const google::protobuf::FieldDescriptor*> AllOptions();
const google::protobuf::FieldDescriptor& OptionsOf(v1::AlgorithmName name);
/// The entry that is set; nullptr: none.
const google::protobuf::FieldDescriptor* OptionsIn(const v1::AlgorithmConfig& algorithm);

/// "mappo"
std::string AlgorithmWord(v1::AlgorithmName name);
bool HasCentralizedCritic(v1::AlgorithmName name);
/// The value of model.layer_norm: auto.
bool HasLayerNorm(v1::AlgorithmName name);
/// The names that stand for the entry: "ppo", "ippo", "mappo".
std::vector<std::string> NamesOf(const google::protobuf::FieldDescriptor& options);
/// Those of them with a centralized critic.
std::vector<std::string> CentralizedNamesOf(const google::protobuf::FieldDescriptor& options);

/// nullptr: the entry has no such key.
const google::protobuf::FieldDescriptor* FindOption(const google::protobuf::FieldDescriptor& options,
                                                    std::string_view key);
/// The names of all algorithms that have a key; none: it is a key of no algorithm, or of all.
std::vector<std::string> NamesWithOption(std::string_view key);

/// The entry's message, which is made where the section has another one, or none: with no key set.
google::protobuf::Message* MutableOptions(const google::protobuf::FieldDescriptor& options,
                                          v1::AlgorithmConfig* algorithm);
/// Makes it, with the defaults of its keys, where the section has another one or none.
void SelectOptions(v1::AlgorithmName name, v1::AlgorithmConfig* algorithm);

/// "is of ppo, ippo and mappo, got algorithm.name: a2c; a2c has lr, …": what is wrong with a key of another algorithm.
/// `name_key` is the key that gives the name which is in force.
std::string OfAnotherAlgorithm(std::string_view key, v1::AlgorithmName name, std::string_view name_key);

}  // namespace troupe::config
