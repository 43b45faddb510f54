#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/descriptor.h>
#include <yaml-cpp/yaml.h>

namespace troupe::config {

/// Which algorithm each `algorithm` section of a configuration is of. That must be known before its keys are read: the
/// name may stand behind them, in an override, or in the section it is inherited from. Plain value.
class AlgorithmNames {
 public:
  /// Notes the names in a document that is read next. Later documents win; what is no name is left to who loads it.
  void Read(const YAML::Node& document);

  /// The name that holds for a section of which nobody says more, and the key that gives it.
  struct InForce {
    v1::AlgorithmName name;
    std::string key;
  };
  /// `section` is "algorithm" or one of multi_agent: "multi_agent.policies.left.algorithm". Without a name of its own
  /// it has the run's; an agent's, which inherits that of the policy that will play it, the run's, too.
  InForce Of(std::string_view section) const;
  /// The entry of AlgorithmConfig.options that the section's keys are in: that of the name in force. Of an agent
  /// without a name the first that has all its keys, the run's before others: what it inherits is seen when agents have
  /// met their policies (ResolveSettings).
  const google::protobuf::FieldDescriptor& OptionsOf(std::string_view section) const;

 private:
  void ReadSection(const std::string& section, const YAML::Node& node);
  void ReadOverrides(const std::string& key, const YAML::Node& node);

  std::map<std::string, v1::AlgorithmName, std::less<>> names_;         ///< by section
  std::map<std::string, std::set<std::string>, std::less<>> own_keys_;  ///< by section, of some algorithm only
};

}  // namespace troupe::config
