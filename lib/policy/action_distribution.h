#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace troupe::policy {

/// How a continuous action is brought into its Box before the environment sees it. The recorded action is the unmapped
/// one.
enum class ActionBoundMethod : uint8_t {
  kNone = 1,  ///< as sampled
  kClip = 2,  ///< clipped to [low, high] (with action_scaling: to [-1, 1])
  kTanh = 3,  ///< tanh, which needs action_scaling
};

/// The distribution of continuous actions. The recorded action is the one before the bound method. Its log-probability
/// is of that number, but of kSquashedGaussian, where it is of its tanh, what the environment gets before
/// action_scaling.
enum class ContinuousDistribution : uint8_t {
  kGaussian = 1,          ///< "gaussian": normal, independent by element
  kSquashedGaussian = 2,  ///< "squashed_gaussian": tanh of one; the log-probability counts its Jacobian
  kBeta = 3,              ///< "beta" on [-1, 1] (Chou et al. 2017): 2 x - 1 of x ~ Beta(1 + softplus, 1 + softplus)
};
inline constexpr std::array<std::pair<ContinuousDistribution, const char*>, 3> kContinuousDistributionNames = {
    {{ContinuousDistribution::kGaussian, "gaussian"},
     {ContinuousDistribution::kSquashedGaussian, "squashed_gaussian"},
     {ContinuousDistribution::kBeta, "beta"}}};
/// The largest output that makes alpha or beta of a kBeta, with no gradient beyond: a standard deviation of 7e-4.
inline constexpr float kMaxBetaOutput = 1e6f;
/// Recorded actions of a kBeta are within [-kMaxBetaAction, kMaxBetaAction], the last floats before -1 and 1.
inline constexpr float kMaxBetaAction = 0x1.fffffep-1f;
/// Bounds of log standard deviations where nothing else is said.
inline constexpr double kMinLogStd = -20.0;
inline constexpr double kMaxLogStd = 5.0;

}  // namespace troupe::policy
