#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "lib/sample/column_sets.h"
#include "lib/sample/columns.h"
#include "proto/troupe/v1/rollout.pb.h"

namespace troupe::rpc {

/// The Column of a header that describes a column, by the name that both have.
template <typename Proto>
struct HeaderColumn {
  std::string_view name;
  bool (Proto::*has)() const = nullptr;
  const v1::Column& (Proto::*get)() const = nullptr;
  v1::Column* (Proto::*mutable_column)() = nullptr;
};

#define TROUPE_COLUMN(Proto, name) \
  HeaderColumn<Proto> { #name, &Proto::has_##name, &Proto::name, &Proto::mutable_##name }

/// One for each row of sample::PolicyColumns(), in its order.
inline constexpr std::array<HeaderColumn<v1::PolicyRows>, sample::kNumPolicyColumns> kPolicyHeader = {{
    TROUPE_COLUMN(v1::PolicyRows, obs),
    TROUPE_COLUMN(v1::PolicyRows, actions),
    TROUPE_COLUMN(v1::PolicyRows, action_logp),
    TROUPE_COLUMN(v1::PolicyRows, rewards),
    TROUPE_COLUMN(v1::PolicyRows, action_mask),
    TROUPE_COLUMN(v1::PolicyRows, agent_mask),
    TROUPE_COLUMN(v1::PolicyRows, env_row),
    TROUPE_COLUMN(v1::PolicyRows, segment),
    TROUPE_COLUMN(v1::PolicyRows, state),
    TROUPE_COLUMN(v1::PolicyRows, segments),
    TROUPE_COLUMN(v1::PolicyRows, final_obs),
    TROUPE_COLUMN(v1::PolicyRows, final_action_mask),
    TROUPE_COLUMN(v1::PolicyRows, final_env_row),
    TROUPE_COLUMN(v1::PolicyRows, final_state),
    TROUPE_COLUMN(v1::PolicyRows, memory),
    TROUPE_COLUMN(v1::PolicyRows, memory_at),
}};

/// One for each row of sample::StepColumns(), in its order.
inline constexpr std::array<HeaderColumn<v1::Fragment>, sample::kNumStepColumns> kStepHeader = {{
    TROUPE_COLUMN(v1::Fragment, step_episode),
    TROUPE_COLUMN(v1::Fragment, step_index),
    TROUPE_COLUMN(v1::Fragment, state),
}};

#undef TROUPE_COLUMN

template <typename Table, typename Header>
constexpr bool HasTheSameNames(const Table& table, const Header& header) {
  for (size_t c = 0; c < table.size(); ++c) {
    if (header[c].name != std::string_view(table[c].name)) return false;
  }
  return true;
}
static_assert(HasTheSameNames(sample::PolicyColumns(), kPolicyHeader), "a column of the table has no Column");
static_assert(HasTheSameNames(sample::StepColumns(), kStepHeader), "a column of the table has no Column");

/// One column in both of its forms: the view in a batch, and the Column of the header. Encoder and decoder walk these.
template <typename Set, typename Proto>
struct ColumnField {
  const char* name = "";
  sample::ColumnView Set::*view = nullptr;
  bool (Proto::*has)() const = nullptr;
  const v1::Column& (Proto::*get)() const = nullptr;
  v1::Column* (Proto::*mutable_column)() = nullptr;
};

template <typename Set, typename Proto, typename Table, size_t N>
constexpr std::array<ColumnField<Set, Proto>, N> Join(const Table& table,
                                                      const std::array<HeaderColumn<Proto>, N>& header) {
  std::array<ColumnField<Set, Proto>, N> fields{};
  for (size_t c = 0; c < N; ++c) {
    fields[c] = {table[c].name, table[c].member, header[c].has, header[c].get, header[c].mutable_column};
  }
  return fields;
}

/// In the order of the payload: first those of the env-step tables, then those of each policy.
inline constexpr auto kStepFields = Join<sample::StepColumnSet<sample::ColumnView>>(sample::StepColumns(), kStepHeader);
inline constexpr auto kPolicyFields =
    Join<sample::PolicyColumnSet<sample::ColumnView>>(sample::PolicyColumns(), kPolicyHeader);

}  // namespace troupe::rpc
