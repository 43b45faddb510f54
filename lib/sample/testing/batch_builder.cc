#include "lib/sample/testing/batch_builder.h"

#include <algorithm>
#include <utility>

#include "lib/policy/policy_spec.h"
#include "lib/sample/columns.h"

namespace troupe::sample {
namespace {

using tensor::DType;
using Storage = std::vector<std::vector<std::byte>>;

void Append(std::vector<std::byte>& column, const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  column.insert(column.end(), begin, begin + bytes);
}
template <typename T>
void AppendValue(std::vector<std::byte>& column, T value) {
  Append(column, &value, sizeof(value));
}
template <typename T>
void AppendAll(std::vector<std::byte>& column, const std::vector<T>& values) {
  if (!values.empty()) Append(column, values.data(), values.size() * sizeof(T));
}
void AppendObs(std::vector<std::byte>& column, DType dtype, const std::vector<float>& obs) {
  if (dtype == DType::kFloat32) return AppendAll(column, obs);
  for (const float value : obs) AppendValue(column, static_cast<uint8_t>(value));
}

/// The column of `rows` rows, zeros where `bytes` ends early; absent where the form says so.
ColumnView Keep(Storage& storage, std::vector<std::byte> bytes, const ColumnForm& form, int64_t rows) {
  if (!form.present()) return {};
  bytes.resize(std::max(bytes.size(), static_cast<size_t>(rows * form.row_bytes())));
  storage.push_back(std::move(bytes));
  return ColumnView{storage.back().data(), form.dtype, rows, form.row_elements};
}

}  // namespace

struct BatchBuilder::Policy : PolicyColumnSet<Bytes> {
  PolicyRows rows;  ///< without its columns
  std::vector<int32_t> final_env_rows;
  std::vector<bool> has_rows;  ///< by segment
};

BatchBuilder::BatchBuilder(const BatchSchema& schema) : schema_(schema) { policies_.resize(schema.policies.size()); }

BatchBuilder::~BatchBuilder() = default;

BatchBuilder::Policy& BatchBuilder::Rows(int policy) {
  if (policies_[policy] == nullptr) {
    policies_[policy] = std::make_unique<Policy>();
    policies_[policy]->rows.policy = policy::PolicySlot(policy);
  }
  return *policies_[policy];
}

int BatchBuilder::AddEpisode(base::EnvId env_id, uint32_t episode, int32_t first_step, bool continues,
                             std::vector<AgentEntry> agents) {
  header_.episodes.push_back(EpisodeEntry{env_id, episode, first_step, continues, std::move(agents)});
  return static_cast<int>(header_.episodes.size()) - 1;
}

int BatchBuilder::AddEnvRow(int episode, int32_t step, std::vector<float> state) {
  steps_.push_back(StepRow{episode, step, std::move(state)});
  return static_cast<int>(steps_.size()) - 1;
}

int BatchBuilder::AddFinalEnvRow(int episode, int32_t step, std::vector<float> state) {
  final_steps_.push_back(StepRow{episode, step, std::move(state)});
  return -static_cast<int>(final_steps_.size());
}

int BatchBuilder::AddSegment(int policy, int episode, base::AgentSlot slot, int32_t version_lag, bool waited) {
  Policy& columns = Rows(policy);
  const int32_t words[kSegmentFields] = {episode, slot.value(), static_cast<int32_t>(SegmentEnd::kCut),
                                         -1,      version_lag,  waited ? 1 : 0};
  Append(columns.segments, words, sizeof(words));
  columns.has_rows.push_back(false);
  return static_cast<int>(columns.rows.num_segments++);
}

void BatchBuilder::AddRow(int policy, int segment, int env_row, const RowValues& values) {
  Policy& columns = Rows(policy);
  AppendObs(columns.obs, schema_.policies[policy::PolicySlot(policy)].observation_space.flat_dtype(), values.obs);
  if (HasByteActions(schema_.policies[policy::PolicySlot(policy)])) {
    for (const space::ActionWord action : values.actions)
      AppendValue(columns.actions, static_cast<uint8_t>(action.i32));
  } else {
    AppendAll(columns.actions, values.actions);
  }
  AppendValue(columns.action_logp, values.action_logp);
  AppendValue(columns.rewards, values.reward);
  AppendAll(columns.action_mask, values.action_mask);
  AppendValue(columns.agent_mask, values.agent_mask);
  AppendValue(columns.env_row, static_cast<Index>(env_row));
  AppendValue(columns.segment, static_cast<Index>(segment));
  AppendAll(columns.state, values.state);
  const policy::PolicySpec& spec = schema_.policies[policy::PolicySlot(policy)];
  const bool begins = !columns.has_rows[segment];
  columns.has_rows[segment] = true;
  if (spec.remembers() && (begins || values.decision % spec.sequence_length == 0)) {
    AppendValue(columns.memory_at, static_cast<int32_t>(columns.rows.rows));
    AppendValue(columns.memory_at, values.decision);
    std::vector<float> memory = values.memory;
    memory.resize(static_cast<size_t>(spec.actor_state_size()));
    AppendAll(columns.memory, memory);
    ++columns.rows.num_memories;
  }
  ++columns.rows.rows;
  header_.num_agent_steps += schema_.has_agent_mask ? values.agent_mask : 1;
}

void BatchBuilder::EndSegment(int policy, int segment, SegmentEnd end, int final_env_row,
                              const RowValues& final_values) {
  Policy& columns = Rows(policy);
  int32_t* const words = reinterpret_cast<int32_t*>(columns.segments.data()) + segment * kSegmentFields;
  words[kSegmentEnd] = static_cast<int32_t>(end);
  if (end == SegmentEnd::kTerminated) return;
  words[kSegmentFinalRow] = static_cast<int32_t>(columns.rows.final_rows++);
  AppendObs(columns.final_obs, schema_.policies[policy::PolicySlot(policy)].observation_space.flat_dtype(),
            final_values.obs);
  AppendAll(columns.final_action_mask, final_values.action_mask);
  AppendAll(columns.final_state, final_values.state);
  columns.final_env_rows.push_back(final_env_row);
}

void BatchBuilder::SetVersion(int policy, policy::WeightVersion version) { Rows(policy).rows.version = version; }

std::shared_ptr<MultiAgentBatch> BatchBuilder::Build() {
  auto storage = std::make_shared<Storage>();
  auto batch = std::make_shared<MultiAgentBatch>(std::move(header_));
  batch->env_rows = static_cast<int64_t>(steps_.size());
  batch->final_env_rows = static_cast<int64_t>(final_steps_.size());
  StepColumnSet<Bytes> steps;
  for (const std::vector<StepRow>* part : {&steps_, &final_steps_}) {
    for (const StepRow& row : *part) {
      AppendValue(steps.step_episode, static_cast<Index>(row.episode));
      AppendValue(steps.step_index, row.step);
      AppendAll(steps.state, row.state);
    }
  }
  const EnvSizes sizes = schema_.sizes(batch->policies_revision);
  const StepForms step_forms = FormsOf(sizes);
  for (size_t c = 0; c < kNumStepColumns; ++c) {
    (*batch).*(StepColumns()[c].member) =
        Keep(*storage, std::move(steps.*(StepColumns<Bytes>()[c].member)), step_forms[c], NumRows(*batch));
  }
  for (size_t p = 0; p < policies_.size(); ++p) {
    if (policies_[p] == nullptr) continue;
    Policy& columns = *policies_[p];
    PolicyRows rows = columns.rows;
    for (const int32_t env_row : columns.final_env_rows) {
      AppendValue(columns.final_env_row,
                  static_cast<Index>(env_row < 0 ? batch->env_rows - env_row - 1 : int64_t{env_row}));
    }
    const PolicyForms forms = FormsOf(sizes, schema_.policies[columns.rows.policy]);
    for (size_t c = 0; c < kNumPolicyColumns; ++c) {
      rows.*(PolicyColumns()[c].member) = Keep(*storage, std::move(columns.*(PolicyColumns<Bytes>()[c].member)),
                                               forms[c], NumRows(rows, PolicyColumns()[c].extent));
    }
    batch->policies.push_back(rows);
  }
  batch->storage = storage;
  return batch;
}

}  // namespace troupe::sample
