#include "lib/learner/joint_step_builder.h"

#include <algorithm>
#include <tuple>

#include "lib/learner/row_scatter.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

void JointStepBuilder::AddEntries(absl::Span<const Part> parts, size_t num_global_steps) {
  // A counting sort: how many entries a step has, where they begin, and each to its place.
  step_of_.assign(num_global_steps, 0);
  for (const Part& part : parts) {
    for (const int32_t step : part.step) ++step_of_[step];
    for (const int32_t step : part.final_step) ++step_of_[step];
  }
  joint_.steps.clear();
  global_.clear();
  int32_t entries = 0;
  for (size_t global = 0; global < num_global_steps; ++global) {
    const int32_t count = step_of_[global];
    step_of_[global] = count == 0 ? -1 : static_cast<int32_t>(joint_.steps.size());
    if (count == 0) continue;
    JointStep step;
    step.first_entry = entries;
    joint_.steps.push_back(step);
    global_.push_back(static_cast<int32_t>(global));
    entries += count;
  }
  joint_.entries.resize(static_cast<size_t>(entries));
  const auto next_entry = [&](int32_t global) -> JointEntry& {
    JointStep& step = joint_.steps[step_of_[global]];
    return joint_.entries[step.first_entry + step.num_entries++];
  };
  for (const Part& part : parts) {
    const PolicyTrainBatch& rows = *part.rows;
    for (size_t r = 0; r < part.step.size(); ++r) {
      next_entry(part.step[r]) = JointEntry{base::AgentSlot(rows.slot[r]), rows.policy, static_cast<int32_t>(r), -1};
    }
    for (size_t f = 0; f < part.final_step.size(); ++f) {
      next_entry(part.final_step[f]) =
          JointEntry{base::AgentSlot(rows.final_slot[f]), rows.policy, -1, static_cast<int32_t>(f)};
    }
  }
  const auto before = [](const JointEntry& a, const JointEntry& b) {
    return std::make_tuple(a.slot, a.final_row >= 0) < std::make_tuple(b.slot, b.final_row >= 0);
  };
  for (const JointStep& step : joint_.steps) {
    const auto begin = joint_.entries.begin() + step.first_entry;
    std::sort(begin, begin + step.num_entries, before);
  }
}

void JointStepBuilder::PointBack(absl::Span<const Part> parts) {
  places_.resize(parts.size());
  policy::BySlot<Places*> of_policy;
  for (size_t p = 0; p < parts.size(); ++p) {
    places_[p].rows.resize(parts[p].step.size());
    places_[p].final_rows.resize(parts[p].final_step.size());
    of_policy.GrowTo(parts[p].rows->policy);
    of_policy[parts[p].rows->policy] = &places_[p];
  }
  for (size_t s = 0; s < joint_.steps.size(); ++s) {
    const JointStep& step = joint_.steps[s];
    for (int32_t e = step.first_entry; e < step.first_entry + step.num_entries; ++e) {
      const JointEntry& entry = joint_.entries[e];
      Places& places = *of_policy[entry.policy];
      (entry.row >= 0 ? places.rows[entry.row] : places.final_rows[entry.final_row]) =
          JointPlace{static_cast<int32_t>(s), e};
    }
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    parts[p].rows->joint_place = places_[p].rows;
    parts[p].rows->final_joint_place = places_[p].final_rows;
  }
}

void JointStepBuilder::Connect(absl::Span<const Part> parts) {
  bridges_.assign(joint_.steps.size(), 0);
  for (const Part& part : parts) {
    for (const TrainSegment& segment : part.rows->segments) {
      // From its first row to the last that is known of it, row by row, is one bridge.
      const int64_t last = segment.first_row + segment.rows - 1;
      const int32_t to = segment.final_row >= 0 ? part.final_step[segment.final_row] : part.step[last];
      ++bridges_[step_of_[part.step[segment.first_row]]];
      --bridges_[step_of_[to]];
    }
  }
  int32_t open = 0;
  for (size_t s = 0; s + 1 < joint_.steps.size(); ++s) {
    open += bridges_[s];
    JointStep& step = joint_.steps[s];
    const JointStep& after = joint_.steps[s + 1];
    const bool same_episode = step.env_id == after.env_id && step.episode == after.episode;
    if (same_episode && (open > 0 || after.step == step.step + 1)) step.next = static_cast<int32_t>(s + 1);
  }
}

void JointStepBuilder::GatherStates(absl::Span<const StepRef> global_steps,
                                    absl::Span<const sample::MultiAgentBatchPtr> fragments, int64_t state_size) {
  const int64_t stride = RowMatrix::PaddedStride(state_size);
  const size_t bytes = joint_.steps.size() * static_cast<size_t>(stride) * sizeof(float);
  if (state_.size() < bytes) state_.EnsureCapacity(bytes + bytes / 4);
  auto* const data = reinterpret_cast<float*>(state_.data());
  int32_t rows = 0;
  for (size_t s = 0; s < joint_.steps.size(); ++s) {
    const StepRef& ref = global_steps[global_[s]];
    const sample::ColumnView& column = fragments[ref.fragment]->state;
    if (!column.present()) continue;
    CopyPadded(column.As<float>().data() + ref.row * state_size, state_size, stride, data + rows * stride);
    joint_.steps[s].state_row = rows++;
  }
  joint_.state = RowMatrix{data, rows, state_size, stride};
}

const JointSteps& JointStepBuilder::Build(absl::Span<const Part> parts, absl::Span<const StepRef> global_steps,
                                          absl::Span<const sample::MultiAgentBatchPtr> fragments, int64_t state_size) {
  AddEntries(parts, global_steps.size());
  for (size_t s = 0; s < joint_.steps.size(); ++s) {
    const StepRef& ref = global_steps[global_[s]];
    joint_.steps[s].env_id = ref.env_id;
    joint_.steps[s].episode = ref.episode;
    joint_.steps[s].step = ref.step;
  }
  PointBack(parts);
  Connect(parts);
  joint_.state = {};
  if (state_size > 0) GatherStates(global_steps, fragments, state_size);
  return joint_;
}

}  // namespace troupe::learner
