#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/ids.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/multi_agent_batch.h"
#include "lib/space/space.h"

namespace troupe::sample {

/// One row as a test writes it. Vectors that the schema has no column for stay empty.
struct RowValues {
  std::vector<float> obs;  ///< for uint8 observations: the bytes' values
  std::vector<space::ActionWord> actions;
  float action_logp = 0;
  float reward = 0;
  std::vector<uint8_t> action_mask;
  uint8_t agent_mask = 1;
  std::vector<float> state;
  int32_t decision = 0;       ///< which one of its agent in its episode; looked at where the policy has a core
  std::vector<float> memory;  ///< of before it; where the actor has one
};

/// Puts a fragment together row by row, for tests: slow, obvious and without checks, so that it also makes bad ones.
/// Columns that no row says anything of are zeros. The columns' memory belongs to the batch and may be changed through
/// MutableColumn. Not thread-safe.
class BatchBuilder {
 public:
  /// `schema` must outlive the builder.
  explicit BatchBuilder(const BatchSchema& schema);
  ~BatchBuilder();

  /// The part that is no column: ids, counts, episodes, finished.
  MultiAgentBatch& header() { return header_; }

  int AddEpisode(base::EnvId env_id, uint32_t episode, int32_t first_step, bool continues,
                 std::vector<AgentEntry> agents);
  /// A step at which agents acted; its index in the env-step table.
  int AddEnvRow(int episode, int32_t step, std::vector<float> state = {});
  /// A step only looked at; a reference for AddFinalRow (negative until Build puts it after the acting ones).
  int AddFinalEnvRow(int episode, int32_t step, std::vector<float> state = {});
  int AddSegment(int policy, int episode, base::AgentSlot slot, int32_t version_lag = 0, bool waited = false);
  /// Of a policy with a core also what it remembered, where PolicyRows asks for it.
  void AddRow(int policy, int segment, int env_row, const RowValues& values);
  /// Says how a segment ends; `final_values` (obs, action_mask, state) only for a cut or truncated one.
  void EndSegment(int policy, int segment, SegmentEnd end, int final_env_row = 0, const RowValues& final_values = {});
  void SetVersion(int policy, policy::WeightVersion version);

  /// The batch; num_agent_steps is counted. The builder is spent.
  std::shared_ptr<MultiAgentBatch> Build();

 private:
  using Bytes = std::vector<std::byte>;
  struct Policy;
  struct StepRow {
    int32_t episode;
    int32_t step;
    std::vector<float> state;
  };
  Policy& Rows(int policy);

  const BatchSchema& schema_;
  MultiAgentBatch header_;
  std::vector<StepRow> steps_;
  std::vector<StepRow> final_steps_;
  std::vector<std::unique_ptr<Policy>> policies_;
};

/// The elements of a column whose memory the test owns.
template <typename T>
absl::Span<T> MutableColumn(const ColumnView& column) {
  const absl::Span<const T> span = column.As<T>();
  return absl::Span<T>(const_cast<T*>(span.data()), span.size());
}

}  // namespace troupe::sample
