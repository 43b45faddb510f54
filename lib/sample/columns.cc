#include "lib/sample/columns.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lib/base/check.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::sample {

bool ReadsState(const policy::PolicySpec& policy) { return policy.Reads(policy::NetworkInput::kState); }

bool AnyReadsState(absl::Span<const policy::PolicySpec> policies) {
  return std::any_of(policies.begin(), policies.end(), ReadsState);
}

bool HasByteActions(const policy::PolicySpec& policy) {
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(policy.action_space);
  return std::all_of(leaves.begin(), leaves.end(), [](const space::ActionLeaf& leaf) {
    return leaf.kind == space::ActionLeaf::Kind::kCategorical && leaf.start >= 0 && leaf.categories <= 256 &&
           leaf.start <= 256 - leaf.categories;
  });
}

namespace column_form {

using tensor::DType;

namespace {

constexpr ColumnForm kIndex{DType::kUint16, 1};
static_assert(sizeof(Index) == 2);

/// A column that is there where it has elements.
ColumnForm Optional(DType dtype, int64_t row_elements) {
  return row_elements > 0 ? ColumnForm{dtype, row_elements} : ColumnForm{};
}

}  // namespace

ColumnForm Observation(const EnvSizes&, const policy::PolicySpec& policy) {
  return {policy.observation_space.flat_dtype(), policy.observation_size()};
}
ColumnForm Actions(const EnvSizes&, const policy::PolicySpec& policy) {
  return {HasByteActions(policy) ? DType::kUint8 : DType::kInt32, policy.action_words()};
}
ColumnForm ActionMask(const EnvSizes&, const policy::PolicySpec& policy) {
  return Optional(DType::kUint8, policy.mask_size());
}
ColumnForm AgentMask(const EnvSizes& env, const policy::PolicySpec&) {
  return Optional(DType::kUint8, env.has_agent_mask ? 1 : 0);
}
ColumnForm AgentState(const EnvSizes& env, const policy::PolicySpec& policy) {
  return Optional(DType::kFloat32, env.send_agent_state || ReadsState(policy) ? env.agent_state_size : 0);
}
ColumnForm Segments(const EnvSizes&, const policy::PolicySpec&) { return {DType::kInt32, kSegmentFields}; }
ColumnForm Float(const EnvSizes&, const policy::PolicySpec&) { return {DType::kFloat32, 1}; }
ColumnForm RowIndex(const EnvSizes&, const policy::PolicySpec&) { return kIndex; }
ColumnForm Memory(const EnvSizes&, const policy::PolicySpec& policy) {
  return Optional(DType::kFloat32, policy.actor_state_size());
}
ColumnForm MemoryAt(const EnvSizes&, const policy::PolicySpec& policy) {
  return Optional(DType::kInt32, policy.remembers() ? kMemoryFields : 0);
}

ColumnForm StepEpisode(const EnvSizes&) { return kIndex; }
ColumnForm StepIndex(const EnvSizes&) { return {DType::kInt32, 1}; }
ColumnForm EnvState(const EnvSizes& env) { return Optional(DType::kFloat32, env.env_state_size); }

}  // namespace column_form

PolicyForms FormsOf(const EnvSizes& env, const policy::PolicySpec& policy) {
  PolicyForms forms;
  for (size_t c = 0; c < forms.size(); ++c) forms[c] = PolicyColumns()[c].form(env, policy);
  return forms;
}

StepForms FormsOf(const EnvSizes& env) {
  StepForms forms;
  for (size_t c = 0; c < forms.size(); ++c) forms[c] = StepColumns()[c].form(env);
  return forms;
}

int64_t RowBytes(const PolicyForms& forms, Extent extent) {
  int64_t bytes = 0;
  for (size_t c = 0; c < forms.size(); ++c) {
    if (PolicyColumns()[c].extent == extent) bytes += forms[c].row_bytes();
  }
  return bytes;
}

int64_t RowBytes(const StepForms& forms) {
  int64_t bytes = 0;
  for (const ColumnForm& form : forms) bytes += form.row_bytes();
  return bytes;
}

int64_t NumRows(const PolicyRows& rows, Extent extent) {
  TROUPE_CHECK(extent != Extent::kEnvStep);
  switch (extent) {
    case Extent::kRow:
      return rows.rows;
    case Extent::kSegment:
      return rows.num_segments;
    case Extent::kFinalRow:
      return rows.final_rows;
    case Extent::kMemory:
      return rows.num_memories;
    case Extent::kEnvStep:
      break;
  }
  return 0;
}

int64_t NumRows(const MultiAgentBatch& batch) { return batch.env_rows + batch.final_env_rows; }

size_t ColumnBytes(const MultiAgentBatch& batch) {
  size_t bytes = 0;
  for (const auto& column : StepColumns()) bytes += (batch.*column.member).bytes();
  for (const PolicyRows& rows : batch.policies) {
    for (const auto& column : PolicyColumns()) bytes += (rows.*column.member).bytes();
  }
  return bytes;
}

}  // namespace troupe::sample
