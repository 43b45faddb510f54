#pragma once

#include "lib/training/core/action_head.h"
#include <torch/torch.h>

namespace troupe::training {

/// What a policy says of the actions of n rows.
struct ActionTerms {
  torch::Tensor logp;  ///< [n], nats, summed over the parts of an action
  /// [n], nats, likewise. Of a squashed Gaussian an estimate by the row's own action: see SquashedGaussian.
  torch::Tensor entropy;
};

/// `output` [n, actor_output_size]; `log_std` [log_std_size], undefined where it is 0; `actions` [n, action_words]
/// int32, float bits where continuous; `mask` [n, mask_size] uint8, undefined without one. With a graph to output and
/// log_std.
ActionTerms TermsOf(const ActionHead& head, const torch::Tensor& output, const torch::Tensor& log_std,
                    const torch::Tensor& actions, const torch::Tensor& mask);

}  // namespace troupe::training
