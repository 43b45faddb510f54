// How FragmentBuilder turns its columns into a batch.

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/rollout/fragment_builder.h"

namespace troupe::rollout {

int64_t FragmentBuilder::BytesIfCut() const {
  int64_t bytes = 0;
  for (const auto& columns : storage_->policies) bytes += columns->Bytes(columns->rows - columns->first_open);
  const auto env_rows = static_cast<int64_t>(storage_->step_episode.size() + storage_->final_step_episode.size());
  bytes += env_rows * static_cast<int64_t>(8 + storage_->state.row_bytes());
  bytes += static_cast<int64_t>(batch_->episodes.size()) * episode_bytes_;
  return bytes + static_cast<int64_t>(batch_->finished.size()) * finished_bytes_;
}

void FragmentBuilder::FillPolicyRows(PolicyColumns& columns, sample::PolicyRows& out) {
  using tensor::DType;
  const auto slot = static_cast<size_t>(columns.policy);
  const policy::PolicySpec& spec = schema_.policies[slot];
  const DType obs_dtype = spec.observation_space.flat_dtype();
  const auto env_rows = static_cast<int32_t>(batch_->env_rows);
  for (int32_t& row : columns.final_env_row) {
    if (row < 0) row = env_rows + ~row;
  }
  out.policy = policy::PolicySlot(static_cast<int32_t>(slot));
  out.version = versions_[slot];
  out.rows = columns.rows;
  out.num_segments = static_cast<int64_t>(columns.segment_rows.size());
  out.final_rows = columns.final_rows;
  out.obs = columns.obs.View(obs_dtype, columns.rows, spec.observation_size());
  out.actions = columns.actions.View(DType::kInt32, columns.rows, spec.action_words());
  out.action_logp = columns.action_logp.View(DType::kFloat32, columns.rows, 1);
  out.rewards = columns.rewards.View(DType::kFloat32, columns.rows, 1);
  out.terminated = columns.terminated.View(DType::kUint8, columns.rows, 1);
  out.truncated = columns.truncated.View(DType::kUint8, columns.rows, 1);
  out.action_mask = columns.action_mask.View(DType::kUint8, columns.rows, spec.mask_size());
  out.agent_mask = columns.agent_mask.View(DType::kUint8, columns.rows, 1);
  out.env_row = columns.env_row.View(DType::kInt32, columns.rows, 1);
  out.segment = columns.segment.View(DType::kInt32, columns.rows, 1);
  out.state = columns.state.View(DType::kFloat32, columns.rows, schema_.state_size());
  out.segments = {reinterpret_cast<const std::byte*>(columns.segments.data()), DType::kInt32, out.num_segments,
                  sample::kSegmentFields};
  out.final_obs = columns.final_obs.View(obs_dtype, columns.final_rows, spec.observation_size());
  out.final_action_mask = columns.final_action_mask.View(DType::kUint8, columns.final_rows, spec.mask_size());
  out.final_env_row = {
      columns.final_rows == 0 ? nullptr : reinterpret_cast<const std::byte*>(columns.final_env_row.data()),
      DType::kInt32, columns.final_rows, 1};
  out.final_state = columns.final_state.View(DType::kFloat32, columns.final_rows, schema_.state_size());
}

sample::MultiAgentBatchPtr FragmentBuilder::Finish(bool last_of_grant, int64_t oldest_revision) {
  using tensor::DType;
  sample::MultiAgentBatch& batch = *batch_;
  FragmentStorage& storage = *storage_;
  batch.last_of_grant = last_of_grant;
  batch.oldest_revision = oldest_revision;
  batch.num_env_steps = env_steps_;
  batch.num_agent_steps = 0;
  batch.env_rows = static_cast<int64_t>(storage.step_episode.size());
  batch.final_env_rows = static_cast<int64_t>(storage.final_step_episode.size());
  const int64_t steps = batch.env_rows + batch.final_env_rows;
  if (storage.state.present()) {
    if (steps > storage.state_capacity) {
      storage.state_capacity = steps + steps / 2;
      storage.state.Grow(batch.env_rows, storage.state_capacity);
    }
    if (batch.final_env_rows > 0) {
      std::memcpy(storage.state.Row(batch.env_rows), storage.final_state.Row(0),
                  static_cast<size_t>(batch.final_env_rows) * storage.state.row_bytes());
    }
  }
  storage.step_episode.insert(storage.step_episode.end(), storage.final_step_episode.begin(),
                              storage.final_step_episode.end());
  storage.step_index.insert(storage.step_index.end(), storage.final_step_index.begin(), storage.final_step_index.end());
  batch.step_episode = {reinterpret_cast<const std::byte*>(storage.step_episode.data()), DType::kInt32, steps, 1};
  batch.step_index = {reinterpret_cast<const std::byte*>(storage.step_index.data()), DType::kInt32, steps, 1};
  batch.state = storage.state.View(DType::kFloat32, steps, schema_.state_size());
  by_slot_.clear();
  for (const auto& columns : storage.policies) by_slot_.push_back(columns.get());
  std::sort(by_slot_.begin(), by_slot_.end(),
            [](const PolicyColumns* a, const PolicyColumns* b) { return a->policy < b->policy; });
  for (PolicyColumns* const place : by_slot_) {
    PolicyColumns& columns = *place;
    columns.Compact();
    if (columns.rows == 0) continue;
    FillPolicyRows(columns, batch.policies.emplace_back());
    if (!columns.agent_mask.present()) {
      batch.num_agent_steps += columns.rows;
    } else {
      for (int64_t r = 0; r < columns.rows; ++r) batch.num_agent_steps += columns.agent_mask.As<uint8_t>()[r];
    }
  }
  return pool_.Share(std::move(batch_), std::move(storage_));
}

void FragmentBuilder::Abandon() {
  if (begun()) pool_.Return(std::move(batch_), std::move(storage_));
}

}  // namespace troupe::rollout
