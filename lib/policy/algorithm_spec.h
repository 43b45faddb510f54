#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>

namespace troupe::policy {

/// A value that moves linearly from `initial` to `final` over `env_steps` trained env steps and stays; env_steps 0:
/// constant.
struct ScheduleValue {
  double initial = 0;
  double final = 0;
  int64_t env_steps = 0;

  bool operator==(const ScheduleValue& other) const = default;
};

/// What a key of the configuration's `algorithm` is set to.
using OptionValue = std::variant<bool, int64_t, double, std::string, ScheduleValue>;

/// How a policy is trained: the name of an algorithm's folder in lib/training and the options of its configuration
/// message, by key. A key whose value is `auto` or `none` is absent. Only the algorithm's own parser knows what they
/// mean; nobody else looks inside. Plain value.
struct AlgorithmSpec {
  std::string name = {};  ///< "ppo"; empty: the policy is not trained
  std::map<std::string, OptionValue, std::less<>> options = {};

  bool operator==(const AlgorithmSpec& other) const = default;
};

}  // namespace troupe::policy
