#pragma once

#include <cstdint>
#include <vector>

#include "lib/policy/action_distribution.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::training {

/// One distribution of an action row: where its numbers lie in the actor's output, the action row, the mask and
/// log_std.
struct CategoricalPart {
  int64_t output = 0;  ///< first logit
  int64_t categories = 0;
  int64_t word = 0;   ///< of the action row
  int32_t start = 0;  ///< the action word of category 0
  int64_t mask_offset = 0;
};
struct ContinuousPart {
  int64_t output = 0;  ///< the first mean; of a Beta the first number that makes an alpha
  int64_t words = 0;
  int64_t word = 0;
  /// First element of actor.log_std. Without one: -1; the second number of each word, a log standard deviation or what
  /// makes a beta, stands `words` behind the first.
  int64_t log_std = 0;
};

/// How a policy's action distribution is made from the actor's output: the logits of all discrete leaves, then one or
/// two numbers per continuous word (PolicySpec::OutputsOf), in leaf order. The distributions are independent:
/// log-probabilities and entropies add up. Plain value.
struct ActionHead {
  std::vector<CategoricalPart> categorical;
  std::vector<ContinuousPart> continuous;
  policy::ContinuousDistribution distribution = policy::ContinuousDistribution::kGaussian;  ///< of all continuous parts
  double min_log_std = policy::kMinLogStd;
  double max_log_std = policy::kMaxLogStd;

  static ActionHead For(const policy::PolicySpec& spec);
  /// Whether the continuous parts are Gaussians whose deviations are parameters, or there are none.
  bool is_plain() const;
};

/// What a forbidden category's logit is replaced by: finite, so that neither 0 x log 0 nor a row without an allowed
/// action makes a NaN.
constexpr float kMaskedLogit = -1e9f;

}  // namespace troupe::training
