#include "lib/training/torch/torch_batch.h"

namespace troupe::training {

TorchBatch TorchBatch::Load(const policy::PolicySpec& spec, const PreparedBatch& batch, bool actor_reads_mask,
                            const DeviceMemory& memory) {
  TorchBatch loaded;
  const torch::Tensor images = memory.Load(batch.images());
  if (spec.has_action_mask) {
    loaded.mask = memory.Load(batch.action_mask.data(), {batch.rows(), spec.mask_size()}, torch::kUInt8);
  }
  loaded.actor = {memory.Load(batch.actor_input()), images, torch::Tensor(),
                  actor_reads_mask ? loaded.mask : torch::Tensor(), ImageScaling(spec, 1, memory.device())};
  const bool own = spec.critic().Reads(policy::NetworkInput::kObservation);
  loaded.critic = {memory.Load(batch.critic_input()), own ? images : memory.Load(batch.critic_images()),
                   torch::Tensor(), torch::Tensor(),
                   ImageScaling(spec, own ? 1 : spec.ImagesOf(spec.critic()), memory.device())};
  if (batch.critic_images().rows > 0) loaded.critic.image_rows = memory.LoadIndex(batch.critic_image_index());
  loaded.critic_index = memory.LoadIndex(batch.critic_index());
  if (batch.actor_memory().columns > 0) loaded.actor_memory = memory.Load(batch.actor_memory()).contiguous();
  loaded.actions = memory.Load(batch.actions.data(), {batch.rows(), spec.action_words()}, torch::kInt32);
  return loaded;
}

const torch::Tensor& TorchBatch::Column(RowColumn column) const {
  switch (column) {
    case RowColumn::kAdvantage:
      return advantages;
    case RowColumn::kValueTarget:
      return value_targets;
    case RowColumn::kOldValue:
      return old_values;
    case RowColumn::kOldLogp:
      break;
  }
  return old_logp;
}

void TorchBatch::LoadTargets(const policy::PolicySpec& spec, const PreparedBatch& batch, const DeviceMemory& memory) {
  if (advantages.defined()) return;
  const int64_t rows = batch.rows();
  old_logp = memory.Load(batch.old_logp.data(), {rows}, torch::kFloat32);
  advantages = memory.Load(batch.targets.advantages.data(), {rows}, torch::kFloat32);
  value_targets = memory.Load(batch.targets.value_targets.data(), {rows}, torch::kFloat32);
  old_values = memory.Load(batch.targets.old_values.data(), {rows}, torch::kFloat32);
  if (const int64_t size = spec.critic().state_size(); size > 0) {
    const auto sequences = static_cast<int64_t>(batch.sequences().size());
    critic_memory = memory.Load(batch.targets.critic_memory.data(), {sequences, size}, torch::kFloat32);
  }
}

void TorchBatch::LoadWeights(const PreparedBatch& batch, const DeviceMemory& memory) {
  if (policy_weights.defined()) return;
  const auto weights = [&](bool (RowUses::*counts)(int64_t) const) {
    torch::Tensor host = torch::empty({batch.rows()});
    for (int64_t row = 0; row < batch.rows(); ++row) {
      host.data_ptr<float>()[row] = (batch.uses().*counts)(row) ? 1.0f : 0.0f;
    }
    return memory.Load(host);
  };
  policy_weights = weights(&RowUses::IsInPolicy);
  value_weights = weights(&RowUses::IsInValue);
}

}  // namespace troupe::training
