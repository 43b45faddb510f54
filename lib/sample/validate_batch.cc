#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/all_finite.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::sample {
namespace {

bool IsFinite(float value) { return std::isfinite(value); }

/// A present column points at aligned memory.
absl::Status CheckMemory(const std::string& where, const char* name, const ColumnView& column) {
  if (column.bytes() == 0) return absl::OkStatus();
  if (column.data == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(where, ": column '", name, "' has no data"));
  if (reinterpret_cast<uintptr_t>(column.data) % tensor::ElementBytes(column.dtype) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": column '", name, "' is not aligned to ", tensor::ElementBytes(column.dtype), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const std::string& where, const char* name, const ColumnView& column) {
  if (column.dtype != tensor::DType::kFloat32) return absl::OkStatus();
  const absl::Span<const float> values = column.As<float>();
  if (base::AllFinite(values)) return absl::OkStatus();
  const size_t i = std::find_if_not(values.begin(), values.end(), IsFinite) - values.begin();
  const auto width = static_cast<size_t>(column.row_elements);
  return absl::InvalidArgumentError(absl::StrCat(where, ": column '", name, "' has ", values[i], " at row ", i / width,
                                                 ", element ", i % width, ", expected finite numbers"));
}

/// Rewards that can be believed.
absl::Status CheckRewards(const std::string& where, const char* name, const ColumnView& column,
                          const BatchLimits& limits) {
  const absl::Span<const float> values = column.As<float>();
  const auto largest = static_cast<float>(limits.max_abs_return);
  uint32_t beyond = 0;
  // Written so that NaN is beyond it, too.
  for (const float value : values) beyond |= std::abs(value) <= largest ? 0u : 1u;
  if (beyond == 0) return absl::OkStatus();
  const size_t i =
      std::find_if_not(values.begin(), values.end(), [&](float v) { return std::abs(v) <= largest; }) - values.begin();
  return absl::InvalidArgumentError(absl::StrCat(where, ": column '", name, "' has ", values[i], " at row ", i,
                                                 ", expected ", -limits.max_abs_return, " to ", limits.max_abs_return,
                                                 " (env.max_abs_return)"));
}

/// Bytes are 0 or 1.
absl::Status CheckBits(const std::string& where, const char* name, const ColumnView& column) {
  const absl::Span<const uint8_t> values = column.As<uint8_t>();
  uint8_t high_bits = 0;
  for (const uint8_t value : values) high_bits |= value & 0xFEu;
  if (high_bits == 0) return absl::OkStatus();
  const size_t i = std::find_if(values.begin(), values.end(), [](uint8_t v) { return v > 1; }) - values.begin();
  return absl::InvalidArgumentError(absl::StrCat(where, ": column '", name, "' has ", values[i], " at row ",
                                                 i / column.row_elements, ", expected 0 or 1"));
}

/// What the table asks of the column's values by themselves.
absl::Status CheckContents(const std::string& where, const char* name, const ColumnView& column, Contents contents,
                           const BatchLimits& limits) {
  switch (contents) {
    case Contents::kFinite:
      return CheckFinite(where, name, column);
    case Contents::kBits:
      return CheckBits(where, name, column);
    case Contents::kRewards:
      return CheckRewards(where, name, column, limits);
    case Contents::kIndices:  // WalkRows, CheckSegment, CheckMemories, CheckTables
    case Contents::kActions:  // CheckActions, when the mask is known to be one
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

/// Returns and infos that can be believed.
absl::Status CheckFinished(const FinishedEpisode& entry, const BatchLimits& limits) {
  const auto where = [&entry] {
    return absl::StrCat("finished episode ", entry.episode, " of env ", entry.env_id.value());
  };
  for (size_t slot = 0; slot < entry.returns.size(); ++slot) {
    const float value = entry.returns[slot];
    // NaN says "never appeared". A policy that is gone leaves the return of an agent that nobody plays.
    if (std::abs(value) <= limits.max_abs_return || (std::isnan(value) && entry.policies[slot] == policy::kNoPolicy))
      continue;
    return absl::InvalidArgumentError(absl::StrCat(where(), ": the return of agent slot ", slot, " is ", value,
                                                   ", expected ", -limits.max_abs_return, " to ", limits.max_abs_return,
                                                   " (env.max_abs_return)"));
  }
  for (size_t slot = 0; slot < entry.trajectories.size(); ++slot) {
    const int32_t count = entry.trajectories[slot];
    if (count < 1 || count > std::max(entry.length, 1)) {
      return absl::InvalidArgumentError(absl::StrCat(where(), ": agent slot ", slot, " has ", count,
                                                     " trajectories, expected 1 to ", std::max(entry.length, 1)));
    }
    if (std::abs(entry.returns[slot]) * static_cast<float>(count) > limits.max_abs_return) {
      return absl::InvalidArgumentError(absl::StrCat(
          where(), ": the returns of agent slot ", slot, " sum up to ", entry.returns[slot] * static_cast<float>(count),
          ", expected ", -limits.max_abs_return, " to ", limits.max_abs_return, " (env.max_abs_return)"));
    }
  }
  // NaN says "never set"; infinities say nothing.
  if (std::any_of(entry.infos.begin(), entry.infos.end(), [](float value) { return std::isinf(value); })) {
    return absl::InvalidArgumentError(absl::StrCat(where(), ": an info is infinite"));
  }
  return absl::OkStatus();
}

/// Episodes differ, the step tables point into them.
absl::Status CheckTables(const MultiAgentBatch& batch, const BatchLimits& limits) {
  std::vector<std::pair<base::EnvId, uint32_t>> keys;
  keys.reserve(batch.episodes.size());
  for (const EpisodeEntry& entry : batch.episodes) keys.emplace_back(entry.env_id, entry.episode);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("episode ", twice->second, " of env ", twice->first.value(), " is in the episode table twice"));
  }
  const std::string where = "env-step table";
  for (const auto& column : StepColumns()) {
    TROUPE_RETURN_IF_ERROR(CheckMemory(where, column.name, batch.*column.member));
    TROUPE_RETURN_IF_ERROR(CheckContents(where, column.name, batch.*column.member, column.contents, limits));
  }
  const size_t num_episodes = batch.episodes.size();
  const absl::Span<const Index> step_episode = batch.step_episode.As<Index>();
  const absl::Span<const int32_t> step_index = batch.step_index.As<int32_t>();
  for (size_t i = 0; i < step_episode.size(); ++i) {
    if (step_episode[i] >= num_episodes) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": row ", i, " has episode index ", step_episode[i],
                                                     ", expected 0 to ", static_cast<int64_t>(num_episodes) - 1));
    }
    if (step_index[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": row ", i, " has step ", step_index[i], ", expected at least 0"));
    }
  }
  for (const FinishedEpisode& entry : batch.finished) TROUPE_RETURN_IF_ERROR(CheckFinished(entry, limits));
  return absl::OkStatus();
}

absl::Status CheckActions(const std::string& where, const PolicyRows& rows, const policy::PolicySpec& spec) {
  const int64_t mask_size = spec.mask_size();
  const auto* mask = reinterpret_cast<const uint8_t*>(rows.action_mask.data);
  const bool is_beta = spec.continuous == policy::ContinuousDistribution::kBeta;
  const float most = is_beta ? policy::kMaxBetaAction : std::numeric_limits<float>::max();
  for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
    for (int64_t r = 0; r < rows.rows; ++r) {
      if (leaf.kind == space::ActionLeaf::Kind::kContinuous) {
        for (int64_t w = leaf.word; w < leaf.word + leaf.words; ++w) {
          const float value = ActionAt(rows.actions, r, w).f32;
          if (IsFinite(value) && std::abs(value) <= most) continue;
          return absl::InvalidArgumentError(
              absl::StrCat(where, ": column 'actions' has ", value, " at row ", r, ", word ", w, ", expected ",
                           is_beta ? "numbers between -1 and 1, which a Beta is drawn from" : "finite numbers"));
        }
        continue;
      }
      const int32_t action = ActionAt(rows.actions, r, leaf.word).i32;
      const int64_t category = int64_t{action} - leaf.start;
      if (category < 0 || category >= leaf.categories) {
        return absl::InvalidArgumentError(absl::StrCat(where, ": column 'actions' has ", action, " at row ", r,
                                                       ", word ", leaf.word, ", expected ", leaf.start, " to ",
                                                       leaf.start + leaf.categories - 1));
      }
      if (mask_size > 0 && mask[r * mask_size + leaf.mask_offset + category] == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, ": row ", r, " took the action ", action, " that its mask forbids"));
      }
    }
  }
  return absl::OkStatus();
}

/// Every row is in a segment of its episode, in time order; finds the step of each segment's last row, -1 for one
/// without rows.
absl::StatusOr<std::vector<int32_t>> WalkRows(const std::string& where, const MultiAgentBatch& batch,
                                              const PolicyRows& rows) {
  const absl::Span<const Index> step_episode = batch.step_episode.As<Index>();
  const absl::Span<const int32_t> step_index = batch.step_index.As<int32_t>();
  const absl::Span<const int32_t> segments = rows.segments.As<int32_t>();
  const absl::Span<const Index> env_row = rows.env_row.As<Index>();
  const absl::Span<const Index> segment = rows.segment.As<Index>();
  std::vector<int32_t> last_steps(static_cast<size_t>(rows.num_segments), -1);
  for (int64_t r = 0; r < rows.rows; ++r) {
    if (env_row[r] >= batch.env_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": row ", r, " has env_row ", env_row[r], ", expected 0 to ", batch.env_rows - 1));
    }
    if (segment[r] >= rows.num_segments) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": row ", r, " is in segment ", segment[r], ", expected 0 to ", rows.num_segments - 1));
    }
    if (int32_t{step_episode[env_row[r]]} != segments[segment[r] * kSegmentFields + kSegmentEpisode]) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": row ", r, " is of another episode than its segment ", segment[r]));
    }
    int32_t& last_step = last_steps[segment[r]];
    const int32_t step = step_index[env_row[r]];
    if (step <= last_step) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": row ", r, " of segment ", segment[r], " is at step ",
                                                     step, " after step ", last_step, ", expected rows in time order"));
    }
    last_step = step;
  }
  return last_steps;
}

/// One segment against the tables and the step of its last row.
absl::Status CheckSegment(const std::string& where, const MultiAgentBatch& batch, const PolicyRows& rows,
                          const BatchSchema& schema, int64_t index, int32_t last_step) {
  const int32_t* const words = rows.segments.As<int32_t>().data() + index * kSegmentFields;
  const auto invalid = [&](const std::string& text) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": segment ", index, " ", text));
  };
  if (last_step < 0) return invalid("has no rows");
  const EpisodeEntry& episode = batch.episodes[words[kSegmentEpisode]];
  const base::AgentSlot slot(words[kSegmentSlot]);
  const auto agent = std::find_if(episode.agents.begin(), episode.agents.end(),
                                  [slot](const AgentEntry& entry) { return entry.slot == slot; });
  if (agent == episode.agents.end()) {
    return invalid(absl::StrCat("is of agent slot ", slot.value(), ", which is not in the table of its episode"));
  }
  if (agent->policy != rows.policy) {
    return invalid(absl::StrCat("is of agent slot ", slot.value(), ", which policy slot ", agent->policy.value(),
                                " plays in its episode, expected ", rows.policy.value()));
  }
  if (!schema.agent_observation_sizes.empty() &&
      schema.agent_observation_sizes[slot.value()] != schema.policies[rows.policy].observation_size()) {
    return invalid(absl::StrCat("is of agent slot ", slot.value(), " with observations of ",
                                schema.agent_observation_sizes[slot.value()], " elements, expected ",
                                schema.policies[rows.policy].observation_size()));
  }
  const int32_t lag = words[kSegmentVersionLag];
  if (lag < 0 || lag > rows.version.n) {
    return invalid(absl::StrCat("has version lag ", lag, ", expected 0 to ", rows.version.n));
  }
  const int32_t waited = words[kSegmentWaited];
  if (waited != 0 && waited != 1) return invalid(absl::StrCat("has waited ", waited, ", expected 0 or 1"));
  const int32_t end = words[kSegmentEnd];
  if (end < static_cast<int32_t>(SegmentEnd::kCut) || end > static_cast<int32_t>(SegmentEnd::kTruncated)) {
    return invalid(absl::StrCat("has end ", end, ", expected 0 to 2"));
  }
  const int32_t final_row = words[kSegmentFinalRow];
  if (static_cast<SegmentEnd>(end) == SegmentEnd::kTerminated) {
    if (final_row != -1) return invalid(absl::StrCat("terminated with final row ", final_row, ", expected -1"));
    return absl::OkStatus();
  }
  if (final_row < 0 || final_row >= rows.final_rows) {
    return invalid(absl::StrCat("has final row ", final_row, ", expected 0 to ", rows.final_rows - 1));
  }
  const int32_t env_row = rows.final_env_row.As<Index>()[final_row];
  if (env_row >= batch.env_rows + batch.final_env_rows) {
    return invalid(
        absl::StrCat("has final env row ", env_row, ", expected 0 to ", batch.env_rows + batch.final_env_rows - 1));
  }
  if (int32_t{batch.step_episode.As<Index>()[env_row]} != words[kSegmentEpisode]) {
    return invalid("has a final env row of another episode");
  }
  const int32_t step = batch.step_index.As<int32_t>()[env_row];
  if (step <= last_step) {
    return invalid(absl::StrCat("has its final row at step ", step, ", expected one after ", last_step));
  }
  return absl::OkStatus();
}

/// What a policy remembered is there for the rows that PolicyRows names, and tells decisions that follow each other.
absl::Status CheckMemories(const std::string& where, const PolicyRows& rows, const policy::PolicySpec& spec) {
  if (!spec.remembers()) return absl::OkStatus();
  constexpr int64_t kMaxDecision = std::numeric_limits<int32_t>::max();
  const absl::Span<const Index> segment = rows.segment.As<Index>();
  const absl::Span<const int32_t> at = rows.memory_at.As<int32_t>();
  std::vector<int64_t> next_decision(static_cast<size_t>(rows.num_segments), -1);  // -1: no row of the segment yet
  int64_t memory = 0;
  for (int64_t r = 0; r < rows.rows; ++r) {
    int64_t& decision = next_decision[segment[r]];
    if (decision > kMaxDecision) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": row ", r, " of segment ", segment[r], " is decision ",
                                                     decision, " of its agent, expected at most ", kMaxDecision));
    }
    const bool is_first = decision < 0;
    if (!is_first && decision % spec.sequence_length != 0) {
      ++decision;
      continue;
    }
    const auto why = [&] {
      if (is_first) return absl::StrCat("the first of segment ", segment[r]);
      return absl::StrCat("which is decision ", decision, " of its agent, a multiple of ", spec.sequence_length);
    };
    if (memory == rows.num_memories) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": has ", memory, " memories, expected one more, of row ", r, ", ", why()));
    }
    const int32_t* const words = at.data() + memory * kMemoryFields;
    if (words[kMemoryRow] != r) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": memory ", memory, " is of row ", words[kMemoryRow],
                                                     ", expected row ", r, ", ", why()));
    }
    if (is_first && words[kMemoryDecision] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": memory ", memory, " is of decision ",
                                                     words[kMemoryDecision], ", expected 0 to ", kMaxDecision));
    }
    if (!is_first && words[kMemoryDecision] != decision) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": memory ", memory, " is of decision ",
                                                     words[kMemoryDecision], ", expected ", decision, ": row ", r,
                                                     " comes so far behind the first of segment ", segment[r]));
    }
    decision = int64_t{words[kMemoryDecision]} + 1;
    ++memory;
  }
  if (memory == rows.num_memories) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": memory ", memory, " is of row ",
                                                 at[static_cast<size_t>(memory * kMemoryFields + kMemoryRow)],
                                                 ", expected no more than ", memory, " memories"));
}

absl::Status CheckPolicy(const MultiAgentBatch& batch, const PolicyRows& rows, const BatchSchema& schema,
                         const BatchLimits& limits) {
  const policy::PolicySpec& spec = schema.policies[rows.policy];
  const std::string where = absl::StrCat("policy '", spec.id.value(), "'");
  for (const auto& column : PolicyColumns()) {
    TROUPE_RETURN_IF_ERROR(CheckMemory(where, column.name, rows.*column.member));
    TROUPE_RETURN_IF_ERROR(CheckContents(where, column.name, rows.*column.member, column.contents, limits));
  }
  const absl::Span<const int32_t> segments = rows.segments.As<int32_t>();
  for (int64_t s = 0; s < rows.num_segments; ++s) {
    const int32_t episode = segments[s * kSegmentFields + kSegmentEpisode];
    if (episode < 0 || episode >= static_cast<int64_t>(batch.episodes.size())) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": segment ", s, " has episode index ", episode,
                                                     ", expected 0 to ",
                                                     static_cast<int64_t>(batch.episodes.size()) - 1));
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<int32_t> last_steps, WalkRows(where, batch, rows));
  std::vector<bool> final_used(static_cast<size_t>(rows.final_rows));
  int64_t finals = 0;
  for (int64_t s = 0; s < rows.num_segments; ++s) {
    TROUPE_RETURN_IF_ERROR(CheckSegment(where, batch, rows, schema, s, last_steps[s]));
    const int32_t final_row = segments[s * kSegmentFields + kSegmentFinalRow];
    if (final_row < 0) continue;
    if (final_used[final_row]) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": final row ", final_row, " belongs to two segments"));
    }
    final_used[final_row] = true;
    ++finals;
  }
  if (finals != rows.final_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": has ", rows.final_rows, " final rows, but ", finals, " segments with one"));
  }
  TROUPE_RETURN_IF_ERROR(CheckMemories(where, rows, spec));
  return CheckActions(where, rows, spec);
}

int64_t ActiveRows(const PolicyRows& rows) {
  if (!rows.agent_mask.present()) return rows.rows;
  int64_t active = 0;
  for (const uint8_t bit : rows.agent_mask.As<uint8_t>()) active += bit;
  return active;
}

}  // namespace

absl::Status ValidateBatch(const MultiAgentBatch& batch, const BatchSchema& schema, const BatchLimits& limits) {
  TROUPE_RETURN_IF_ERROR(ValidateShapes(batch, schema, limits));
  TROUPE_RETURN_IF_ERROR(CheckTables(batch, limits));
  int64_t agent_steps = 0;
  for (const PolicyRows& rows : batch.policies) {
    TROUPE_RETURN_IF_ERROR(CheckPolicy(batch, rows, schema, limits));
    agent_steps += ActiveRows(rows);
  }
  if (agent_steps != batch.num_agent_steps) {
    return absl::InvalidArgumentError(absl::StrCat("num_agent_steps is ", batch.num_agent_steps, ", expected ",
                                                   agent_steps, ": the rows with agent_mask 1"));
  }
  return absl::OkStatus();
}

}  // namespace troupe::sample
