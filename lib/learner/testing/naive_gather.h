#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"
#include "lib/sample/testing/batch_maker.h"

/// What the assembler should make of fragments, by maps and with nothing shared with it: the reference of its tests.
namespace troupe::learner {

using StepKey = std::tuple<base::EnvId, uint32_t, int32_t>;  // env, episode, step

/// One row of a fragment, with everything it points at looked up.
struct NaiveRow {
  StepKey key;
  std::vector<float> obs;
  std::vector<int32_t> actions;
  float logp = 0;
  float reward = 0;
  std::vector<uint8_t> mask;
  uint8_t agent_mask = 1;
  std::vector<float> agent_state;
  std::vector<float> env_state;
  int32_t decision = -1;  ///< -1: the fragment has no memory of it
  std::vector<float> memory;
};
struct NaiveSegment {
  int32_t slot = 0;
  std::vector<NaiveRow> rows;
  bool has_final = false;
  bool cut = false;
  NaiveRow final_row;  ///< obs, mask and states only
};
/// By policy, then in the order of the train batch.
using NaiveBatch = std::map<int32_t, std::vector<NaiveSegment>>;

inline std::vector<float> Floats(const sample::ColumnView& column, int64_t row) {
  std::vector<float> values;
  for (int64_t i = 0; i < column.row_elements; ++i) {
    const int64_t at = row * column.row_elements + i;
    values.push_back(column.dtype == tensor::DType::kUint8
                         ? static_cast<float>(column.As<uint8_t>()[at]) * (1.0f / 255.0f)
                         : column.As<float>()[at]);
  }
  return values;
}

/// What the fragment says was remembered before row `r`, if it does.
inline void FindMemory(const sample::PolicyRows& rows, int64_t r, NaiveRow* row) {
  for (int64_t m = 0; m < rows.num_memories; ++m) {
    const int32_t* const at = rows.memory_at.As<int32_t>().data() + m * sample::kMemoryFields;
    if (at[sample::kMemoryRow] != r) continue;
    row->decision = at[sample::kMemoryDecision];
    if (rows.memory.present()) row->memory = Floats(rows.memory, m);
  }
}

/// A cut is no cut where the rest of the trajectory is here. `segments` are in the order of the train batch.
inline std::vector<NaiveSegment> JoinSegments(std::vector<NaiveSegment> segments) {
  std::vector<NaiveSegment> joined;
  for (NaiveSegment& segment : segments) {
    if (!joined.empty() && joined.back().cut && joined.back().slot == segment.slot &&
        joined.back().final_row.key == segment.rows[0].key) {
      NaiveSegment& to = joined.back();
      to.rows.insert(to.rows.end(), segment.rows.begin(), segment.rows.end());
      to.has_final = segment.has_final;
      to.cut = segment.cut;
      to.final_row = segment.final_row;
    } else {
      joined.push_back(std::move(segment));
    }
  }
  return joined;
}

/// The reference: everything by maps, nothing shared with the assembler.
inline NaiveBatch NaiveGather(const std::vector<sample::MultiAgentBatchPtr>& fragments, int64_t iteration,
                              int64_t max_lag, const sample::BatchSchema& schema) {
  NaiveBatch all;
  for (const sample::MultiAgentBatchPtr& fragment : fragments) {
    const auto key_of = [&](int32_t env_row) {
      const sample::EpisodeEntry& e = fragment->episodes[fragment->step_episode.As<sample::Index>()[env_row]];
      return StepKey{e.env_id, e.episode, fragment->step_index.As<int32_t>()[env_row]};
    };
    const auto env_state = [&](int32_t env_row) {
      return fragment->state.present() ? Floats(fragment->state, env_row) : std::vector<float>{};
    };
    for (const sample::PolicyRows& rows : fragment->policies) {
      for (int32_t s = 0; s < rows.num_segments; ++s) {
        const int32_t* words = rows.segments.As<int32_t>().data() + s * sample::kSegmentFields;
        const bool is_old = iteration - rows.version.n + words[sample::kSegmentVersionLag] > max_lag;
        if (is_old && words[sample::kSegmentWaited] == 0) continue;
        NaiveSegment segment;
        segment.slot = words[sample::kSegmentSlot];
        segment.cut = words[sample::kSegmentEnd] == static_cast<int32_t>(sample::SegmentEnd::kCut);
        for (int64_t r = 0; r < rows.rows; ++r) {
          if (rows.segment.As<sample::Index>()[r] != s) continue;
          NaiveRow row;
          const int32_t env_row = rows.env_row.As<sample::Index>()[r];
          row.key = key_of(env_row);
          row.obs = Floats(rows.obs, r);
          for (int64_t w = 0; w < rows.actions.row_elements; ++w) {
            row.actions.push_back(sample::ActionAt(rows.actions, r, w).i32);
          }
          row.logp = rows.action_logp.As<float>()[r];
          row.reward = rows.rewards.As<float>()[r];
          for (int64_t m = 0; m < rows.action_mask.row_elements; ++m) {
            row.mask.push_back(rows.action_mask.As<uint8_t>()[r * rows.action_mask.row_elements + m]);
          }
          if (schema.has_agent_mask) row.agent_mask = rows.agent_mask.As<uint8_t>()[r];
          if (rows.state.present()) row.agent_state = Floats(rows.state, r);
          row.env_state = env_state(env_row);
          FindMemory(rows, r, &row);
          segment.rows.push_back(std::move(row));
        }
        if (words[sample::kSegmentFinalRow] >= 0) {
          const int32_t f = words[sample::kSegmentFinalRow];
          const int32_t env_row = rows.final_env_row.As<sample::Index>()[f];
          segment.has_final = true;
          segment.final_row.key = key_of(env_row);
          segment.final_row.obs = Floats(rows.final_obs, f);
          if (rows.final_state.present()) segment.final_row.agent_state = Floats(rows.final_state, f);
          segment.final_row.env_state = env_state(env_row);
          for (int64_t m = 0; m < rows.final_action_mask.row_elements; ++m) {
            segment.final_row.mask.push_back(
                rows.final_action_mask.As<uint8_t>()[f * rows.final_action_mask.row_elements + m]);
          }
        }
        all[rows.policy.value()].push_back(std::move(segment));
      }
    }
  }
  for (auto& [policy, segments] : all) {
    std::sort(segments.begin(), segments.end(), [](const NaiveSegment& a, const NaiveSegment& b) {
      const auto order = [](const NaiveSegment& s) {
        const auto& [env, episode, step] = s.rows[0].key;
        return std::make_tuple(env, episode, s.slot, step);
      };
      return order(a) < order(b);
    });
    segments = JoinSegments(std::move(segments));
  }
  return all;
}

/// A sequence of a policy with a core.
struct NaiveSequence {
  TrainSequence sequence;
  std::vector<float> memory;
};
/// Those that the policy's joined segments make.
inline std::vector<NaiveSequence> NaiveSequences(const std::vector<NaiveSegment>& segments, int64_t sequence_length) {
  std::vector<NaiveSequence> sequences;
  int64_t first_row = 0;
  for (const NaiveSegment& segment : segments) {
    for (size_t r = 0; r < segment.rows.size(); ++r) {
      const int64_t decision = segment.rows[0].decision + static_cast<int64_t>(r);
      if (r == 0 || decision % sequence_length == 0) {
        sequences.push_back({{first_row, 0, decision}, segment.rows[r].memory});
      }
      ++sequences.back().sequence.rows;
      ++first_row;
    }
  }
  return sequences;
}

/// `schema` with one-hots of agent slots for some of its networks, as the seed has it.
inline sample::BatchSchema WithAgentIds(sample::BatchSchema schema, uint64_t seed) {
  for (const policy::PolicySlot p : schema.policies.ids()) {
    const uint64_t kind = (seed >> (2 * p.value())) % 4;
    policy::PolicySpec& spec = schema.policies[p];
    if (kind > 0) spec.agent_id_size = static_cast<int64_t>(schema.agent_ids.size());
    spec.SetCriticAgentId(kind > 1);
  }
  return schema;
}

/// What a train batch has of fragments' values.
inline std::string BytesOf(const TrainBatch& batch) {
  std::string bytes;
  const auto append = [&bytes](const auto& values) {
    if (!values.empty()) bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  for (const PolicyTrainBatch& rows : batch.policies) {
    for (const RowMatrix* matrix : {&rows.obs, &rows.final_obs, &rows.critic_state, &rows.memory}) {
      append(absl::MakeConstSpan(matrix->data, static_cast<size_t>(matrix->rows * matrix->stride)));
    }
    for (const ByteMatrix* matrix : {&rows.images, &rows.final_images, &rows.critic_images}) {
      append(absl::MakeConstSpan(matrix->data, static_cast<size_t>(matrix->rows * matrix->columns)));
    }
    append(rows.actions);
    append(rows.agent_mask);
    for (const auto& column : sample::PolicyColumns()) {
      const sample::ColumnView& view = rows.columns.*column.member;
      append(absl::MakeConstSpan(view.data, view.bytes()));
    }
  }
  return bytes;
}

/// Fragments of two iterations on the same environments by two workers, as an assembly at `iteration` meets them.
inline std::vector<sample::MultiAgentBatchPtr> RandomFragments(const sample::BatchSchema& schema, uint64_t seed,
                                                               int64_t iteration) {
  std::vector<sample::MultiAgentBatchPtr> fragments;
  for (uint64_t worker = 0; worker < 2; ++worker) {
    sample::FakeRollout rollout(schema, sample::RandomRolloutOptions(schema, seed));
    sample::Grant grant;
    for (uint32_t lane = 0; lane < 3; ++lane) {
      grant.lanes.push_back({base::EnvId(static_cast<uint32_t>(worker) * 3 + lane), 2, true, 13});
    }
    // An earlier iteration, so that episodes are under way and transitions pending.
    rollout.Play(grant, policy::WeightVersion{1, iteration - 1});
    for (sample::GrantLane& lane : grant.lanes) lane.fresh = false;
    for (auto& fragment : rollout.Play(grant, policy::WeightVersion{1, iteration})) fragments.push_back(fragment);
  }
  return fragments;
}

}  // namespace troupe::learner
