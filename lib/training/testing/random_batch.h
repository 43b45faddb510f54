#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lib/base/philox.h"
#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/policy_spec.h"

namespace troupe::training {

/// A train batch of one policy (slot 0) with random contents that fit `spec`. Segments end in turn terminated, cut and
/// truncated (the latter two have a final row).
class RandomBatch : public learner::OwnedTrainBatch {
 public:
  RandomBatch(const policy::PolicySpec& spec, const std::vector<int64_t>& segment_rows, uint64_t seed,
              bool inactive_rows = false)
      : random_(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {}) {
    learner::PolicyTrainBatch rows;
    rows.policy = policy::PolicySlot(0);
    const int32_t slots = spec.agent_id_size > 0 ? static_cast<int32_t>(spec.agent_id_size) : 1;
    for (size_t i = 0; i < segment_rows.size(); ++i) {
      const int32_t agent = static_cast<int32_t>(i) % slots;
      const bool has_final = i % 3 != 0;
      rows.segments.push_back({rows.rows, segment_rows[i], has_final ? rows.final_rows : -1,
                               base::EnvId(static_cast<uint32_t>(i)), 0, base::AgentSlot(agent)});
      slot.insert(slot.end(), static_cast<size_t>(segment_rows[i]), agent);
      if (has_final) final_slot.push_back(agent);
      rows.rows += segment_rows[i];
      rows.final_rows += has_final ? 1 : 0;
    }
    FillNormal(rows.rows * spec.observation_size(), &obs);
    FillNormal(rows.final_rows * spec.observation_size(), &final_obs);
    FillNormal(rows.rows, &rewards);
    FillNormal(rows.rows, &logp);
    for (float& value : logp) value = -1.5f + 0.2f * value;
    FillActions(spec, rows.rows);
    if (inactive_rows) {
      for (int64_t row = 0; row < rows.rows; ++row) agent_mask.push_back(random_.Below(5) != 0);
    }
    if (spec.critic_input() != policy::NetworkInput::kObservation) {
      rows.critic_rows = rows.rows / 2 + 1;
      FillNormal(rows.critic_rows * spec.critic_state_size(), &critic_state);
      if (spec.critic().encoder == policy::EncoderKind::kAttention) TakeAgentsAway(spec, &rows);
      for (int64_t row = 0; row < rows.rows; ++row) critic_row.push_back(Index(rows.critic_rows));
      for (int64_t row = 0; row < rows.final_rows; ++row) final_critic_row.push_back(Index(rows.critic_rows));
    }
    if (spec.remembers()) AddSequences(spec, &rows);
    for (int64_t i = 0; i < rows.final_rows * spec.mask_size(); ++i) final_action_mask.push_back(random_.Below(3) != 0);
    batch.env_steps = rows.rows;
    batch.agent_steps = rows.rows;
    Add(std::move(rows));
  }

  learner::PolicyTrainBatch& rows() { return batch.policies[0]; }

 private:
  int32_t Index(int64_t limit) { return static_cast<int32_t>(random_.Below(static_cast<uint32_t>(limit))); }

  /// Of a joint observation: every third agent or so is absent.
  void TakeAgentsAway(const policy::PolicySpec& spec, learner::PolicyTrainBatch* rows) {
    const policy::AttentionSpec& attention = spec.critic().attention;
    for (const int64_t space : attention.agents) {
      joint_sizes_.push_back(attention.observation_sizes[static_cast<size_t>(space)]);
    }
    rows->joint_sizes = joint_sizes_;
    float* value = critic_state.data();
    for (int64_t row = 0; row < rows->critic_rows; ++row) {
      float* bit = value + spec.critic_state_size() - static_cast<int64_t>(joint_sizes_.size());
      for (const int64_t size : joint_sizes_) {
        *bit = random_.Below(3) != 0 ? 1.0f : 0.0f;
        if (*bit == 0.0f) std::fill_n(value, size, 0.0f);
        value += size;
        ++bit;
      }
      value = bit;
    }
  }

  /// Segments cut go on in an episode, from its seventh decision.
  void AddSequences(const policy::PolicySpec& spec, learner::PolicyTrainBatch* rows) {
    for (size_t i = 0; i < rows->segments.size(); ++i) {
      const learner::TrainSegment& segment = rows->segments[i];
      const int64_t begin = i % 3 == 1 ? 7 : 0;
      for (int64_t row = 0; row < segment.rows; ++row) {
        const int64_t decision = begin + row;
        if (row == 0 || decision % spec.sequence_length == 0) {
          rows->sequences.push_back({segment.first_row + row, 0, decision});
        }
        ++rows->sequences.back().rows;
      }
    }
    FillNormal(static_cast<int64_t>(rows->sequences.size()) * spec.actor_state_size(), &memory);
  }

  void FillNormal(int64_t size, std::vector<float>* values) {
    values->resize(static_cast<size_t>(size));
    for (float& value : *values) value = static_cast<float>(random_.Normal());
  }

  void FillActions(const policy::PolicySpec& spec, int64_t rows) {
    const int64_t words = spec.action_words();
    const int64_t mask_size = spec.mask_size();
    const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(spec.action_space);
    actions.resize(static_cast<size_t>(rows * words));
    action_mask.resize(static_cast<size_t>(rows * mask_size));
    for (uint8_t& allowed : action_mask) allowed = random_.Below(3) != 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (const space::ActionLeaf& leaf : leaves) {
        if (leaf.kind == space::ActionLeaf::Kind::kContinuous) {
          const bool is_beta = spec.continuous == policy::ContinuousDistribution::kBeta;
          for (int64_t w = 0; w < leaf.words; ++w) {
            const double action = random_.Normal();
            actions[row * words + leaf.word + w].f32 = static_cast<float>(is_beta ? std::tanh(action) : action);
          }
          continue;
        }
        const int32_t category = Index(leaf.categories);
        actions[row * words + leaf.word].i32 = static_cast<int32_t>(leaf.start) + category;
        if (mask_size > 0) action_mask[row * mask_size + leaf.mask_offset + category] = 1;
      }
    }
  }

  base::PhiloxSequence random_;
  std::vector<int64_t> joint_sizes_;
};

}  // namespace troupe::training
