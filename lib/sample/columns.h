#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "lib/policy/policy_fwd.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/column_sets.h"
#include "lib/sample/env_sizes.h"
#include "lib/space/space.h"
#include "lib/tensor/dtype.h"

namespace troupe::sample {

/// Dtype and width of a column in a run; dtype kUnspecified: the run has no such column.
struct ColumnForm {
  tensor::DType dtype = tensor::DType::kUnspecified;
  int64_t row_elements = 0;

  bool present() const { return dtype != tensor::DType::kUnspecified; }
  int64_t row_bytes() const { return row_elements * static_cast<int64_t>(tensor::ElementBytes(dtype)); }
  bool operator==(const ColumnForm& other) const = default;
};

/// What a column has one row for.
enum class Extent : uint8_t {
  kRow,       ///< a decision of an agent: PolicyRows::rows
  kSegment,   ///< PolicyRows::num_segments
  kFinalRow,  ///< what an agent saw last: PolicyRows::final_rows
  kMemory,    ///< a state of a core that is sent: PolicyRows::num_memories
  kEnvStep,   ///< MultiAgentBatch::env_rows + final_env_rows
};

/// What ValidateBatch asks of a column's values, whatever else it asks of how columns fit together.
enum class Contents : uint8_t {
  kFinite,   ///< floats are finite; of other dtypes nothing
  kBits,     ///< bytes are 0 or 1
  kRewards,  ///< within BatchLimits::max_abs_return
  kIndices,  ///< nothing by themselves: each is looked up in its own way
  kActions,  ///< in the policy's action space, and allowed by the mask
};

/// How a column comes into a train batch.
enum class Gathering : uint8_t {
  kAsItIs,  ///< its rows in the batch's order, with nothing of the learner's own: only of kRow and kFinalRow
  kInForm,  ///< in a form of its own, or to lay out the batch by: the learner's assembler says how
};

/// Whether a network of the policy reads the environment's global state. One that is frozen counts: policies_to_train
/// may change at any time, and the columns with it would.
bool ReadsState(const policy::PolicySpec& policy);
/// Whether any of them does, so that a per-env state is sent. A free slot reads nothing.
bool AnyReadsState(absl::Span<const policy::PolicySpec> policies);

/// Whether the policy's actions are bytes: every leaf of its action space is discrete, with values from 0 to 255.
bool HasByteActions(const policy::PolicySpec& policy);
/// A word of an actions column, whatever its width.
inline space::ActionWord ActionAt(const ColumnView& actions, int64_t row, int64_t word) {
  const int64_t at = row * actions.row_elements + word;
  space::ActionWord action;
  if (actions.dtype == tensor::DType::kUint8) {
    action.i32 = static_cast<int32_t>(actions.data[at]);
  } else {
    action = reinterpret_cast<const space::ActionWord*>(actions.data)[at];
  }
  return action;
}

/// A row of the table of columns. `T Set::*member` is the column's place in a set of Ts; `form` follows from `Schema`.
template <typename T, typename Set, typename... Schema>
struct TableColumn {
  const char* name;  ///< as in messages, and in the header of a fragment
  T Set::*member;
  Extent extent;
  ColumnForm (*form)(const Schema&... schema);
  Contents contents;
  Gathering gathering = Gathering::kInForm;
};
template <typename T>
using PolicyColumn = TableColumn<T, PolicyColumnSet<T>, EnvSizes, policy::PolicySpec>;
template <typename T>
using StepColumn = TableColumn<T, StepColumnSet<T>, EnvSizes>;

/// The forms that the table's rows name.
namespace column_form {

ColumnForm Observation(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm Actions(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm ActionMask(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm AgentMask(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm AgentState(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm Segments(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm Float(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm RowIndex(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm Memory(const EnvSizes& env, const policy::PolicySpec& policy);
ColumnForm MemoryAt(const EnvSizes& env, const policy::PolicySpec& policy);

ColumnForm StepEpisode(const EnvSizes& env);
ColumnForm StepIndex(const EnvSizes& env);
ColumnForm EnvState(const EnvSizes& env);

}  // namespace column_form

inline constexpr size_t kNumPolicyColumns = sizeof(PolicyColumnSet<char>);
inline constexpr size_t kNumStepColumns = sizeof(StepColumnSet<char>);

/// The table: every column of a policy's rows once, in the order in which they lie on the wire. Schema, validator, byte
/// counts, codec, fragment storage and the tests' fakes walk it (CONTRIBUTING.md, "Add a column").
template <typename T>
inline constexpr std::array<PolicyColumn<T>, kNumPolicyColumns> kPolicyColumns = {{
    {"obs", &PolicyColumnSet<T>::obs, Extent::kRow, column_form::Observation, Contents::kFinite},
    {"actions", &PolicyColumnSet<T>::actions, Extent::kRow, column_form::Actions, Contents::kActions},
    {"action_logp", &PolicyColumnSet<T>::action_logp, Extent::kRow, column_form::Float, Contents::kFinite,
     Gathering::kAsItIs},
    {"rewards", &PolicyColumnSet<T>::rewards, Extent::kRow, column_form::Float, Contents::kRewards, Gathering::kAsItIs},
    {"action_mask", &PolicyColumnSet<T>::action_mask, Extent::kRow, column_form::ActionMask, Contents::kBits,
     Gathering::kAsItIs},
    {"agent_mask", &PolicyColumnSet<T>::agent_mask, Extent::kRow, column_form::AgentMask, Contents::kBits,
     Gathering::kAsItIs},
    {"env_row", &PolicyColumnSet<T>::env_row, Extent::kRow, column_form::RowIndex, Contents::kIndices},
    {"segment", &PolicyColumnSet<T>::segment, Extent::kRow, column_form::RowIndex, Contents::kIndices},
    {"state", &PolicyColumnSet<T>::state, Extent::kRow, column_form::AgentState, Contents::kFinite},
    {"segments", &PolicyColumnSet<T>::segments, Extent::kSegment, column_form::Segments, Contents::kIndices},
    {"final_obs", &PolicyColumnSet<T>::final_obs, Extent::kFinalRow, column_form::Observation, Contents::kFinite},
    {"final_action_mask", &PolicyColumnSet<T>::final_action_mask, Extent::kFinalRow, column_form::ActionMask,
     Contents::kBits, Gathering::kAsItIs},
    {"final_env_row", &PolicyColumnSet<T>::final_env_row, Extent::kFinalRow, column_form::RowIndex, Contents::kIndices},
    {"final_state", &PolicyColumnSet<T>::final_state, Extent::kFinalRow, column_form::AgentState, Contents::kFinite},
    {"memory", &PolicyColumnSet<T>::memory, Extent::kMemory, column_form::Memory, Contents::kFinite},
    {"memory_at", &PolicyColumnSet<T>::memory_at, Extent::kMemory, column_form::MemoryAt, Contents::kIndices},
}};

/// The same of the env-step tables.
template <typename T>
inline constexpr std::array<StepColumn<T>, kNumStepColumns> kStepColumns = {{
    {"step_episode", &StepColumnSet<T>::step_episode, Extent::kEnvStep, column_form::StepEpisode, Contents::kIndices},
    {"step_index", &StepColumnSet<T>::step_index, Extent::kEnvStep, column_form::StepIndex, Contents::kIndices},
    {"state", &StepColumnSet<T>::state, Extent::kEnvStep, column_form::EnvState, Contents::kFinite},
}};

/// `for (const auto& column : PolicyColumns())` walks a PolicyRows, PolicyColumns<T>() any set of Ts.
template <typename T = ColumnView>
constexpr const std::array<PolicyColumn<T>, kNumPolicyColumns>& PolicyColumns() {
  return kPolicyColumns<T>;
}
template <typename T = ColumnView>
constexpr const std::array<StepColumn<T>, kNumStepColumns>& StepColumns() {
  return kStepColumns<T>;
}

/// Whether every member of `Set`, a set of chars, stands in the table once.
template <typename Set, typename Table>
constexpr bool HasEachMemberOnce(const Table& table) {
  Set seen{};
  for (const auto& column : table) ++(seen.*column.member);
  for (const auto& column : table) {
    if (seen.*column.member != 1) return false;
  }
  return table.size() == sizeof(Set);
}
static_assert(HasEachMemberOnce<PolicyColumnSet<char>>(kPolicyColumns<char>));
static_assert(HasEachMemberOnce<StepColumnSet<char>>(kStepColumns<char>));

constexpr bool OnlyRowsAreGatheredAsTheyAre() {
  for (const auto& column : kPolicyColumns<char>) {
    const bool is_row = column.extent == Extent::kRow || column.extent == Extent::kFinalRow;
    if (column.gathering == Gathering::kAsItIs && !is_row) return false;
  }
  for (const auto& column : kStepColumns<char>) {
    if (column.gathering == Gathering::kAsItIs) return false;
  }
  return true;
}
static_assert(OnlyRowsAreGatheredAsTheyAre());

/// The forms of all columns, in the table's order.
using PolicyForms = std::array<ColumnForm, kNumPolicyColumns>;
using StepForms = std::array<ColumnForm, kNumStepColumns>;
PolicyForms FormsOf(const EnvSizes& env, const policy::PolicySpec& policy);
StepForms FormsOf(const EnvSizes& env);

/// Bytes that a row of all columns of `extent` takes.
int64_t RowBytes(const PolicyForms& forms, Extent extent);
int64_t RowBytes(const StepForms& forms);

/// How many rows a column of `extent` has, as the counts beside the columns say. `extent` is one of a policy's columns.
int64_t NumRows(const PolicyRows& rows, Extent extent);
/// The same of the env-step tables.
int64_t NumRows(const MultiAgentBatch& batch);

/// Bytes of all columns of a fragment, without what lies between them on the wire.
size_t ColumnBytes(const MultiAgentBatch& batch);

}  // namespace troupe::sample
