#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lib/learner/train_batch.h"

namespace troupe::learner {

/// A train batch of one policy and the memory that it borrows: fill the columns, then Add. Not movable: the batch
/// points into it.
struct OwnedTrainBatch {
  OwnedTrainBatch() = default;
  OwnedTrainBatch(const OwnedTrainBatch&) = delete;
  OwnedTrainBatch& operator=(const OwnedTrainBatch&) = delete;

  /// `rows` has its counts, segments and sequences; its spans become the columns below, which stay as they are from
  /// here on. They are dense matrices, which trainers copy.
  void Add(PolicyTrainBatch rows) {
    rows.obs = Dense(obs, rows.rows);
    rows.images = DenseBytes(images, rows.rows);
    rows.final_images = DenseBytes(final_images, rows.final_rows);
    rows.actions = actions;
    rows.action_logp = logp;
    rows.rewards = rewards;
    rows.action_mask = action_mask;
    rows.agent_mask = agent_mask;
    rows.slot = slot;
    rows.critic_row = critic_row;
    rows.final_obs = Dense(final_obs, rows.final_rows);
    rows.final_slot = final_slot;
    rows.final_action_mask = final_action_mask;
    rows.final_critic_row = final_critic_row;
    rows.critic_state = Dense(critic_state, rows.critic_rows);
    rows.critic_images = DenseBytes(critic_images, rows.critic_rows);
    rows.memory = Dense(memory, static_cast<int64_t>(rows.sequences.size()));
    batch.policies.push_back(std::move(rows));
  }

  std::vector<float> obs, final_obs, rewards, logp, critic_state, memory;
  std::vector<space::ActionWord> actions;
  std::vector<uint8_t> action_mask, final_action_mask, agent_mask, images, final_images, critic_images;
  std::vector<int32_t> slot, final_slot, critic_row, final_critic_row;
  TrainBatch batch;

 private:
  static ByteMatrix DenseBytes(const std::vector<uint8_t>& values, int64_t rows) {
    return {values.data(), values.empty() ? 0 : rows, rows > 0 ? static_cast<int64_t>(values.size()) / rows : 0};
  }
  static RowMatrix Dense(const std::vector<float>& values, int64_t rows) {
    const int64_t columns = rows > 0 ? static_cast<int64_t>(values.size()) / rows : 0;
    return {values.data(), rows, columns, columns};
  }
};

}  // namespace troupe::learner
