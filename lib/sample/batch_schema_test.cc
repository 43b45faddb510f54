#include "lib/sample/batch_schema.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lib/sample/columns.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::sample {
namespace {

TEST(BatchSchemaTest, HashTellsEveryFieldApart) {
  const BatchSchema schema = RandomSchema(1);
  EXPECT_EQ(schema.Hash(), RandomSchema(1).Hash());
  const auto changed = [&schema](auto change) {
    BatchSchema other = schema;
    change(other);
    return other.Hash();
  };
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.agent_ids[0] += "x"; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.agent_observation_sizes[0] += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.policies[0].model.actor_hidden_sizes = {9}; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.policies.pop_back(); }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.env_state_size += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.agent_state_size += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.has_agent_mask = !s.has_agent_mask; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.num_info_columns += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.num_envs += 1; }));
}

TEST(AllFiniteTest, FindsOneBadFloatAnywhere) {
  const float bad[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(), -std::nanf("1")};
  for (const size_t size : {0, 1, 31, 32, 33, 100}) {
    std::vector<float> values(size, std::numeric_limits<float>::max());
    for (size_t i = 0; i < size; i += 3) values[i] = -std::numeric_limits<float>::denorm_min();
    EXPECT_TRUE(AllFinite(values));
    for (size_t i = 0; i < size; ++i) {
      const float kept = values[i];
      for (const float value : bad) {
        values[i] = value;
        EXPECT_FALSE(AllFinite(values)) << size << " " << i << " " << value;
      }
      values[i] = kept;
    }
  }
}

TEST(ValidateBatchTest, AcceptsEveryMadeBatch) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const BatchSchema schema = RandomSchema(seed);
    const auto batch = RandomBatch(schema, seed);
    EXPECT_TRUE(ValidateBatch(*batch, schema, {}).ok()) << "seed " << seed << ": " << ValidateBatch(*batch, schema, {});
  }
}

TEST(ValidateShapesTest, ReadsNoColumnMemory) {
  const BatchSchema schema = RandomSchema(4);
  auto batch = RandomBatch(schema, 4);
  for (const auto& column : StepColumns()) ((*batch).*column.member).data = nullptr;
  for (PolicyRows& rows : batch->policies) {
    for (const auto& column : PolicyColumns()) (rows.*column.member).data = nullptr;
  }
  EXPECT_TRUE(ValidateShapes(*batch, schema, {}).ok());
  EXPECT_FALSE(ValidateBatch(*batch, schema, {}).ok());
}

/// Each limit holds exactly: at what the batch has it passes, one below it does not.
TEST(ValidateShapesTest, EveryLimitIsExact) {
  const BatchSchema schema = SimpleSchema(2, 4);
  FakeRolloutOptions options;
  options.min_episode_steps = options.max_episode_steps = 5;
  const auto batch = MakeBatch(schema, options, 3, 7);
  const PolicyRows& rows = batch->policies[0];
  BatchLimits exact;
  exact.max_rows_per_policy = rows.rows;
  exact.max_env_rows = std::max(batch->env_rows, batch->num_env_steps);
  exact.max_episodes = static_cast<int64_t>(batch->episodes.size());
  exact.max_message_bytes = static_cast<int64_t>(ColumnBytes(*batch));
  EXPECT_TRUE(ValidateShapes(*batch, schema, exact).ok()) << ValidateShapes(*batch, schema, exact);
  for (int64_t BatchLimits::*limit : {&BatchLimits::max_rows_per_policy, &BatchLimits::max_env_rows,
                                      &BatchLimits::max_episodes, &BatchLimits::max_message_bytes}) {
    BatchLimits less = exact;
    less.*limit -= 1;
    EXPECT_EQ(ValidateShapes(*batch, schema, less).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ValidateBatchTest, AcceptsAFragmentWithoutRows) {
  const BatchSchema schema = SimpleSchema();
  MultiAgentBatch batch;
  batch.num_env_steps = 1;
  batch.last_of_grant = true;
  EXPECT_TRUE(ValidateBatch(batch, schema, {}).ok());
}

TEST(ValidateShapesTest, RowsOfPoliciesThatAreGoneAreLeftToTheLearner) {
  BatchSchema schema = SimpleSchema(2, 3);
  schema.policies.push_back(schema.policies[0]);
  schema.policies[1].id = policy::PolicyId("other");
  FakeRolloutOptions options;
  options.policies_of_slot = {{0}, {1}};
  const auto batch = MakeBatch(schema, options, 2, 10);
  const auto valid = [&] { return ValidateShapes(*batch, schema, {}).ok(); };
  schema.policies[1].observation_space = *space::Space::Box(-1, 1, {4});
  EXPECT_FALSE(valid()) << "another form";
  schema.policies_since = {0, 3};
  EXPECT_TRUE(valid()) << "younger than the fragment";
  batch->policies_revision = 3;
  EXPECT_FALSE(valid());
  schema.policies_since = {0, -1};
  EXPECT_TRUE(valid()) << "free";
  schema.policies.pop_back();
  schema.policies_since = {0};
  EXPECT_TRUE(valid()) << "behind the last";
  batch->policies[1].rows = int64_t{1} << 40;
  EXPECT_FALSE(valid()) << "a limit holds for all";
  batch->policies[1].rows = 1;
  batch->policies[1].policy = policy::PolicySlot(1024);
  EXPECT_FALSE(valid()) << "no slot";
}

}  // namespace
}  // namespace troupe::sample
