// What the assembler gathers for critics: joint observations, and states of environments and of agents.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lib/learner/assembler.h"
#include "lib/learner/row_scatter.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

using sample::MultiAgentBatchPtr;

void Assembler::NumberJointRows() {
  acting_row_.assign(global_steps_.size(), -1);
  final_row_.assign(global_steps_.size(), -1);
  for (const PolicyTrainBatch& rows : assembly_.batch.policies) {
    const Gather& gather = gathers_[rows.policy];
    for (const int32_t step : gather.step) acting_row_[step] = 0;
    for (const int32_t step : gather.final_step) final_row_[step] = 0;
  }
  int32_t next = 0;
  for (int32_t& row : acting_row_) row = row < 0 ? -1 : next++;
  for (int32_t& row : final_row_) row = row < 0 ? -1 : next++;
  joint_rows_.count = next;
}

void Assembler::WriteJointRows() {
  const auto agents = static_cast<int64_t>(schema_.agent_ids.size());
  if (needs_joint_floats_) {
    joint_rows_.floats.floats = ReserveMatrix(joint_, joint_rows_.count, joint_size_);
    WriteJointRows(joint_rows_.floats);
  }
  if (needs_joint_images_) {
    joint_rows_.pictures.floats = ReserveMatrix(presence_, joint_rows_.count, agents);
    joint_rows_.pictures.images = ReserveBytes(joint_images_, joint_rows_.count, joint_size_ - agents);
    WriteJointRows(joint_rows_.pictures);
  }
}

void Assembler::WriteJointRows(const JointRows& to) {
  const bool bytes = to.images.columns > 0;
  const int64_t bits = bytes ? 0 : joint_size_ - static_cast<int64_t>(schema_.agent_ids.size());
  const int64_t stride = to.floats.stride;
  float* const floats = Writable(to.floats);
  for (int64_t row = 0; row < joint_rows_.count; ++row) {
    std::memset(floats + row * stride + bits, 0, static_cast<size_t>(stride - bits) * sizeof(float));
  }
  const auto put = [&](int32_t row, int32_t slot, const RowMatrix& obs, const ByteMatrix& images, int64_t from,
                       int64_t size, const space::RowScaling& scaling) {
    float* const at = floats + int64_t{row} * stride;
    at[bits + slot] = 1.0f;
    if (bytes) {
      uint8_t* const pixels = Writable(to.images) + int64_t{row} * to.images.columns + joint_offset_[slot];
      if (images.rows > 0) {
        CopyRow(images.row(from), size, pixels);
      } else {
        scaling.Undo(obs.row(from), size, pixels);
      }
    } else if (images.rows > 0) {
      scaling.Apply(images.row(from), size, at + joint_offset_[slot]);
    } else {
      CopyRow(obs.row(from), size, at + joint_offset_[slot]);
    }
  };
  for (const PolicyTrainBatch& rows : assembly_.batch.policies) {
    const Gather& gather = gathers_[rows.policy];
    const int64_t size = schema_.policies[rows.policy].observation_size();
    for (int64_t r = 0; r < rows.rows; ++r) {
      const int32_t step = gather.step[r];
      put(acting_row_[step], rows.slot[r], rows.obs, rows.images, r, size, gather.scaling);
      if (final_row_[step] >= 0) put(final_row_[step], rows.slot[r], rows.obs, rows.images, r, size, gather.scaling);
    }
  }
  for (const PolicyTrainBatch& rows : assembly_.batch.policies) {
    const Gather& gather = gathers_[rows.policy];
    const int64_t size = schema_.policies[rows.policy].observation_size();
    for (int64_t r = 0; r < rows.final_rows; ++r) {
      put(final_row_[gather.final_step[r]], rows.final_slot[r], rows.final_obs, rows.final_images, r, size,
          gather.scaling);
    }
  }
  // Where everybody was there, every column has been written.
  for (int64_t row = 0; row < joint_rows_.count; ++row) {
    float* const at = floats + row * stride;
    for (size_t slot = 0; slot < joint_offset_.size(); ++slot) {
      if (at[bits + static_cast<int64_t>(slot)] != 0.0f) continue;
      const auto size = static_cast<size_t>(schema_.agent_observation_sizes[slot]);
      if (bytes) {
        std::memset(Writable(to.images) + row * to.images.columns + joint_offset_[slot], 0, size);
      } else {
        std::memset(at + joint_offset_[slot], 0, size * sizeof(float));
      }
    }
  }
}

void Assembler::PointAtJointRows(Gather& gather, PolicyTrainBatch& batch) {
  const absl::Span<int32_t> critic_row = Reserve<int32_t>(gather.critic_row, batch.rows);
  const absl::Span<int32_t> final_critic_row = Reserve<int32_t>(gather.final_critic_row, batch.final_rows);
  const policy::PolicySpec& spec = schema_.policies[batch.policy];
  const JointRows& joint = spec.ByteElements(spec.critic()) > 0 ? joint_rows_.pictures : joint_rows_.floats;
  needed_.assign(static_cast<size_t>(joint_rows_.count), -1);
  for (int64_t r = 0; r < batch.rows; ++r) needed_[critic_row[r] = acting_row_[gather.step[r]]] = 0;
  for (int64_t r = 0; r < batch.final_rows; ++r) {
    needed_[final_critic_row[r] = final_row_[gather.final_step[r]]] = 0;
  }
  int32_t next = 0;
  for (int32_t& row : needed_) row = row < 0 ? -1 : next++;
  batch.critic_rows = next;
  batch.critic_row = critic_row;
  batch.final_critic_row = final_critic_row;
  batch.joint_sizes = schema_.agent_observation_sizes;
  if (next == joint_rows_.count) {
    batch.critic_state = joint.floats;
    batch.critic_images = joint.images;
    return;
  }
  batch.critic_state = ReserveMatrix(gather.critic_state, next, joint.floats.columns);
  batch.critic_images = ReserveBytes(gather.critic_images, joint.images.rows > 0 ? next : 0, joint.images.columns);
  for (int64_t row = 0; row < joint_rows_.count; ++row) {
    if (needed_[row] < 0) continue;
    std::memcpy(Writable(batch.critic_state) + int64_t{needed_[row]} * joint.floats.stride, joint.floats.row(row),
                static_cast<size_t>(joint.floats.stride) * sizeof(float));
    if (joint.images.rows == 0) continue;
    std::memcpy(Writable(batch.critic_images) + int64_t{needed_[row]} * joint.images.columns, joint.images.row(row),
                static_cast<size_t>(joint.images.columns));
  }
  for (int32_t& row : critic_row) row = needed_[row];
  for (int32_t& row : final_critic_row) row = needed_[row];
}

void Assembler::GatherEnvStates(Gather& gather, PolicyTrainBatch& batch,
                                absl::Span<const MultiAgentBatchPtr> fragments) {
  needed_.assign(global_steps_.size(), -1);
  for (const int32_t step : gather.step) needed_[step] = 0;
  for (const int32_t step : gather.final_step) needed_[step] = 0;
  int32_t next = 0;
  for (int32_t& row : needed_) row = row < 0 ? -1 : next++;
  batch.critic_rows = next;
  const int64_t size = schema_.env_state_size;
  batch.critic_state = ReserveMatrix(gather.critic_state, batch.critic_rows, size);
  for (size_t step = 0; step < global_steps_.size(); ++step) {
    if (needed_[step] < 0) continue;
    const StepRef& ref = global_steps_.steps()[step];
    const float* const from = fragments[ref.fragment]->state.As<float>().data() + ref.row * size;
    CopyPadded(from, size, batch.critic_state.stride,
               Writable(batch.critic_state) + needed_[step] * batch.critic_state.stride);
  }
  const absl::Span<int32_t> critic_row = Reserve<int32_t>(gather.critic_row, batch.rows);
  const absl::Span<int32_t> final_critic_row = Reserve<int32_t>(gather.final_critic_row, batch.final_rows);
  for (int64_t r = 0; r < batch.rows; ++r) critic_row[r] = needed_[gather.step[r]];
  for (int64_t r = 0; r < batch.final_rows; ++r) final_critic_row[r] = needed_[gather.final_step[r]];
  batch.critic_row = critic_row;
  batch.final_critic_row = final_critic_row;
}

void Assembler::GatherAgentStates(Gather& gather, PolicyTrainBatch& batch) {
  const policy::PolicySpec& spec = schema_.policies[batch.policy];
  // A state a row: the critic's one-hot has its place in it, but where the agent's observation comes before.
  const int64_t one_hot = spec.critic_agent_id() && !spec.critic_reads_agent_state() ? spec.agent_id_size : 0;
  batch.critic_rows = batch.rows + batch.final_rows;
  batch.critic_state = ReserveMatrix(gather.critic_state, batch.critic_rows, spec.critic_state_size() + one_hot);
  const absl::Span<int32_t> critic_row = Reserve<int32_t>(gather.critic_row, batch.rows);
  const absl::Span<int32_t> final_critic_row = Reserve<int32_t>(gather.final_critic_row, batch.final_rows);
  std::iota(critic_row.begin(), critic_row.end(), 0);
  std::iota(final_critic_row.begin(), final_critic_row.end(), static_cast<int32_t>(batch.rows));
  const PaddedRows states{Writable(batch.critic_state), batch.critic_state.stride, one_hot, batch.slot.data()};
  absl::Span<const int32_t> place = gather.place;
  for (const Source& source : gather.sources) {
    const auto rows = static_cast<size_t>(source.rows->rows);
    ScatterPadded(source.rows->state, place.subspan(0, rows), states, {});
    place.remove_prefix(rows);
  }
  const PaddedRows finals{Writable(batch.critic_state) + batch.rows * states.stride, states.stride, one_hot,
                          batch.final_slot.data()};
  for (const SegmentRef& ref : gather.segments) {
    const Source& source = gather.sources[ref.source];
    const auto to = static_cast<int32_t>(gather.final_place[source.first_segment + static_cast<size_t>(ref.segment)]);
    if (to >= 0) ScatterPadded(RowOf(source.rows->final_state, ref.final_row), {&to, 1}, finals, {});
  }
  batch.critic_row = critic_row;
  batch.final_critic_row = final_critic_row;
}

}  // namespace troupe::learner
