#include "lib/sample/batch_schema.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::sample {
namespace {

std::string Describe(const ColumnForm& form, int64_t rows) {
  return absl::StrCat(std::string(tensor::DTypeName(form.dtype)), "[", rows, ", ", form.row_elements, "]");
}

std::string Describe(const ColumnView& column) {
  return Describe(ColumnForm{column.dtype, column.row_elements}, column.rows);
}

/// What a schema is told by; `always_sends_state` changes no policy and no checkpoint.
std::string CanonicalText(const BatchSchema& schema) {
  std::string text = absl::StrCat("agents=", absl::StrJoin(schema.agent_ids, ","),
                                  ";observations=", absl::StrJoin(schema.agent_observation_sizes, ","),
                                  ";env_state=", schema.env_state_size, ";agent_state=", schema.agent_state_size,
                                  ";agent_mask=", schema.has_agent_mask ? 1 : 0, ";infos=", schema.num_info_columns,
                                  ";envs=", schema.num_envs);
  for (const policy::PolicySpec& spec : schema.policies) absl::StrAppend(&text, ";policy=", spec.ToString());
  return text;
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) {
    hash ^= static_cast<uint8_t>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

/// Compares columns with what they must be, and adds up their bytes without overflow.
class ColumnChecker {
 public:
  explicit ColumnChecker(int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// The column must have exactly this form and so many rows, or not be there where the form says so. One of 0 rows may
  /// be left out.
  absl::Status Check(const std::string& where, const char* name, const ColumnView& column, const ColumnForm& form,
                     int64_t rows) {
    if (!form.present()) {
      if (!column.present() && column.rows == 0) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(where, ": column '", name, "' is ", Describe(column),
                                                     ", expected none: this run has no such column"));
    }
    if (!column.present()) {
      if (rows == 0 && column.rows == 0) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": column '", name, "' is absent, expected ", Describe(form, rows)));
    }
    if (column.dtype != form.dtype || column.rows != rows || column.row_elements != form.row_elements) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": column '", name, "' is ", Describe(column), ", expected ", Describe(form, rows)));
    }
    return Count(where, name, column);
  }

 private:
  absl::Status Count(const std::string& where, const char* name, const ColumnView& column) {
    int64_t elements = 0;
    int64_t bytes = 0;
    if (__builtin_mul_overflow(column.rows, column.row_elements, &elements) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(tensor::ElementBytes(column.dtype)), &bytes) ||
        __builtin_add_overflow(bytes_, bytes, &bytes_) || bytes_ > max_bytes_) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": with column '", name, "' ", Describe(column),
                                                     " the fragment is over the limit of ", max_bytes_, " bytes"));
    }
    return absl::OkStatus();
  }

  const int64_t max_bytes_;
  int64_t bytes_ = 0;
};

absl::Status CheckCount(const std::string& what, int64_t got, int64_t low, int64_t high) {
  if (got >= low && got <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", got, ", expected ", low, " to ", high));
}

absl::Status CheckEpisodes(const MultiAgentBatch& batch, const BatchSchema& schema, const BatchLimits& limits) {
  TROUPE_RETURN_IF_ERROR(
      CheckCount("number of episodes", static_cast<int64_t>(batch.episodes.size()), 0, limits.max_episodes));
  TROUPE_RETURN_IF_ERROR(
      CheckCount("number of finished episodes", static_cast<int64_t>(batch.finished.size()), 0, limits.max_episodes));
  const auto num_agents = static_cast<int32_t>(schema.agent_ids.size());
  const int32_t num_policies = schema.NumSlots();
  for (const EpisodeEntry& entry : batch.episodes) {
    const auto where = [&entry] { return absl::StrCat("episode ", entry.episode, " of env ", entry.env_id.value()); };
    if (entry.env_id.value() >= schema.num_envs) {
      return absl::InvalidArgumentError(absl::StrCat(where(), ": expected an env id below ", schema.num_envs));
    }
    if (entry.first_step < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(where(), ": first_step is ", entry.first_step, ", expected at least 0"));
    }
    base::AgentSlot previous(-1);
    for (const AgentEntry& agent : entry.agents) {
      if (!(previous < agent.slot) || agent.slot.value() >= num_agents) {
        return absl::InvalidArgumentError(absl::StrCat(where(), ": agent slot ", agent.slot.value(), " after ",
                                                       previous.value(), ", expected ascending slots below ",
                                                       num_agents));
      }
      if (agent.policy.value() < 0 || agent.policy.value() >= num_policies) {
        return absl::InvalidArgumentError(absl::StrCat(where(), ": agent slot ", agent.slot.value(),
                                                       " has policy slot ", agent.policy.value(), ", expected 0 to ",
                                                       num_policies - 1));
      }
      previous = agent.slot;
    }
  }
  for (const FinishedEpisode& entry : batch.finished) {
    const auto where = [&entry] {
      return absl::StrCat("finished episode ", entry.episode, " of env ", entry.env_id.value());
    };
    if (entry.env_id.value() >= schema.num_envs) {
      return absl::InvalidArgumentError(absl::StrCat(where(), ": expected an env id below ", schema.num_envs));
    }
    if (entry.length < 0) {
      return absl::InvalidArgumentError(absl::StrCat(where(), ": length is ", entry.length, ", expected at least 0"));
    }
    if (entry.returns.size() != schema.agent_ids.size() || entry.policies.size() != schema.agent_ids.size()) {
      return absl::InvalidArgumentError(absl::StrCat(where(), ": has ", entry.returns.size(), " returns and ",
                                                     entry.policies.size(), " policies, expected one for each of ",
                                                     schema.agent_ids.size(), " agents"));
    }
    if (!entry.trajectories.empty() && entry.trajectories.size() != schema.agent_ids.size()) {
      return absl::InvalidArgumentError(absl::StrCat(where(), ": has ", entry.trajectories.size(),
                                                     " numbers of trajectories, expected none or ",
                                                     schema.agent_ids.size()));
    }
    if (static_cast<int64_t>(entry.infos.size()) != schema.num_info_columns) {
      return absl::InvalidArgumentError(
          absl::StrCat(where(), ": has ", entry.infos.size(), " infos, expected ", schema.num_info_columns));
    }
    for (const policy::PolicySlot policy : entry.policies) {
      if (policy < policy::kNoPolicy || policy.value() >= num_policies) {
        return absl::InvalidArgumentError(
            absl::StrCat(where(), ": policy slot ", policy.value(), ", expected -1 to ", num_policies - 1));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPolicyRows(const PolicyRows& rows, const policy::PolicySpec& spec, const EnvSizes& sizes,
                             const BatchLimits& limits, ColumnChecker& columns) {
  const std::string where = absl::StrCat("policy '", spec.id.value(), "'");
  TROUPE_RETURN_IF_ERROR(CheckCount(absl::StrCat(where, ": rows"), rows.rows, 1, limits.max_rows_per_policy));
  TROUPE_RETURN_IF_ERROR(CheckCount(absl::StrCat(where, ": num_segments"), rows.num_segments, 1,
                                    std::min(rows.rows, limits.max_segments_per_policy)));
  TROUPE_RETURN_IF_ERROR(CheckCount(absl::StrCat(where, ": final_rows"), rows.final_rows, 0, rows.num_segments));
  const bool remembers = spec.remembers();
  TROUPE_RETURN_IF_ERROR(CheckCount(absl::StrCat(where, ": num_memories"), rows.num_memories,
                                    remembers ? rows.num_segments : 0, remembers ? rows.rows : 0));
  if (rows.version.n < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": weights version is ", rows.version.n, ", expected at least 0"));
  }
  for (const auto& column : PolicyColumns()) {
    TROUPE_RETURN_IF_ERROR(
        columns.Check(where, column.name, rows.*column.member, column.form(sizes, spec), NumRows(rows, column.extent)));
  }
  return absl::OkStatus();
}

}  // namespace

BatchSchema::BatchSchema() = default;
BatchSchema::BatchSchema(const BatchSchema& other) = default;
BatchSchema::BatchSchema(BatchSchema&& other) noexcept = default;
BatchSchema& BatchSchema::operator=(const BatchSchema& other) = default;
BatchSchema& BatchSchema::operator=(BatchSchema&& other) noexcept = default;
BatchSchema::~BatchSchema() = default;

policy::BySlot<policy::PolicyId> BatchSchema::PolicyIds() const {
  policy::BySlot<policy::PolicyId> ids;
  for (const policy::PolicySpec& spec : policies) ids.push_back(spec.id);
  return ids;
}

bool BatchSchema::IsGone(policy::PolicySlot slot, int64_t policies_revision) const {
  if (policies_since.empty() || slot.value() < 0 || slot.value() >= NumSlots()) return false;
  return !policies_since.Contains(slot) || policies_since[slot] < 0 || policies_since[slot] > policies_revision;
}

int32_t BatchSchema::NumSlots() const {
  return static_cast<int32_t>(policies_since.empty() ? policies.size() : policy::PolicyTable::kMaxPolicies);
}

void BatchSchema::SetPolicies(const policy::PolicyTable& table) {
  policies = table.Specs();
  newest_revision = table.revision();
  const bool is_read = AnyReadsState(policies.values());
  if (!state_readings.empty() && state_readings.back().is_read == is_read) return;
  state_readings.push_back({newest_revision, is_read});
}

std::optional<bool> BatchSchema::SendsEnvState(int64_t policies_revision) const {
  if (always_sends_state) return true;
  if (state_readings.empty()) return AnyReadsState(policies.values());
  if (policies_revision < state_readings.front().since || policies_revision > newest_revision) return std::nullopt;
  const auto next =
      std::find_if(state_readings.begin(), state_readings.end(),
                   [policies_revision](const StateReading& reading) { return reading.since > policies_revision; });
  return std::prev(next)->is_read;
}

EnvSizes BatchSchema::sizes(int64_t policies_revision, bool with_state) const {
  const bool sent = SendsEnvState(policies_revision).value_or(with_state);
  return {sent ? env_state_size : 0, agent_state_size, has_agent_mask, always_sends_state};
}

uint64_t BatchSchema::Hash() const { return Fnv1a(CanonicalText(*this)); }

uint64_t BatchSchema::WorkerHash() const {
  BatchSchema told = *this;
  for (policy::PolicySpec& spec : told.policies) spec.policy_class = spec.policy_class.ForWorkers();
  std::string text = CanonicalText(told);
  if (always_sends_state) text += ";send_state=always";
  return Fnv1a(text);
}

absl::Status ValidateShapes(const MultiAgentBatch& batch, const BatchSchema& schema, const BatchLimits& limits) {
  // A step of which every row is still pending counts, but has no row yet: so env_rows is no bound for num_env_steps.
  TROUPE_RETURN_IF_ERROR(CheckCount("num_env_steps", batch.num_env_steps, 0, limits.max_env_steps));
  TROUPE_RETURN_IF_ERROR(CheckCount("env_rows", batch.env_rows, 0, limits.max_env_rows));
  TROUPE_RETURN_IF_ERROR(CheckCount("final_env_rows", batch.final_env_rows, 0, limits.max_env_rows - batch.env_rows));
  if (batch.iteration < 0) {
    return absl::InvalidArgumentError(absl::StrCat("iteration is ", batch.iteration, ", expected at least 0"));
  }
  TROUPE_RETURN_IF_ERROR(
      CheckCount("policies_revision", batch.policies_revision, 0, std::numeric_limits<int64_t>::max()));
  TROUPE_RETURN_IF_ERROR(CheckCount("oldest_revision", batch.oldest_revision, 0, batch.policies_revision));
  TROUPE_RETURN_IF_ERROR(CheckEpisodes(batch, schema, limits));
  const EnvSizes sizes = schema.sizes(batch.policies_revision, batch.state.present());
  ColumnChecker columns(limits.max_message_bytes);
  for (const auto& column : StepColumns()) {
    TROUPE_RETURN_IF_ERROR(
        columns.Check("env-step table", column.name, batch.*column.member, column.form(sizes), NumRows(batch)));
  }
  int32_t previous = -1;
  int64_t agent_steps_bound = 0;
  for (const PolicyRows& rows : batch.policies) {
    const int32_t slot = rows.policy.value();
    if (slot < 0 || slot >= schema.NumSlots()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows of unknown policy slot ", slot, ", expected 0 to ", schema.NumSlots() - 1));
    }
    if (slot <= previous) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy slot ", slot, " after ", previous, ", expected ascending slots"));
    }
    previous = slot;
    if (schema.IsGone(rows.policy, batch.policies_revision)) {
      // Nobody will read its columns.
      TROUPE_RETURN_IF_ERROR(
          CheckCount(absl::StrCat("rows of policy slot ", slot), rows.rows, 1, limits.max_rows_per_policy));
    } else if (!schema.policies.Contains(rows.policy) || schema.policies[rows.policy].id.value().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("rows of policy slot ", slot, ", which no policy has"));
    } else {
      TROUPE_RETURN_IF_ERROR(CheckPolicyRows(rows, schema.policies[rows.policy], sizes, limits, columns));
      // Follows from the columns above but in fragments of a revision that is not known.
      if (sizes.env_state_size < schema.env_state_size && ReadsState(schema.policies[rows.policy])) {
        return absl::InvalidArgumentError(absl::StrCat("rows of policy '", schema.policies[rows.policy].id.value(),
                                                       "', whose critic reads the global state, but column 'state' of "
                                                       "the env-step table is absent"));
      }
    }
    agent_steps_bound += rows.rows;
  }
  // A row is done when its agent observes again, or its episode ends: in a step, once an agent.
  const auto num_agents = static_cast<int64_t>(schema.agent_ids.size());
  if (agent_steps_bound > batch.num_env_steps * num_agents) {
    return absl::InvalidArgumentError(absl::StrCat("num_env_steps is ", batch.num_env_steps, ", but there are ",
                                                   agent_steps_bound, " rows of policies, expected at most ",
                                                   batch.num_env_steps * num_agents, ": one an agent (", num_agents,
                                                   ") in each step"));
  }
  return CheckCount("num_agent_steps", batch.num_agent_steps, 0, agent_steps_bound);
}

}  // namespace troupe::sample
