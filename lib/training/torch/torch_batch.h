#pragma once

#include "lib/policy/policy_spec.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/core/row_loss.h"
#include "lib/training/torch/device_memory.h"
#include "lib/training/torch/torch_inputs.h"
#include <torch/torch.h>

namespace troupe::training {

/// A PreparedBatch where LibTorch computes losses of rows. Plain value; undefined tensors are not there.
struct TorchBatch {
  NetworkInputs actor;          ///< [rows]
  NetworkInputs critic;         ///< what the critic reads, each input once
  torch::Tensor critic_index;   ///< [rows] int64, among `critic`
  torch::Tensor actions;        ///< [rows, action_words] int32
  torch::Tensor mask;           ///< [rows, mask_size] uint8
  torch::Tensor actor_memory;   ///< [sequences, state size], what the actor remembered before each
  torch::Tensor critic_memory;  ///< the same of a critic that remembers by itself
  torch::Tensor old_logp, advantages, value_targets, old_values;  ///< [rows] each, from LoadTargets on
  torch::Tensor policy_weights, value_weights;                    ///< [rows] each, from LoadWeights on

  /// All but the targets. `actor_reads_mask`: it is a user's module. `batch` stays until DeviceMemory::Await.
  static TorchBatch Load(const policy::PolicySpec& spec, const PreparedBatch& batch, bool actor_reads_mask,
                         const DeviceMemory& memory);
  const torch::Tensor& Column(RowColumn column) const;
  /// PreparedBatch::targets, once.
  void LoadTargets(const policy::PolicySpec& spec, const PreparedBatch& batch, const DeviceMemory& memory);
  /// 1 for rows that count in the policy's loss, or in the critic's, else 0 (RowUses); once.
  void LoadWeights(const PreparedBatch& batch, const DeviceMemory& memory);
};

}  // namespace troupe::training
