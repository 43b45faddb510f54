#pragma once

#include <cstdint>
#include <vector>

#include "lib/policy/policy_spec.h"

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
struct GaussianPart {
  int64_t output = 0;  ///< first mean
  int64_t words = 0;
  int64_t word = 0;
  int64_t log_std = 0;  ///< first element of actor.log_std
};

/// How a policy's action distribution is made from the actor's output: the logits of all discrete leaves, then one mean
/// per continuous word, in leaf order. The distributions are independent: log-probabilities and entropies add up. Plain
/// value.
struct ActionHead {
  std::vector<CategoricalPart> categorical;
  std::vector<GaussianPart> gaussian;

  static ActionHead For(const policy::PolicySpec& spec);
};

/// What a forbidden category's logit is replaced by: finite, so that neither 0 x log 0 nor a row without an allowed
/// action makes a NaN.
constexpr float kMaskedLogit = -1e9f;

}  // namespace troupe::training
