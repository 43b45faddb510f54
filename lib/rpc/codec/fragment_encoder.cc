#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/crc32c.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/codec/fragment_columns.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/multi_agent_batch.h"
#include "lib/tensor/buffer.h"

namespace troupe::rpc {
namespace {

/// Gives every present column its place behind the ones before it.
class PayloadLayout {
 public:
  template <typename Fields, typename Rows, typename Proto>
  void Place(const Fields& fields, const Rows& rows, Proto* proto) {
    for (const auto& field : fields) {
      const sample::ColumnView& view = rows.*(field.view);
      if (!view.present()) continue;
      v1::Column* column = (proto->*(field.mutable_column))();
      column->set_dtype(static_cast<v1::DType>(view.dtype));
      column->set_rows(view.rows);
      column->set_row_elements(view.row_elements);
      column->set_offset(end_);
      end_ += tensor::AlignUp(view.bytes());
    }
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t end_ = 0;
};

/// Every present column of the batch, in the order PayloadLayout placed them.
std::vector<const sample::ColumnView*> PresentColumns(const sample::MultiAgentBatch& batch) {
  std::vector<const sample::ColumnView*> columns;
  for (const auto& field : kStepFields) {
    if ((batch.*(field.view)).present()) columns.push_back(&(batch.*(field.view)));
  }
  for (const sample::PolicyRows& rows : batch.policies) {
    for (const auto& field : kPolicyFields) {
      if ((rows.*(field.view)).present()) columns.push_back(&(rows.*(field.view)));
    }
  }
  return columns;
}

void FillEpisodes(const sample::MultiAgentBatch& batch, v1::Fragment* header) {
  if (!batch.episodes.empty()) {
    v1::Episodes* table = header->mutable_episodes();
    for (const sample::EpisodeEntry& episode : batch.episodes) {
      table->add_env_id(episode.env_id.value());
      table->add_episode(episode.episode);
      table->add_first_step(episode.first_step);
      table->add_continues(episode.continues);
      table->add_num_agents(static_cast<uint32_t>(episode.agents.size()));
      for (const sample::AgentEntry& agent : episode.agents) {
        table->add_agent_slot(agent.slot.value());
        table->add_agent_policy(agent.policy.value());
      }
    }
  }
  if (!batch.finished.empty()) {
    v1::FinishedEpisodes* table = header->mutable_finished();
    const bool any_returned = std::any_of(batch.finished.begin(), batch.finished.end(),
                                          [](const auto& episode) { return !episode.trajectories.empty(); });
    for (const sample::FinishedEpisode& episode : batch.finished) {
      table->add_env_id(episode.env_id.value());
      table->add_episode(episode.episode);
      table->add_length(episode.length);
      table->mutable_returns()->Add(episode.returns.begin(), episode.returns.end());
      for (const policy::PolicySlot policy : episode.policies) table->add_policies(policy.value());
      table->mutable_infos()->Add(episode.infos.begin(), episode.infos.end());
      if (!any_returned) continue;
      if (episode.trajectories.empty()) {
        table->mutable_trajectories()->Resize(table->returns_size(), 1);
      } else {
        table->mutable_trajectories()->Add(episode.trajectories.begin(), episode.trajectories.end());
      }
    }
  }
}

constexpr std::array<char, tensor::kColumnAlignment> kZeros{};

}  // namespace

v1::Fragment MakeFragmentHeader(uint64_t sequence, const sample::MultiAgentBatch& batch) {
  v1::Fragment header;
  header.set_sequence(sequence);
  header.set_grant_id(batch.grant.value());
  header.set_iteration(batch.iteration);
  header.set_num_env_steps(batch.num_env_steps);
  header.set_num_agent_steps(batch.num_agent_steps);
  header.set_last_of_grant(batch.last_of_grant);
  header.set_policies_revision(batch.policies_revision);
  header.set_oldest_revision(batch.oldest_revision);
  header.set_env_rows(batch.env_rows);
  header.set_final_env_rows(batch.final_env_rows);
  FillEpisodes(batch, &header);

  PayloadLayout layout;
  layout.Place(kStepFields, batch, &header);
  for (const sample::PolicyRows& rows : batch.policies) {
    v1::PolicyRows* proto = header.add_policies();
    proto->set_policy_slot(rows.policy.value());
    proto->mutable_version()->set_learner_epoch(rows.version.learner_epoch);
    proto->mutable_version()->set_n(rows.version.n);
    proto->set_rows(rows.rows);
    proto->set_num_segments(rows.num_segments);
    proto->set_final_rows(rows.final_rows);
    proto->set_num_memories(rows.num_memories);
    layout.Place(kPolicyFields, rows, proto);
  }
  header.set_payload_bytes(layout.end());
  return header;
}

absl::StatusOr<EncodedFragment> EncodeFragment(uint64_t sequence, const sample::MultiAgentBatchPtr& batch) {
  v1::WorkerMessage message;
  v1::Fragment* header = message.mutable_fragment();
  *header = MakeFragmentHeader(sequence, *batch);
  const uint64_t payload_bytes = header->payload_bytes();
  if (payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("fragment ", sequence, ": columns of ", payload_bytes,
                                                   " bytes, expected at most ", kMaxPayloadBytes));
  }

  const std::vector<const sample::ColumnView*> columns = PresentColumns(*batch);
  uint32_t crc = 0;
  for (const sample::ColumnView* column : columns) {
    const size_t bytes = column->bytes();
    crc = base::Crc32c(column->data, bytes, crc);
    crc = base::Crc32c(kZeros.data(), tensor::AlignUp(bytes) - bytes, crc);
  }
  header->set_payload_crc32c(crc);

  SliceBuilder builder;
  const std::string fields = message.SerializeAsString();
  if (fields.size() > kMaxFieldsBytes) {
    return absl::InvalidArgumentError(absl::StrCat("fragment ", sequence, ": tables of ", fields.size(),
                                                   " bytes, expected at most ", kMaxFieldsBytes));
  }
  AppendFieldsAndPayloadTag(fields, payload_bytes, builder);
  for (const sample::ColumnView* column : columns) {
    const size_t bytes = column->bytes();
    // The batch, not only its storage: a test's batch may own its columns in another way.
    builder.AppendBorrowed(column->data, bytes, batch);
    builder.AppendZeros(tensor::AlignUp(bytes) - bytes);
  }
  return EncodedFragment{builder.Build(), payload_bytes};
}

}  // namespace troupe::rpc
