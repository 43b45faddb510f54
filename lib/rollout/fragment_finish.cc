// How FragmentBuilder turns its columns into a batch.

#include <algorithm>
#include <utility>

#include "lib/rollout/fragment_builder.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::rollout {

int64_t FragmentBuilder::BytesIfCut() const {
  int64_t bytes = 0;
  for (const auto& columns : storage_->policies) bytes += columns->Bytes(columns->rows - columns->first_open);
  bytes += (storage_->steps.rows + storage_->final_steps.rows) * storage_->steps.row_bytes();
  bytes += static_cast<int64_t>(batch_->episodes.size()) * episode_bytes_;
  return bytes + static_cast<int64_t>(batch_->finished.size()) * finished_bytes_;
}

int64_t FragmentBuilder::IndexedAfterRound(int64_t lanes) const {
  const auto num_agents = static_cast<int64_t>(schema_.env.possible_agents.size());
  // Each lane: a step, one that ends an episode or is cut, an episode that ends and one that begins; and where a policy
  // plays all agents, a segment of each that ends and one that begins.
  int64_t most = storage_->steps.rows + storage_->final_steps.rows + 4 * lanes;
  most = std::max(most, static_cast<int64_t>(batch_->episodes.size()) + 2 * lanes);
  for (const auto& columns : storage_->policies) {
    most = std::max(most, static_cast<int64_t>(columns->segment_rows.size()) + 2 * num_agents * lanes);
  }
  return most;
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
    sample::PolicyRows& rows = batch.policies.emplace_back();
    rows.policy = columns.policy;
    rows.version = (*versions_)[columns.policy];
    columns.View(batch.env_rows, rows);
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
