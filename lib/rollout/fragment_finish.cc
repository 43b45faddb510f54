// How FragmentBuilder turns its columns into a batch.

#include <algorithm>
#include <utility>

#include "lib/rollout/fragment_builder.h"

namespace troupe::rollout {

int64_t FragmentBuilder::BytesIfCut() const {
  int64_t bytes = 0;
  for (const auto& columns : storage_->policies) bytes += columns->Bytes(columns->rows - columns->first_open);
  bytes += (storage_->steps.rows + storage_->final_steps.rows) * storage_->steps.row_bytes();
  bytes += static_cast<int64_t>(batch_->episodes.size()) * episode_bytes_;
  return bytes + static_cast<int64_t>(batch_->finished.size()) * finished_bytes_;
}

void FragmentBuilder::FillPolicyRows(PolicyColumns& columns, sample::PolicyRows& out) {
  const auto env_rows = static_cast<int32_t>(batch_->env_rows);
  auto* const final_env_row = columns.final_env_row.As<int32_t>();
  for (int64_t r = 0; r < columns.final_rows; ++r) {
    if (final_env_row[r] < 0) final_env_row[r] = env_rows + ~final_env_row[r];
  }
  out.policy = policy::PolicySlot(columns.policy);
  out.version = versions_[static_cast<size_t>(columns.policy)];
  columns.View(out);
}

sample::MultiAgentBatchPtr FragmentBuilder::Finish(bool last_of_grant, int64_t oldest_revision) {
  sample::MultiAgentBatch& batch = *batch_;
  FragmentStorage& storage = *storage_;
  batch.last_of_grant = last_of_grant;
  batch.oldest_revision = oldest_revision;
  batch.num_env_steps = env_steps_;
  batch.num_agent_steps = 0;
  batch.env_rows = storage.steps.rows;
  batch.final_env_rows = storage.final_steps.rows;
  storage.steps.Append(storage.final_steps);
  storage.steps.View(batch);
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
