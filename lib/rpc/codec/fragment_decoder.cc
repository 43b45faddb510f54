#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/codec/fragment_columns.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/multi_agent_batch.h"
#include "lib/tensor/buffer.h"

namespace troupe::rpc {
namespace {

absl::Status Mismatch(const char* what, int64_t got, int64_t expected) {
  return absl::InvalidArgumentError(absl::StrCat("fragment: ", what, " has ", got, " entries, expected ", expected));
}

/// The view without its memory. Bytes must lie inside the payload.
absl::StatusOr<sample::ColumnView> ReadColumn(const char* name, const v1::Column& column, uint64_t payload_bytes) {
  sample::ColumnView view;
  if (column.dtype() < v1::DTYPE_FLOAT32 || column.dtype() > v1::DTYPE_UINT16) {
    return absl::InvalidArgumentError(
        absl::StrCat("fragment: column ", name, " has dtype ", column.dtype(), ", expected 1 to 7"));
  }
  view.dtype = static_cast<tensor::DType>(column.dtype());
  view.rows = column.rows();
  view.row_elements = column.row_elements();
  int64_t bytes = 0;
  if (view.rows < 0 || view.row_elements < 1 || __builtin_mul_overflow(view.rows, view.row_elements, &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<int64_t>(tensor::ElementBytes(view.dtype)), &bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("fragment: column ", name, " has shape [", view.rows, ", ",
                                                   view.row_elements, "], expected [>= 0, >= 1]"));
  }
  if (column.offset() % tensor::kColumnAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat("fragment: column ", name, " at byte ", column.offset(),
                                                   ", expected a multiple of ", tensor::kColumnAlignment));
  }
  if (column.offset() > payload_bytes || static_cast<uint64_t>(bytes) > payload_bytes - column.offset()) {
    return absl::InvalidArgumentError(absl::StrCat("fragment: column ", name, " takes bytes ", column.offset(), " to ",
                                                   column.offset(), " + ", bytes, ", expected within the payload of ",
                                                   payload_bytes));
  }
  return view;
}

template <typename Fields, typename Proto, typename Rows>
absl::Status ReadColumns(const Fields& fields, const Proto& proto, uint64_t payload_bytes, Rows* rows) {
  for (const auto& field : fields) {
    if (!(proto.*(field.has))()) continue;
    TROUPE_ASSIGN_OR_RETURN(rows->*(field.view), ReadColumn(field.name, (proto.*(field.get))(), payload_bytes));
  }
  return absl::OkStatus();
}

/// Where a column lies in the payload.
struct ColumnPlace {
  uint64_t begin = 0;
  uint64_t end = 0;
  const char* name = "";
};

template <typename Fields, typename Proto, typename Rows>
void AddPlaces(const Fields& fields, const Proto& proto, const Rows& rows, std::vector<ColumnPlace>* places) {
  for (const auto& field : fields) {
    if (!(proto.*(field.has))()) continue;
    const uint64_t begin = (proto.*(field.get))().offset();
    const uint64_t bytes = (rows.*(field.view)).bytes();
    if (bytes > 0) places->push_back({begin, begin + bytes, field.name});
  }
}

/// No byte of the payload is in two columns.
absl::Status CheckOverlaps(const v1::Fragment& header, const sample::MultiAgentBatch& batch) {
  std::vector<ColumnPlace> places;
  places.reserve(kStepFields.size() + batch.policies.size() * kPolicyFields.size());
  for (int i = 0; i < header.policies_size(); ++i) {
    AddPlaces(kPolicyFields, header.policies(i), batch.policies[static_cast<size_t>(i)], &places);
  }
  AddPlaces(kStepFields, header, batch, &places);
  const auto before = [](const ColumnPlace& a, const ColumnPlace& b) { return a.begin < b.begin; };
  // Our own encoder writes them in order.
  if (!std::is_sorted(places.begin(), places.end(), before)) std::sort(places.begin(), places.end(), before);
  for (size_t i = 1; i < places.size(); ++i) {
    const ColumnPlace& a = places[i - 1];
    const ColumnPlace& b = places[i];
    if (b.begin >= a.end) continue;
    return absl::InvalidArgumentError(absl::StrCat("fragment: column ", b.name, " takes bytes ", b.begin, " to ", b.end,
                                                   ", of which column ", a.name, " has those up to ", a.end,
                                                   ", expected columns that do not overlap"));
  }
  return absl::OkStatus();
}

template <typename Fields, typename Proto, typename Rows>
void SetMemory(const Fields& fields, const Proto& proto, const std::byte* payload, Rows* rows) {
  for (const auto& field : fields) {
    if ((proto.*(field.has))()) (rows->*(field.view)).data = payload + (proto.*(field.get))().offset();
  }
}

absl::Status ReadEpisodes(const v1::Episodes& table, const sample::BatchLimits& limits,
                          sample::MultiAgentBatch* batch) {
  const int64_t episodes = table.env_id_size();
  if (episodes > limits.max_episodes) return Mismatch("the table of episodes", episodes, limits.max_episodes);
  if (table.episode_size() != episodes) return Mismatch("episodes.episode", table.episode_size(), episodes);
  if (table.first_step_size() != episodes) return Mismatch("episodes.first_step", table.first_step_size(), episodes);
  if (table.continues_size() != episodes) return Mismatch("episodes.continues", table.continues_size(), episodes);
  if (table.num_agents_size() != episodes) return Mismatch("episodes.num_agents", table.num_agents_size(), episodes);
  uint64_t agents = 0;
  for (const uint32_t count : table.num_agents()) agents += count;  // at most 2^20 x 2^32: does not overflow
  if (static_cast<uint64_t>(table.agent_slot_size()) != agents ||
      table.agent_policy_size() != table.agent_slot_size()) {
    return absl::InvalidArgumentError(absl::StrCat("fragment: episodes.agent_slot has ", table.agent_slot_size(),
                                                   " and agent_policy ", table.agent_policy_size(),
                                                   " entries, expected the sum of num_agents, ", agents));
  }
  batch->episodes.resize(static_cast<size_t>(episodes));
  int next_agent = 0;
  for (int i = 0; i < episodes; ++i) {
    sample::EpisodeEntry& episode = batch->episodes[static_cast<size_t>(i)];
    episode.env_id = base::EnvId(table.env_id(i));
    episode.episode = table.episode(i);
    episode.first_step = table.first_step(i);
    episode.continues = table.continues(i);
    episode.agents.resize(table.num_agents(i));
    for (sample::AgentEntry& agent : episode.agents) {
      agent.slot = base::AgentSlot(table.agent_slot(next_agent));
      agent.policy = policy::PolicySlot(table.agent_policy(next_agent));
      ++next_agent;
    }
  }
  return absl::OkStatus();
}

absl::Status ReadFinished(const v1::FinishedEpisodes& table, const sample::BatchSchema& schema,
                          const sample::BatchLimits& limits, sample::MultiAgentBatch* batch) {
  const int64_t episodes = table.env_id_size();
  const int64_t agents = static_cast<int64_t>(schema.agent_ids.size());
  if (episodes > limits.max_episodes) return Mismatch("the table of finished episodes", episodes, limits.max_episodes);
  if (table.episode_size() != episodes) return Mismatch("finished.episode", table.episode_size(), episodes);
  if (table.length_size() != episodes) return Mismatch("finished.length", table.length_size(), episodes);
  if (table.returns_size() != episodes * agents)
    return Mismatch("finished.returns", table.returns_size(), episodes * agents);
  if (table.policies_size() != episodes * agents)
    return Mismatch("finished.policies", table.policies_size(), episodes * agents);
  if (table.infos_size() != episodes * schema.num_info_columns) {
    return Mismatch("finished.infos", table.infos_size(), episodes * schema.num_info_columns);
  }
  if (table.trajectories_size() != 0 && table.trajectories_size() != episodes * agents) {
    return Mismatch("finished.trajectories", table.trajectories_size(), episodes * agents);
  }
  batch->finished.resize(static_cast<size_t>(episodes));
  for (int i = 0; i < episodes; ++i) {
    sample::FinishedEpisode& episode = batch->finished[static_cast<size_t>(i)];
    episode.env_id = base::EnvId(table.env_id(i));
    episode.episode = table.episode(i);
    episode.length = table.length(i);
    const auto returns = table.returns().begin() + i * agents;
    episode.returns.assign(returns, returns + agents);
    const auto policies = table.policies().begin() + i * agents;
    episode.policies.clear();
    for (auto policy = policies; policy != policies + agents; ++policy) episode.policies.emplace_back(*policy);
    const auto infos = table.infos().begin() + i * schema.num_info_columns;
    episode.infos.assign(infos, infos + schema.num_info_columns);
    if (table.trajectories_size() == 0) continue;
    const auto trajectories = table.trajectories().begin() + i * agents;
    episode.trajectories.assign(trajectories, trajectories + agents);
  }
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<const sample::BatchSchema> FragmentDecoder::schema() const {
  base::MutexLock lock(&mutex_);
  return schema_;
}

void FragmentDecoder::SetPolicies(const policy::PolicyTable& policies) {
  auto changed = std::make_shared<sample::BatchSchema>(*schema());
  changed->SetPolicies(policies);
  changed->policies_since.clear();
  for (const std::optional<policy::PolicyEntry>& entry : policies.entries()) {
    changed->policies_since.push_back(entry.has_value() ? entry->since : -1);
  }
  std::shared_ptr<const sample::BatchSchema> replaced = std::move(changed);  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  schema_.swap(replaced);
}

absl::StatusOr<sample::MultiAgentBatchPtr> FragmentDecoder::Decode(const v1::Fragment& header,
                                                                   const SplitMessage& split,
                                                                   const SliceList& list) const {
  const uint64_t payload_bytes = split.payload_bytes;
  if (payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("fragment: payload of ", payload_bytes, " bytes, expected at most ", kMaxPayloadBytes));
  }
  if (header.payload_bytes() != payload_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("fragment: payload of ", payload_bytes, " bytes, but its header says ", header.payload_bytes()));
  }
  const std::shared_ptr<const sample::BatchSchema> schema = this->schema();
  auto batch = std::make_shared<sample::MultiAgentBatch>();
  batch->grant = sample::GrantId(header.grant_id());
  batch->iteration = header.iteration();
  batch->num_env_steps = header.num_env_steps();
  batch->num_agent_steps = header.num_agent_steps();
  batch->last_of_grant = header.last_of_grant();
  batch->policies_revision = header.policies_revision();
  batch->oldest_revision = header.oldest_revision();
  batch->env_rows = header.env_rows();
  batch->final_env_rows = header.final_env_rows();
  TROUPE_RETURN_IF_ERROR(ReadEpisodes(header.episodes(), limits_, batch.get()));
  TROUPE_RETURN_IF_ERROR(ReadFinished(header.finished(), *schema, limits_, batch.get()));
  TROUPE_RETURN_IF_ERROR(ReadColumns(kStepFields, header, payload_bytes, batch.get()));
  if (header.policies_size() > schema->NumSlots()) {
    return Mismatch("the list of policies", header.policies_size(), schema->NumSlots());
  }
  batch->policies.resize(static_cast<size_t>(header.policies_size()));
  for (int i = 0; i < header.policies_size(); ++i) {
    const v1::PolicyRows& proto = header.policies(i);
    sample::PolicyRows& rows = batch->policies[static_cast<size_t>(i)];
    rows.policy = policy::PolicySlot(proto.policy_slot());
    rows.version = policy::WeightVersion{proto.version().learner_epoch(), proto.version().n()};
    rows.rows = proto.rows();
    rows.num_segments = proto.num_segments();
    rows.final_rows = proto.final_rows();
    rows.num_memories = proto.num_memories();
    TROUPE_RETURN_IF_ERROR(ReadColumns(kPolicyFields, proto, payload_bytes, &rows));
  }
  TROUPE_RETURN_IF_ERROR(sample::ValidateShapes(*batch, *schema, limits_));
  TROUPE_RETURN_IF_ERROR(CheckOverlaps(header, *batch));

  std::shared_ptr<tensor::Buffer> buffer = pool_->Lease(payload_bytes);
  const uint32_t crc = list.CopyWithCrc(split.payload_offset, payload_bytes, buffer->data());
  if (crc != header.payload_crc32c()) {
    return absl::DataLossError(
        absl::StrCat("fragment: payload has CRC-32C ", crc, ", but its header says ", header.payload_crc32c()));
  }
  SetMemory(kStepFields, header, buffer->data(), batch.get());
  for (int i = 0; i < header.policies_size(); ++i) {
    SetMemory(kPolicyFields, header.policies(i), buffer->data(), &batch->policies[static_cast<size_t>(i)]);
  }
  batch->storage = std::move(buffer);
  return sample::MultiAgentBatchPtr(std::move(batch));
}

}  // namespace troupe::rpc
