#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::policy {

/// What the time of a schedule with points is counted in.
enum class ScheduleUnit : uint8_t {
  kEnvSteps = 1,  ///< trained env steps
  kUpdates = 2,   ///< updates of the run
};

struct SchedulePoint {
  int64_t at = 0;  ///< at least 0
  double value = 0;

  bool operator==(const SchedulePoint& other) const = default;
};

/// A value that moves linearly from `initial` to `final` over `env_steps` trained env steps and stays; env_steps 0:
/// constant. Or, where there are `points`, linearly from each to the next, constant before the first and after the
/// last; `initial` and `final` are then their values, and env_steps is 0.
struct ScheduleValue {
  static constexpr size_t kMaxPoints = 64;

  /// One of points, which are not empty.
  static ScheduleValue OfPoints(std::vector<SchedulePoint> points, ScheduleUnit by) {
    return {points.front().value, points.back().value, 0, std::move(points), by};
  }

  double initial = 0;
  double final = 0;
  int64_t env_steps = 0;
  std::vector<SchedulePoint> points = {};  ///< at most kMaxPoints, `at` ascending
  ScheduleUnit by = ScheduleUnit::kEnvSteps;

  bool operator==(const ScheduleValue& other) const = default;
};

/// What a key of the configuration's `algorithm` is set to.
using OptionValue = std::variant<bool, int64_t, double, std::string, ScheduleValue, std::vector<std::string>>;

/// How a policy is trained: the name of an algorithm's folder in lib/training and the options of its configuration
/// message, by key. A key whose value is `auto` or `none` is absent. Only the algorithm's own parser knows what they
/// mean; nobody else looks inside. Plain value.
struct AlgorithmSpec {
  std::string name = {};  ///< "ppo"; empty: the policy is not trained
  std::map<std::string, OptionValue, std::less<>> options = {};

  bool operator==(const AlgorithmSpec& other) const = default;
};

}  // namespace troupe::policy
