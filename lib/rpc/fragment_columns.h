#pragma once

#include <array>

#include "lib/sample/multi_agent_batch.h"
#include "proto/troupe/v1/rollout.pb.h"

namespace troupe::rpc {

/// One column in both of its forms: the view in a batch, and the Column of the header. Encoder and decoder walk the
/// same tables, so a column cannot be in one and not in the other.
template <typename Rows, typename Proto>
struct ColumnField {
  const char* name;
  sample::ColumnView Rows::*view;
  bool (Proto::*has)() const;
  const v1::Column& (Proto::*get)() const;
  v1::Column* (Proto::*mutable_column)();
};

#define TROUPE_COLUMN(Rows, Proto, name) \
  ColumnField<Rows, Proto> { #name, &Rows::name, &Proto::has_##name, &Proto::name, &Proto::mutable_##name }

/// In the order of the payload.
inline const std::array<ColumnField<sample::PolicyRows, v1::PolicyRows>, 16>& PolicyColumns() {
  static const std::array<ColumnField<sample::PolicyRows, v1::PolicyRows>, 16> kColumns = {
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, obs),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, actions),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, action_logp),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, rewards),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, terminated),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, truncated),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, action_mask),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, agent_mask),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, env_row),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, segment),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, state),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, segments),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, final_obs),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, final_action_mask),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, final_env_row),
      TROUPE_COLUMN(sample::PolicyRows, v1::PolicyRows, final_state),
  };
  return kColumns;
}

inline const std::array<ColumnField<sample::MultiAgentBatch, v1::Fragment>, 3>& BatchColumns() {
  static const std::array<ColumnField<sample::MultiAgentBatch, v1::Fragment>, 3> kColumns = {
      TROUPE_COLUMN(sample::MultiAgentBatch, v1::Fragment, step_episode),
      TROUPE_COLUMN(sample::MultiAgentBatch, v1::Fragment, step_index),
      TROUPE_COLUMN(sample::MultiAgentBatch, v1::Fragment, state),
  };
  return kColumns;
}

#undef TROUPE_COLUMN

}  // namespace troupe::rpc
