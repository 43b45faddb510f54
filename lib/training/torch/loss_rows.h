#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/training/core/action_head.h"
#include "lib/training/torch/torch_batch.h"
#include "lib/training/torch/torch_distributions.h"
#include <torch/torch.h>

namespace troupe::training {

/// A user's loss gets and gives these (LossScript).
using NamedTensors = std::map<std::string, torch::Tensor>;

/// The columns that a user's loss may name: actions, action_mask, old_logp, advantages, value_targets, old_values,
/// policy_weights, value_weights.
const std::vector<std::string>& LossColumnNames();

/// Columns of `rows` (int64, of `batch`), by names that are among LossColumnNames, as docs/configuration.md says: [n]
/// f32, `actions` [n, words] (int64; f32 where one of them is continuous), `action_mask` [n, mask_size] bool.
NamedTensors LossColumns(const std::vector<std::string>& names, const ActionHead& head, const TorchBatch& batch,
                         const torch::Tensor& rows);

/// Outputs of networks for n rows: `actor` [n, actor_output_size], `log_std` [log_std_size] where the policy has one of
/// its own, `critic` [n, 1], and of the rows' actions `logp` and `entropy` [n]. With graphs.
NamedTensors LossOutputs(const torch::Tensor& actor, const torch::Tensor& log_std, const torch::Tensor& critic,
                         const ActionTerms& terms);

}  // namespace troupe::training
