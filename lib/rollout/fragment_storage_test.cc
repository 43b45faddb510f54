#include "lib/rollout/fragment_storage.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/sample/multi_agent_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

RolloutSchema SmallSchema() {
  RolloutSchema schema;
  policy::PolicySpec policy;
  policy.id = policy::PolicyId("p");
  policy.observation_space = *space::Space::Box(-1, 1, {2});
  policy.action_space = *space::Space::Discrete(3);
  schema.policies.push_back(policy);
  env::AgentSpec agent;
  agent.id = env::AgentId("a");
  agent.observation_space = policy.observation_space;
  agent.action_space = policy.action_space;
  schema.env.name = "test";
  schema.env.possible_agents.push_back(agent);
  return schema;
}

TEST(PolicyColumnsTest, RowsWrittenThroughOldPointersSurviveGrowth) {
  const RolloutSchema schema = SmallSchema();
  PolicyColumns columns(sample::FormsOf(schema.sizes(), schema.policies[policy::PolicySlot(0)]));
  std::vector<float*> rows;
  for (int i = 0; i < 1000; ++i) rows.push_back(reinterpret_cast<float*>(columns.obs.Row(columns.AddRow())));
  for (int i = 0; i < 1000; ++i) {
    rows[static_cast<size_t>(i)][0] = static_cast<float>(i);
    rows[static_cast<size_t>(i)][1] = static_cast<float>(-i);
  }
  columns.Settle();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(columns.obs.As<float>()[2 * i], static_cast<float>(i));
    ASSERT_EQ(columns.obs.As<float>()[2 * i + 1], static_cast<float>(-i));
  }
}

TEST(PolicyColumnsTest, CompactTakesHolesAndEmptySegmentsOut) {
  const RolloutSchema schema = SmallSchema();
  PolicyColumns columns(sample::FormsOf(schema.sizes(), schema.policies[policy::PolicySlot(0)]));
  for (int s = 0; s < 3; ++s) columns.AddSegment(0, base::AgentSlot(s), 0);
  const int32_t segment_of[6] = {0, 1, 2, 0, 1, 2};
  for (int r = 0; r < 6; ++r) {
    const int64_t row = columns.AddRow();
    columns.obs.As<float>()[2 * row] = static_cast<float>(r);
    columns.rewards.As<float>()[row] = static_cast<float>(10 * r);
    columns.segment.As<sample::Index>()[row] = segment_of[r];
    ++columns.segment_rows[static_cast<size_t>(segment_of[r])];
  }
  // Segment 1 loses both rows, segment 2 its last.
  for (const int hole : {5, 1, 4}) {
    columns.holes.push_back(hole);
    --columns.segment_rows[static_cast<size_t>(segment_of[hole])];
  }
  columns.Compact();
  ASSERT_EQ(columns.rows, 3);
  const float obs[3] = {0, 2, 3};
  const int32_t segments[3] = {0, 1, 0};
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(columns.obs.As<float>()[2 * r], obs[r]);
    EXPECT_EQ(columns.rewards.As<float>()[r], 10 * obs[r]);
    EXPECT_EQ(columns.segment.As<sample::Index>()[r], segments[r]);
  }
  ASSERT_EQ(columns.segment_rows.size(), 2u);
  EXPECT_EQ(columns.Segment(1)[sample::kSegmentSlot], 2);
}

/// Forms of SmallSchema's policy with a core.
sample::PolicyForms FormsWithCore(const policy::CoreSpec& actor, const policy::CoreSpec& critic = {}) {
  policy::PolicySpec spec = SmallSchema().policies[policy::PolicySlot(0)];
  spec.actor.core = actor;
  spec.mutable_critic()->core = critic;
  return sample::FormsOf(SmallSchema().sizes(), spec);
}

/// Rows, decisions and first numbers of the memories.
std::vector<std::vector<float>> Memories(PolicyColumns& columns) {
  std::vector<std::vector<float>> memories;
  for (int64_t m = 0; m < columns.num_memories; ++m) {
    const int32_t* const at = columns.memory_at.As<int32_t>() + m * sample::kMemoryFields;
    memories.push_back({static_cast<float>(at[0]), static_cast<float>(at[1])});
    if (columns.memory.present()) memories.back().push_back(*reinterpret_cast<const float*>(columns.memory.Row(m)));
  }
  return memories;
}

TEST(PolicyColumnsTest, CompactTakesMemoriesOfHolesOutAndRenumbersTheOthers) {
  PolicyColumns columns(FormsWithCore({policy::CoreKind::kGru, 2, 1}));
  columns.AddSegment(0, base::AgentSlot(0), 0);
  for (int r = 0; r < 10; ++r) columns.AddRow();
  columns.segment_rows[0] = 6;
  for (int r = 0; r < 10; ++r) columns.segment.As<sample::Index>()[r] = 0;
  for (const int row : {0, 3, 4, 7, 9}) {
    const float before[2] = {static_cast<float>(row) / 2, -1};
    columns.AddMemory(row, 100 + row, before);
  }
  columns.holes = {9, 4, 1, 2};
  columns.Compact();
  EXPECT_EQ(columns.rows, 6);
  using testing::ElementsAre;
  EXPECT_THAT(Memories(columns),
              ElementsAre(ElementsAre(0, 100, 0), ElementsAre(1, 103, 1.5f), ElementsAre(4, 107, 3.5f)));
  sample::PolicyRows out;
  columns.View(0, out);
  EXPECT_EQ(out.num_memories, 3);
  EXPECT_EQ(out.memory.rows, 3);
  EXPECT_EQ(out.memory_at.rows, 3);
}

TEST(PolicyColumnsTest, WhatIsRememberedGoesThereAndBack) {
  const policy::CoreSpec gru = {policy::CoreKind::kGru, 2, 1};
  for (const bool actor : {true, false}) {
    PolicyColumns columns(actor ? FormsWithCore(gru) : FormsWithCore({}, gru));
    EXPECT_TRUE(columns.remembers());
    for (int r = 0; r < 5; ++r) columns.AddRow();
    columns.first_open = 2;
    float before[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    float after[3][2] = {};
    columns.open_decisions.resize(3);
    for (size_t i = 0; i < 3; ++i) {
      columns.open_decisions[i] = {before[i], after[i], static_cast<int32_t>(10 * i), i != 1};
    }
    columns.GatherMemory();
    if (!actor) {
      EXPECT_FALSE(columns.memory.present());
      EXPECT_EQ(Memories(columns), (std::vector<std::vector<float>>{{2, 0}, {4, 20}}));
      columns.ScatterMemory();
      EXPECT_EQ(after[0][0], 0);
      continue;
    }
    EXPECT_EQ(Memories(columns), (std::vector<std::vector<float>>{{2, 0, 1}, {4, 20, 5}}));
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(columns.open_memory[i], static_cast<float>(i + 1));
      columns.open_memory[i] = -static_cast<float>(i);
    }
    columns.ScatterMemory();
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(after[i / 2][i % 2], -static_cast<float>(i));
    EXPECT_EQ(before[2][1], 6) << "a decision that is carried needs it";
  }
}

TEST(PolicyColumnsTest, BytesCountMemoriesAndTheirColumnsWhereThereAreSome) {
  const policy::CoreSpec lstm = {policy::CoreKind::kLstm, 8, 2};
  PolicyColumns without(FormsWithCore({}));
  PolicyColumns critic(FormsWithCore({}, lstm));
  PolicyColumns both(FormsWithCore(lstm));
  EXPECT_FALSE(without.remembers());
  EXPECT_EQ(critic.Bytes(0) - without.Bytes(0), 96);
  EXPECT_EQ(both.Bytes(0) - without.Bytes(0), 2 * 96);
  const float before[32] = {};
  const int64_t empty = both.Bytes(0);
  both.AddRow();
  const int64_t with_row = both.Bytes(0);
  both.AddMemory(0, 0, before);
  EXPECT_EQ(both.Bytes(0) - with_row, 4 * 32 + 2 * 4);
  both.Clear();
  EXPECT_EQ(both.Bytes(0), empty);
}

/// What a test writes into all bytes of a row.
uint8_t Stamp(size_t column, int64_t row) { return static_cast<uint8_t>(31 * column + static_cast<size_t>(row)); }

/// Whether all bytes of a row are its stamp.
testing::AssertionResult IsStamped(const sample::ColumnView& view, int64_t row, uint8_t stamp) {
  const size_t bytes = view.bytes() / static_cast<size_t>(view.rows);
  for (size_t i = 0; i < bytes; ++i) {
    const auto got = std::to_integer<uint8_t>(view.data[static_cast<size_t>(row) * bytes + i]);
    if (got != stamp) return testing::AssertionFailure() << "row " << row << " has " << int{got} << " at byte " << i;
  }
  return testing::AssertionSuccess();
}

TEST(PolicyColumnsTest, EveryColumnOfTheTableKeepsItsRowsThroughGrowthAndCompaction) {
  policy::PolicySpec policy = SmallSchema().policies[policy::PolicySlot(0)];
  policy.has_action_mask = true;
  policy.actor.core = {policy::CoreKind::kGru, 3, 1};
  const sample::PolicyForms forms = sample::FormsOf(sample::EnvSizes{2, 3, true, true}, policy);
  PolicyColumns columns(forms);
  const auto stamp = [&columns](sample::Extent extent, int64_t row) {
    for (size_t c = 0; c < sample::kNumPolicyColumns; ++c) {
      const auto& entry = sample::PolicyColumns<Column>()[c];
      Column& column = columns.*entry.member;
      if (entry.extent != extent || &column == &columns.memory_at) continue;  // which Compact reads
      std::memset(column.Row(row), Stamp(c, row), column.row_bytes());
      // The one column that View fills.
      if (&column == &columns.final_env_row) columns.final_steps.back() = 0x101 * Stamp(c, row);
    }
  };
  constexpr int64_t kRows = 300;
  for (int64_t r = 0; r < kRows; ++r) {
    stamp(sample::Extent::kRow, columns.AddRow());
    columns.Settle();
    columns.AddFinalRow(r, 0);
    stamp(sample::Extent::kFinalRow, r);
    columns.AddSegment(0, base::AgentSlot(0), 0);
    columns.segment_rows.back() = 2;  // none is empty, whatever the stamps say
    stamp(sample::Extent::kSegment, r);
    const float before[3] = {};
    columns.AddMemory(r, static_cast<int32_t>(2 * r), before);
    stamp(sample::Extent::kMemory, r);
  }
  constexpr int64_t kHole = 7;
  columns.holes.push_back(kHole);
  columns.Compact();
  sample::PolicyRows out;
  columns.View(0, out);
  EXPECT_EQ(out.rows, kRows - 1);
  for (size_t c = 0; c < sample::kNumPolicyColumns; ++c) {
    const auto& entry = sample::PolicyColumns()[c];
    SCOPED_TRACE(entry.name);
    const sample::ColumnView& view = out.*entry.member;
    EXPECT_EQ(view.dtype, forms[c].dtype);
    EXPECT_EQ(view.row_elements, forms[c].row_elements);
    ASSERT_EQ(view.rows, sample::NumRows(out, entry.extent));
    for (int64_t r = 0; r < view.rows; ++r) {
      const bool of_rows = entry.extent == sample::Extent::kRow || entry.extent == sample::Extent::kMemory;
      const bool moved = of_rows && r >= kHole;
      if (entry.member == &sample::PolicyRows::memory_at) {
        const int32_t* const at = view.As<int32_t>().data() + r * sample::kMemoryFields;
        EXPECT_EQ(at[sample::kMemoryRow], r);
        EXPECT_EQ(at[sample::kMemoryDecision], 2 * (moved ? r + 1 : r));
        continue;
      }
      ASSERT_TRUE(IsStamped(view, r, Stamp(c, moved ? r + 1 : r)));
    }
  }
}

TEST(StepTableTest, EveryColumnOfTheTableKeepsItsRowsThroughGrowth) {
  const sample::StepForms forms = sample::FormsOf(sample::EnvSizes{5, 0, false});
  StepTable steps(forms);
  StepTable final_steps(forms);
  for (int64_t r = 0; r < 400; ++r) {
    StepTable& table = r < 250 ? steps : final_steps;
    const int32_t row = table.Add(0, 0);
    for (size_t c = 0; c < sample::kNumStepColumns; ++c) {
      Column& column = table.*sample::StepColumns<Column>()[c].member;
      std::memset(column.Row(row), Stamp(c, r), column.row_bytes());
    }
  }
  steps.Append(final_steps);
  sample::MultiAgentBatch out;
  steps.View(out);
  for (size_t c = 0; c < sample::kNumStepColumns; ++c) {
    SCOPED_TRACE(sample::StepColumns()[c].name);
    const sample::ColumnView& view = out.*sample::StepColumns()[c].member;
    EXPECT_EQ(view.dtype, forms[c].dtype);
    EXPECT_EQ(view.row_elements, forms[c].row_elements);
    ASSERT_EQ(view.rows, 400);
    for (int64_t r = 0; r < 400; ++r) ASSERT_TRUE(IsStamped(view, r, Stamp(c, r)));
  }
}

sample::StepForms SmallForms() { return sample::FormsOf(SmallSchema().sizes()); }

TEST(PolicyColumnsTest, FinalStepsComeBehindTheActingOnes) {
  const RolloutSchema schema = SmallSchema();
  PolicyColumns columns(sample::FormsOf(schema.sizes(), schema.policies[policy::PolicySlot(0)]));
  columns.AddRow();
  for (const int32_t step : {2, ~0, ~3}) columns.AddFinalRow(0, step);
  sample::PolicyRows out;
  columns.View(10, out);
  EXPECT_THAT(out.final_env_row.As<sample::Index>(), testing::ElementsAre(2, 10, 13));
}

TEST(PolicyColumnsTest, DiscreteActionsBecomeBytesWhenTheRoundIsClosed) {
  const RolloutSchema schema = SmallSchema();
  PolicyColumns columns(sample::FormsOf(schema.sizes(), schema.policies[policy::PolicySlot(0)]));
  ASSERT_TRUE(columns.has_byte_actions());
  for (const int32_t first : {0, 200}) {
    columns.first_open = columns.rows;
    for (int r = 0; r < 100; ++r) columns.AddRow();
    space::ActionWord* const actions = columns.OpenActions();
    for (int r = 0; r < 100; ++r) actions[r].i32 = (first + r) % 256;
    columns.CloseActions();
  }
  for (int r = 0; r < 100; ++r) {
    EXPECT_EQ(columns.actions.As<uint8_t>()[r], r);
    EXPECT_EQ(columns.actions.As<uint8_t>()[100 + r], (200 + r) % 256);
  }
}

TEST(FragmentPoolTest, MemoryOfOtherStepTablesIsNotTakenAgain) {
  FragmentPool pool;
  pool.Return(pool.TakeBatch(), pool.TakeStorage(SmallForms()));
  const sample::StepForms with_state = sample::FormsOf(sample::EnvSizes{5, 0, false});
  ASSERT_NE(with_state, SmallForms());
  const std::unique_ptr<FragmentStorage> storage = pool.TakeStorage(with_state);
  EXPECT_EQ(storage->steps.forms(), with_state);
  EXPECT_TRUE(storage->final_steps.state.present());
}

TEST(FragmentPoolTest, MemoryComesBackWhenTheLastOwnerLetsGo) {
  FragmentPool pool;
  std::unique_ptr<FragmentStorage> storage = pool.TakeStorage(SmallForms());
  const FragmentStorage* const first = storage.get();
  sample::MultiAgentBatchPtr shared = pool.Share(pool.TakeBatch(), std::move(storage));
  const sample::MultiAgentBatchPtr second_owner = shared;
  shared.reset();
  storage = pool.TakeStorage(SmallForms());
  EXPECT_NE(storage.get(), first) << "still owned";
  const_cast<sample::MultiAgentBatchPtr&>(second_owner).reset();
  EXPECT_EQ(pool.TakeStorage(SmallForms()).get(), first);
}

TEST(FragmentPoolTest, ABatchMayOutliveThePool) {
  auto pool = std::make_unique<FragmentPool>();
  sample::MultiAgentBatchPtr shared = pool->Share(pool->TakeBatch(), pool->TakeStorage(SmallForms()));
  pool.reset();
  EXPECT_EQ(shared->num_env_steps, 0);
  shared.reset();
}

TEST(FragmentPoolTest, KeepsOnlySoManyIdle) {
  FragmentPool pool;
  std::vector<sample::MultiAgentBatchPtr> flight;
  for (size_t i = 0; i < FragmentPool::kMaxIdle + 3; ++i)
    flight.push_back(pool.Share(pool.TakeBatch(), pool.TakeStorage(SmallForms())));
  flight.clear();
  std::vector<std::unique_ptr<FragmentStorage>> taken;
  for (size_t i = 0; i < FragmentPool::kMaxIdle + 3; ++i) taken.push_back(pool.TakeStorage(SmallForms()));
  EXPECT_EQ(taken.size(), FragmentPool::kMaxIdle + 3);
}

}  // namespace
}  // namespace troupe::rollout
