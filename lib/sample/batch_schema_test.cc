#include "lib/sample/batch_schema.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/sample/columns.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
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
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.policies[policy::PolicySlot(0)].actor.hidden_sizes = {9}; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.policies.pop_back(); }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.env_state_size += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.agent_state_size += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.has_agent_mask = !s.has_agent_mask; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.num_info_columns += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s.num_envs += 1; }));
  EXPECT_NE(schema.Hash(), changed([](BatchSchema& s) { s = WithCores(s, 1); }));
  const BatchSchema remembers = WithCores(schema, 1);
  const auto rewritten = [&remembers](auto change) {
    BatchSchema other = remembers;
    change(other.policies[policy::PolicySlot(0)]);
    return other.WorkerHash();
  };
  EXPECT_NE(remembers.WorkerHash(), rewritten([](policy::PolicySpec& p) { p.sequence_length += 1; }));
  EXPECT_NE(remembers.WorkerHash(), rewritten([](policy::PolicySpec& p) { p.actor.core.size += 1; }));
  EXPECT_NE(remembers.WorkerHash(), rewritten([](policy::PolicySpec& p) { p.actor.head_hidden_sizes = {9}; }));
}

TEST(BatchSchemaTest, WhetherTheStateIsSentIsKnownToWorkersAndNoMatterOfCheckpoints) {
  BatchSchema schema = RandomSchema(1);
  const uint64_t hash = schema.Hash();
  const uint64_t worker_hash = schema.WorkerHash();
  schema.always_sends_state = true;
  EXPECT_EQ(schema.Hash(), hash);
  EXPECT_NE(schema.WorkerHash(), worker_hash);
  schema.state_readings.push_back({3, true});
  schema.newest_revision = 9;
  schema.always_sends_state = false;
  EXPECT_EQ(schema.WorkerHash(), worker_hash) << "what changes in a run is not in it";
}

/// A schema whose environment has a per-env state that nobody reads yet.
BatchSchema SchemaWithState() {
  BatchSchema schema = SimpleSchema(2, 3);
  schema.env_state_size = 4;
  return schema;
}

policy::PolicySpec Reader(const BatchSchema& schema) {
  policy::PolicySpec spec = schema.policies[policy::PolicySlot(0)];
  spec.id = policy::PolicyId("reader");
  spec.SetCriticInput(policy::NetworkInput::kState, schema.env_state_size);
  return spec;
}

TEST(BatchSchemaTest, TheStateIsSentWhereACriticReadsIt) {
  BatchSchema schema = SchemaWithState();
  EXPECT_EQ(schema.SendsEnvState(0), false);
  EXPECT_EQ(schema.sizes(0).env_state_size, 0);
  EXPECT_EQ(schema.sizes(7).env_state_size, 0);
  schema.always_sends_state = true;
  EXPECT_EQ(schema.SendsEnvState(0), true);
  EXPECT_EQ(schema.sizes(0).env_state_size, 4);
  schema.always_sends_state = false;
  schema.policies.push_back(Reader(schema));
  EXPECT_EQ(schema.SendsEnvState(0), true);
}

TEST(BatchSchemaTest, EachRevisionHasItsOwnAnswer) {
  BatchSchema schema = SchemaWithState();
  const auto table = policy::PolicyTable::Make(schema.policies.values(), {true},
                                               {{"*", {{schema.policies[policy::PolicySlot(0)].id}}}},
                                               {schema.agent_ids[0], schema.agent_ids[1]});
  ASSERT_TRUE(table.ok()) << table.status();
  const policy::PolicyTablePtr first = (*table)->AtLeast(5);
  const policy::PolicyTablePtr with_reader = *first->Add(Reader(schema), true);
  const policy::PolicyTablePtr untrained = *with_reader->SetTrains(policy::PolicyId("reader"), false);
  const policy::PolicyTablePtr removed = *untrained->Remove(policy::PolicyId("reader"));
  const policy::PolicyTablePtr released = *removed->Release({{policy::PolicySlot(1)}});
  for (const policy::PolicyTablePtr& now : {first, with_reader, untrained, removed, released}) schema.SetPolicies(*now);
  EXPECT_EQ(schema.policies.size(), 1u);
  EXPECT_EQ(schema.SendsEnvState(4), std::nullopt) << "of an earlier learner";
  EXPECT_EQ(schema.SendsEnvState(first->revision()), false);
  EXPECT_EQ(schema.SendsEnvState(with_reader->revision()), true);
  EXPECT_EQ(schema.SendsEnvState(untrained->revision()), true) << "it may train again at any time";
  EXPECT_EQ(schema.SendsEnvState(removed->revision()), true) << "episodes may still play it";
  EXPECT_EQ(schema.SendsEnvState(released->revision()), false);
  EXPECT_EQ(schema.SendsEnvState(released->revision() + 1), std::nullopt) << "of a table that is still to come";
  EXPECT_EQ(schema.state_readings.size(), 3u) << "one entry a turn, not a revision";
}

TEST(ValidateBatchTest, AcceptsEveryMadeBatch) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    for (const BatchSchema& schema : {RandomSchema(seed), WithCores(RandomSchema(seed), seed)}) {
      const auto batch = RandomBatch(schema, seed);
      EXPECT_TRUE(ValidateBatch(*batch, schema, {}).ok())
          << "seed " << seed << ": " << ValidateBatch(*batch, schema, {});
    }
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
  exact.max_env_steps = batch->num_env_steps;
  exact.max_env_rows = NumRows(*batch);
  exact.max_episodes = static_cast<int64_t>(batch->episodes.size());
  exact.max_segments_per_policy = rows.num_segments;
  exact.max_message_bytes = static_cast<int64_t>(ColumnBytes(*batch));
  EXPECT_TRUE(ValidateShapes(*batch, schema, exact).ok()) << ValidateShapes(*batch, schema, exact);
  for (int64_t BatchLimits::*limit :
       {&BatchLimits::max_rows_per_policy, &BatchLimits::max_env_steps, &BatchLimits::max_env_rows,
        &BatchLimits::max_episodes, &BatchLimits::max_segments_per_policy, &BatchLimits::max_message_bytes}) {
    BatchLimits less = exact;
    less.*limit -= 1;
    EXPECT_EQ(ValidateShapes(*batch, schema, less).code(), absl::StatusCode::kInvalidArgument);
  }
}

/// A fragment of a reader's rows, made with the state.
std::shared_ptr<MultiAgentBatch> ReadersBatch(BatchSchema schema, int64_t revision) {
  schema.policies = {Reader(schema)};
  const auto batch = MakeBatch(schema, {}, 2, 6);
  batch->policies_revision = batch->oldest_revision = revision;
  return batch;
}

TEST(ValidateBatchTest, AStateThatIsNotDueIsRefusedInWordsAndSoIsAMissingOne) {
  BatchSchema schema = SchemaWithState();
  const auto with = MakeBatch(
      [&] {
        BatchSchema always = schema;
        always.always_sends_state = true;
        return always;
      }(),
      {}, 2, 6);
  const auto without = MakeBatch(schema, {}, 2, 6);
  const auto message = [&schema](const MultiAgentBatch& batch) {
    return std::string(ValidateBatch(batch, schema, {}).message());
  };
  EXPECT_EQ(message(*without), "");
  EXPECT_THAT(message(*with), testing::HasSubstr("env-step table: column 'state' is float32["));
  EXPECT_THAT(message(*with), testing::HasSubstr("expected none"));
  schema.always_sends_state = true;
  EXPECT_EQ(message(*with), "");
  EXPECT_THAT(message(*without), testing::HasSubstr("env-step table: column 'state' is absent, expected float32["));
}

TEST(ValidateBatchTest, AFragmentIsJudgedByItsOwnRevision) {
  BatchSchema schema = SchemaWithState();
  schema.state_readings = {{2, false}, {4, true}, {6, false}};
  schema.newest_revision = 8;
  const auto without = MakeBatch(schema, {}, 2, 6);
  BatchSchema always = schema;
  always.always_sends_state = true;
  const auto with = MakeBatch(always, {}, 2, 6);
  const auto valid = [&schema](const std::shared_ptr<MultiAgentBatch>& batch, int64_t revision) {
    batch->policies_revision = batch->oldest_revision = revision;
    return ValidateBatch(*batch, schema, {}).ok();
  };
  for (const int64_t revision : {2, 3, 6, 7, 8}) {
    EXPECT_TRUE(valid(without, revision)) << revision;
    EXPECT_FALSE(valid(with, revision)) << revision;
  }
  for (const int64_t revision : {4, 5}) {
    EXPECT_FALSE(valid(without, revision)) << revision;
    EXPECT_TRUE(valid(with, revision)) << revision;
  }
  for (const int64_t revision : {0, 1, 9}) {
    EXPECT_TRUE(valid(without, revision)) << revision;
    EXPECT_TRUE(valid(with, revision)) << revision;
  }
}

TEST(ValidateBatchTest, RowsOfAReaderNeedTheStateInWhateverRevision) {
  BatchSchema schema = SchemaWithState();
  const auto batch = ReadersBatch(schema, 1);
  schema.policies = {Reader(schema)};
  schema.state_readings = {{5, true}};
  schema.newest_revision = 5;
  EXPECT_TRUE(ValidateBatch(*batch, schema, {}).ok()) << ValidateBatch(*batch, schema, {});
  batch->state = ColumnView();
  EXPECT_THAT(std::string(ValidateShapes(*batch, schema, {}).message()),
              testing::HasSubstr("rows of policy 'reader', whose critic reads the global state, but column 'state'"));
}

TEST(ValidateBatchTest, APerAgentStateIsInTheRowsOfThosePoliciesThatReadIt) {
  BatchSchema schema = SimpleSchema(2, 3);
  schema.agent_state_size = 4;
  schema.policies.push_back(Reader(schema));
  schema.policies[policy::PolicySlot(1)].SetCriticInput(policy::NetworkInput::kState, 4);
  FakeRolloutOptions options;
  options.policies_of_slot = {{0}, {1}};
  options.terminated_probability = 0;
  const auto batch = MakeBatch(schema, options, 2, 6);
  EXPECT_TRUE(ValidateBatch(*batch, schema, {}).ok()) << ValidateBatch(*batch, schema, {});
  EXPECT_FALSE(batch->policies[0].state.present());
  EXPECT_FALSE(batch->policies[0].final_state.present());
  EXPECT_EQ(batch->policies[1].state.row_elements, 4);
  EXPECT_EQ(batch->policies[1].final_state.row_elements, 4);
  schema.always_sends_state = true;
  EXPECT_THAT(std::string(ValidateShapes(*batch, schema, {}).message()),
              testing::HasSubstr("policy 'shared': column 'state' is absent, expected float32["));
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
  schema.policies.push_back(schema.policies[policy::PolicySlot(0)]);
  schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("other");
  FakeRolloutOptions options;
  options.policies_of_slot = {{0}, {1}};
  const auto batch = MakeBatch(schema, options, 2, 10);
  const auto valid = [&] { return ValidateShapes(*batch, schema, {}).ok(); };
  schema.policies[policy::PolicySlot(1)].observation_space = *space::Space::Box(-1, 1, {4});
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
