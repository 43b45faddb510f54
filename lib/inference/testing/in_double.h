#pragma once

#include <algorithm>
#include <cmath>

#include "lib/policy/network_spec.h"

namespace troupe::inference {

inline double SigmoidInDouble(double x) { return 1 / (1 + std::exp(-x)); }

/// An activation by its definition.
inline double ActivationInDouble(policy::Activation activation, double x) {
  switch (activation) {
    case policy::Activation::kTanh:
      return std::tanh(x);
    case policy::Activation::kRelu:
      return std::max(x, 0.0);
    case policy::Activation::kElu:
      return x > 0 ? x : std::expm1(x);
    case policy::Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case policy::Activation::kSigmoid:
      return SigmoidInDouble(x);
    case policy::Activation::kSilu:
      return x * SigmoidInDouble(x);
    case policy::Activation::kIdentity:
      return x;
  }
  return x;
}

}  // namespace troupe::inference
