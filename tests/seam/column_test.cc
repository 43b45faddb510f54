// What one more column of rows takes: a member and a row of the table (add_column.cmake). Builder, schema, validator
// and assembler are compiled with that table here, and nothing of them knows the column by name.

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lib/learner/assembler.h"
#include "lib/learner/testing/naive_gather.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"
#include "lib/sample/testing/batch_maker.h"

namespace troupe::learner {
namespace {

/// Fragments in whose added column each row has a number of its own, which stands in `by_logp` beside the row's
/// log-probability: that of no two rows is the same.
std::vector<sample::MultiAgentBatchPtr> Fragments(const sample::BatchSchema& schema, std::map<float, float>* by_logp) {
  std::vector<sample::MultiAgentBatchPtr> fragments = RandomFragments(schema, /*seed=*/3, /*iteration=*/1);
  float next = 0;
  for (const sample::MultiAgentBatchPtr& fragment : fragments) {
    for (const sample::PolicyRows& rows : fragment->policies) {
      const absl::Span<const float> logp = rows.action_logp.As<float>();
      for (int64_t r = 0; r < rows.rows; ++r) {
        sample::MutableColumn<float>(rows.added)[r] = ++next;
        (*by_logp)[logp[r]] = next;
      }
    }
  }
  return fragments;
}

TEST(ColumnSeamTest, AColumnOfTheTableAloneIsInTheTrainBatch) {
  const sample::BatchSchema schema = sample::SimpleSchema();
  std::map<float, float> by_logp;
  const std::vector<sample::MultiAgentBatchPtr> fragments = Fragments(schema, &by_logp);
  Assembler assembler(schema, {.max_policy_lag = 1});
  const TrainBatch& batch = assembler.Assemble(fragments, /*iteration=*/1).batch;
  int64_t seen = 0;
  for (const PolicyTrainBatch& rows : batch.policies) {
    const absl::Span<const float> added = rows.columns.added.As<float>();
    ASSERT_EQ(static_cast<int64_t>(added.size()), rows.rows);
    for (int64_t r = 0; r < rows.rows; ++r, ++seen) EXPECT_EQ(added[r], by_logp.at(rows.action_logp[r])) << r;
  }
  EXPECT_EQ(seen, static_cast<int64_t>(by_logp.size()));
  EXPECT_GT(seen, 50);
}

TEST(ColumnSeamTest, ItIsCountedAndChecked) {
  const sample::BatchSchema schema = sample::SimpleSchema();
  std::map<float, float> by_logp;
  const sample::MultiAgentBatchPtr fragment = Fragments(schema, &by_logp)[0];
  ASSERT_TRUE(sample::ValidateBatch(*fragment, schema, {}).ok());
  const sample::PolicyRows& rows = fragment->policies[0];
  EXPECT_EQ(rows.added.bytes(), static_cast<size_t>(rows.rows) * sizeof(float));
  sample::MutableColumn<float>(rows.added)[0] = std::numeric_limits<float>::quiet_NaN();
  const absl::Status refused = sample::ValidateBatch(*fragment, schema, {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("added"), std::string::npos) << refused;
}

}  // namespace
}  // namespace troupe::learner
