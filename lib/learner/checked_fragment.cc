#include "lib/learner/checked_fragment.h"

#include <algorithm>
#include <utility>

#include "lib/policy/policy_spec.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {
namespace {

using sample::MultiAgentBatch;
using sample::PolicyRows;

int64_t Bytes(const MultiAgentBatch& batch) {
  size_t bytes = sizeof(MultiAgentBatch) + batch.policies.size() * sizeof(PolicyRows) + sample::ColumnBytes(batch);
  for (const sample::EpisodeEntry& entry : batch.episodes) {
    bytes += sizeof(entry) + entry.agents.size() * sizeof(sample::AgentEntry);
  }
  for (const sample::FinishedEpisode& entry : batch.finished) {
    bytes += sizeof(entry) +
             4 * (entry.returns.size() + entry.policies.size() + entry.infos.size() + entry.trajectories.size());
  }
  return static_cast<int64_t>(bytes);
}

std::vector<LaneCoverage> Cover(const MultiAgentBatch& batch) {
  std::vector<int32_t> steps(batch.episodes.size());
  const absl::Span<const sample::Index> step_episode = batch.step_episode.As<sample::Index>();
  for (int64_t i = 0; i < batch.env_rows; ++i) ++steps[step_episode[i]];
  std::vector<LaneCoverage> parts;
  parts.reserve(batch.episodes.size() + batch.finished.size());
  for (size_t i = 0; i < batch.episodes.size(); ++i) {
    const sample::EpisodeEntry& entry = batch.episodes[i];
    parts.push_back(LaneCoverage{entry.env_id, steps[i], entry.episode, entry.episode});
  }
  for (const sample::FinishedEpisode& entry : batch.finished) {
    parts.push_back(LaneCoverage{entry.env_id, 0, entry.episode, entry.episode});
  }
  std::sort(parts.begin(), parts.end(),
            [](const LaneCoverage& a, const LaneCoverage& b) { return a.env_id < b.env_id; });
  std::vector<LaneCoverage> lanes;
  for (const LaneCoverage& part : parts) {
    if (lanes.empty() || lanes.back().env_id != part.env_id) {
      lanes.push_back(part);
      continue;
    }
    lanes.back().env_steps += part.env_steps;
    lanes.back().first_episode = std::min(lanes.back().first_episode, part.first_episode);
    lanes.back().last_episode = std::max(lanes.back().last_episode, part.last_episode);
  }
  return lanes;
}

/// Agent steps of what clients decided by themselves with older weights than the fragment's, by the version of these.
std::map<int64_t, int64_t> OfClients(const MultiAgentBatch& batch) {
  std::map<int64_t, int64_t> steps;
  std::vector<int64_t> version;  // by segment; -1: not of a client
  for (const PolicyRows& rows : batch.policies) {
    const absl::Span<const int32_t> words = rows.segments.As<int32_t>();
    version.assign(static_cast<size_t>(rows.num_segments), -1);
    bool any = false;
    for (size_t s = 0; s < version.size(); ++s) {
      const int32_t* const segment = &words[s * sample::kSegmentFields];
      if (segment[sample::kSegmentVersionLag] == 0 || segment[sample::kSegmentWaited] != 0) continue;
      version[s] = rows.version.n - segment[sample::kSegmentVersionLag];
      any = true;
    }
    if (!any) continue;
    const absl::Span<const sample::Index> segment = rows.segment.As<sample::Index>();
    const absl::Span<const uint8_t> active =
        rows.agent_mask.present() ? rows.agent_mask.As<uint8_t>() : absl::Span<const uint8_t>();
    for (size_t r = 0; r < segment.size(); ++r) {
      if (version[segment[r]] >= 0) steps[version[segment[r]]] += active.empty() ? 1 : active[r];
    }
  }
  return steps;
}

/// Most bytes of fragments that a row, and that an env step without its rows, can take.
struct MaxBytes {
  int64_t row = 0;
  int64_t env_step = 0;
};
MaxBytes MaxBytesOf(const sample::BatchSchema& schema) {
  MaxBytes bytes;
  const sample::EnvSizes sizes = schema.MaxSizes();
  for (const policy::PolicySpec& spec : schema.policies) {
    const sample::PolicyForms forms = sample::FormsOf(sizes, spec);
    // In the worst case every row is a segment of its own, and has a final row and a memory.
    bytes.row = std::max(bytes.row, sample::RowBytes(forms, sample::Extent::kRow) +
                                        sample::RowBytes(forms, sample::Extent::kSegment) +
                                        sample::RowBytes(forms, sample::Extent::kFinalRow) +
                                        sample::RowBytes(forms, sample::Extent::kMemory));
  }
  // Step tables for an acting and a final row; in the worst case every step is an episode of its own.
  const int64_t step_bytes = 2 * sample::RowBytes(sample::FormsOf(sizes));
  const auto episode_bytes = static_cast<int64_t>(sizeof(sample::EpisodeEntry) + sizeof(sample::FinishedEpisode)) +
                             static_cast<int64_t>(schema.agent_ids.size()) * (8 + 8) + 4 * schema.num_info_columns;
  bytes.env_step = step_bytes + episode_bytes;
  return bytes;
}

}  // namespace

CheckedFragment CheckFragment(sample::MultiAgentBatchPtr batch, const sample::BatchSchema& schema,
                              const sample::BatchLimits& limits) {
  CheckedFragment checked;
  checked.status = sample::ValidateBatch(*batch, schema, limits);
  for (const PolicyRows& rows : batch->policies) {
    const int64_t count = std::clamp(rows.rows, int64_t{0}, limits.max_rows_per_policy);
    checked.rows.push_back(PolicyRowCount{rows.policy, count});
  }
  if (checked.status.ok()) {
    checked.lanes = Cover(*batch);
    checked.bytes = Bytes(*batch);
    checked.agent_steps = batch->num_agent_steps;
    checked.of_clients = OfClients(*batch);
  }
  checked.batch = std::move(batch);
  return checked;
}

int64_t MaxBytesPerEnvStep(const sample::BatchSchema& schema) {
  const MaxBytes bytes = MaxBytesOf(schema);
  return static_cast<int64_t>(schema.agent_ids.size()) * bytes.row + bytes.env_step;
}

int64_t MaxBytesPerAgentStep(const sample::BatchSchema& schema) {
  const MaxBytes bytes = MaxBytesOf(schema);
  return bytes.row + bytes.env_step;
}

}  // namespace troupe::learner
