#pragma once

#include <string>

namespace troupe::training {

/// What a policy's state has for its algorithm, beside the networks and their optimizer. Plain value.
struct StateForm {
  bool value_moments = false;  ///< running mean and variance of the returns

  bool operator==(const StateForm& other) const = default;
  /// " value_moments" or nothing: canonical.
  std::string ToString() const { return value_moments ? " value_moments" : ""; }
};

}  // namespace troupe::training
