#include "lib/sample/testing/batch_builder.h"

#include <cstring>
#include <utility>

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

ColumnView Keep(Storage& storage, std::vector<std::byte> bytes, DType dtype, int64_t rows, int64_t row_elements) {
  storage.push_back(std::move(bytes));
  return ColumnView{storage.back().data(), dtype, rows, row_elements};
}

}  // namespace

struct BatchBuilder::PolicyColumns {
  PolicyRows rows;
  std::vector<std::byte> obs, actions, action_logp, rewards, terminated, truncated, action_mask, agent_mask, env_row,
      segment, state, final_obs, final_action_mask, final_state;
  std::vector<int32_t> segments, final_env_row;
};

BatchBuilder::BatchBuilder(const BatchSchema& schema) : schema_(schema) { policies_.resize(schema.policies.size()); }

BatchBuilder::~BatchBuilder() = default;

BatchBuilder::PolicyColumns& BatchBuilder::Columns(int policy) {
  if (policies_[policy] == nullptr) {
    policies_[policy] = std::make_unique<PolicyColumns>();
    policies_[policy]->rows.policy = policy::PolicySlot(policy);
  }
  return *policies_[policy];
}

int BatchBuilder::AddEpisode(uint32_t env_id, uint32_t episode, int32_t first_step, bool continues,
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

int BatchBuilder::AddSegment(int policy, int episode, int32_t slot, int32_t version_lag) {
  PolicyColumns& columns = Columns(policy);
  const int32_t words[kSegmentFields] = {episode, slot, static_cast<int32_t>(SegmentEnd::kCut), -1, version_lag};
  columns.segments.insert(columns.segments.end(), words, words + kSegmentFields);
  return static_cast<int>(columns.rows.num_segments++);
}

void BatchBuilder::AddRow(int policy, int segment, int env_row, const RowValues& values) {
  PolicyColumns& columns = Columns(policy);
  AppendObs(columns.obs, schema_.policies[policy].observation_space.flat_dtype(), values.obs);
  AppendAll(columns.actions, values.actions);
  AppendValue(columns.action_logp, values.action_logp);
  AppendValue(columns.rewards, values.reward);
  AppendValue(columns.terminated, uint8_t{values.terminated});
  AppendValue(columns.truncated, uint8_t{values.truncated});
  AppendAll(columns.action_mask, values.action_mask);
  AppendValue(columns.agent_mask, values.agent_mask);
  AppendValue(columns.env_row, int32_t{env_row});
  AppendValue(columns.segment, int32_t{segment});
  AppendAll(columns.state, values.state);
  ++columns.rows.rows;
  header_.num_agent_steps += schema_.has_agent_mask ? values.agent_mask : 1;
}

void BatchBuilder::EndSegment(int policy, int segment, SegmentEnd end, int final_env_row,
                              const RowValues& final_values) {
  PolicyColumns& columns = Columns(policy);
  int32_t* const words = columns.segments.data() + segment * kSegmentFields;
  words[kSegmentEnd] = static_cast<int32_t>(end);
  if (end == SegmentEnd::kTerminated) return;
  words[kSegmentFinalRow] = static_cast<int32_t>(columns.rows.final_rows++);
  AppendObs(columns.final_obs, schema_.policies[policy].observation_space.flat_dtype(), final_values.obs);
  AppendAll(columns.final_action_mask, final_values.action_mask);
  AppendAll(columns.final_state, final_values.state);
  columns.final_env_row.push_back(final_env_row);
}

void BatchBuilder::SetVersion(int policy, policy::WeightVersion version) { Columns(policy).rows.version = version; }

std::shared_ptr<MultiAgentBatch> BatchBuilder::Build() {
  auto storage = std::make_shared<Storage>();
  auto batch = std::make_shared<MultiAgentBatch>(std::move(header_));
  batch->env_rows = static_cast<int64_t>(steps_.size());
  batch->final_env_rows = static_cast<int64_t>(final_steps_.size());
  const int64_t num_steps = batch->env_rows + batch->final_env_rows;
  std::vector<std::byte> step_episode, step_index, state;
  for (const std::vector<StepRow>* part : {&steps_, &final_steps_}) {
    for (const StepRow& row : *part) {
      AppendValue(step_episode, row.episode);
      AppendValue(step_index, row.step);
      AppendAll(state, row.state);
    }
  }
  batch->step_episode = Keep(*storage, std::move(step_episode), DType::kInt32, num_steps, 1);
  batch->step_index = Keep(*storage, std::move(step_index), DType::kInt32, num_steps, 1);
  if (schema_.env_state_size > 0) {
    batch->state = Keep(*storage, std::move(state), DType::kFloat32, num_steps, schema_.env_state_size);
  }
  for (size_t p = 0; p < policies_.size(); ++p) {
    if (policies_[p] == nullptr) continue;
    PolicyColumns& c = *policies_[p];
    PolicyRows rows = c.rows;
    const policy::PolicySpec& spec = schema_.policies[p];
    const DType obs_dtype = spec.observation_space.flat_dtype();
    const int64_t n = rows.rows;
    const int64_t finals = rows.final_rows;
    const int64_t state_size = schema_.agent_state_size;
    rows.obs = Keep(*storage, std::move(c.obs), obs_dtype, n, spec.observation_size());
    rows.actions = Keep(*storage, std::move(c.actions), DType::kInt32, n, spec.action_words());
    rows.action_logp = Keep(*storage, std::move(c.action_logp), DType::kFloat32, n, 1);
    rows.rewards = Keep(*storage, std::move(c.rewards), DType::kFloat32, n, 1);
    rows.terminated = Keep(*storage, std::move(c.terminated), DType::kUint8, n, 1);
    rows.truncated = Keep(*storage, std::move(c.truncated), DType::kUint8, n, 1);
    rows.env_row = Keep(*storage, std::move(c.env_row), DType::kInt32, n, 1);
    rows.segment = Keep(*storage, std::move(c.segment), DType::kInt32, n, 1);
    if (schema_.has_agent_mask) rows.agent_mask = Keep(*storage, std::move(c.agent_mask), DType::kUint8, n, 1);
    std::vector<std::byte> words, final_env_row;
    AppendAll(words, c.segments);
    for (int32_t& row : c.final_env_row) {
      if (row < 0) row = static_cast<int32_t>(batch->env_rows) - row - 1;
    }
    AppendAll(final_env_row, c.final_env_row);
    rows.segments = Keep(*storage, std::move(words), DType::kInt32, rows.num_segments, kSegmentFields);
    rows.final_obs = Keep(*storage, std::move(c.final_obs), obs_dtype, finals, spec.observation_size());
    rows.final_env_row = Keep(*storage, std::move(final_env_row), DType::kInt32, finals, 1);
    if (spec.mask_size() > 0) {
      rows.action_mask = Keep(*storage, std::move(c.action_mask), DType::kUint8, n, spec.mask_size());
      rows.final_action_mask = Keep(*storage, std::move(c.final_action_mask), DType::kUint8, finals, spec.mask_size());
    }
    if (state_size > 0) {
      rows.state = Keep(*storage, std::move(c.state), DType::kFloat32, n, state_size);
      rows.final_state = Keep(*storage, std::move(c.final_state), DType::kFloat32, finals, state_size);
    }
    batch->policies.push_back(rows);
  }
  batch->storage = storage;
  return batch;
}

}  // namespace troupe::sample
