// What holds for every column of the table. A new one is tested by being there.

#include "lib/sample/columns.h"

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::sample {
namespace {

using tensor::DType;
using testing::AllOf;
using testing::HasSubstr;

/// One column of one batch.
struct PlacedColumn {
  std::string where;  ///< as messages have it
  const char* name;
  Contents contents;
  ColumnView* view;
};

/// Every column of the table, in the batch's env-step tables and in the rows of its first policy.
std::vector<PlacedColumn> ColumnsOf(MultiAgentBatch& batch, const BatchSchema& schema) {
  std::vector<PlacedColumn> placed;
  for (const auto& column : StepColumns()) {
    placed.push_back({"env-step table", column.name, column.contents, &(batch.*column.member)});
  }
  PolicyRows& rows = batch.policies.at(0);
  const std::string where = absl::StrCat("policy '", schema.policies[rows.policy].id.value(), "'");
  for (const auto& column : PolicyColumns()) {
    placed.push_back({where, column.name, column.contents, &(rows.*column.member)});
  }
  return placed;
}

/// A valid fragment in which no column is empty.
std::shared_ptr<MultiAgentBatch> ValidBatch(const BatchSchema& schema) {
  FakeRolloutOptions options;
  options.min_episode_steps = options.max_episode_steps = 4;
  options.terminated_probability = 0;  // every segment has a final row
  return MakeBatch(schema, options, 2, 6);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ColumnsTest, ARunCanHaveThemAllAndTheirNamesDiffer) {
  const BatchSchema schema = FullSchema();
  for (const ColumnForm& form : FormsOf(schema.MaxSizes())) EXPECT_GT(form.row_bytes(), 0);
  for (const ColumnForm& form : FormsOf(schema.MaxSizes(), schema.policies[policy::PolicySlot(0)]))
    EXPECT_GT(form.row_bytes(), 0);
  std::set<std::string_view> names;
  for (const auto& column : PolicyColumns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
    EXPECT_NE(column.extent, Extent::kEnvStep) << column.name;
  }
  names.clear();
  for (const auto& column : StepColumns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
    EXPECT_EQ(column.extent, Extent::kEnvStep) << column.name;
  }
}

TEST(ColumnsTest, FakesHaveThemAll) {
  const BatchSchema schema = FullSchema();
  const auto valid = ValidBatch(schema);
  EXPECT_TRUE(ValidateBatch(*valid, schema, {}).ok()) << ValidateBatch(*valid, schema, {});
  for (const PlacedColumn& column : ColumnsOf(*valid, schema)) EXPECT_GT(column.view->bytes(), 0u) << column.name;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto random = RandomColumns(schema, seed);
    EXPECT_TRUE(ValidateShapes(*random, schema, {}).ok()) << ValidateShapes(*random, schema, {});
    for (const PlacedColumn& column : ColumnsOf(*random, schema)) EXPECT_GT(column.view->bytes(), 0u) << column.name;
  }
}

TEST(ColumnsTest, AnotherFormIsRefusedByName) {
  struct Corruption {
    void (*corrupt)(ColumnView& view);
    const char* words;
    bool in_shapes = true;  ///< ValidateShapes finds it already
  };
  const Corruption corruptions[] = {
      {[](ColumnView& view) { view = ColumnView{}; }, "is absent, expected "},
      {[](ColumnView& view) { view.dtype = DType::kFloat64; }, "is float64["},
      {[](ColumnView& view) { view.rows += 1; }, ", expected "},
      {[](ColumnView& view) { view.rows -= 1; }, ", expected "},
      {[](ColumnView& view) { view.rows = -1; }, "[-1, "},
      {[](ColumnView& view) { view.row_elements += 1; }, ", expected "},
      {[](ColumnView& view) { view.row_elements = std::numeric_limits<int64_t>::max(); }, ", 9223372036854775807]"},
      {[](ColumnView& view) { view.data = nullptr; }, "has no data", false},
  };
  const BatchSchema schema = FullSchema();
  for (size_t c = 0; c < kNumStepColumns + kNumPolicyColumns; ++c) {
    for (const Corruption& corruption : corruptions) {
      const auto batch = ValidBatch(schema);
      const PlacedColumn column = ColumnsOf(*batch, schema)[c];
      SCOPED_TRACE(absl::StrCat(column.where, " ", column.name, " ", corruption.words));
      corruption.corrupt(*column.view);
      const absl::Status status = ValidateBatch(*batch, schema, {});
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(Message(status), AllOf(HasSubstr(absl::StrCat(column.where, ": column '", column.name, "' ")),
                                         HasSubstr(corruption.words)));
      EXPECT_EQ(ValidateShapes(*batch, schema, {}).ok(), !corruption.in_shapes);
    }
  }
}

TEST(ColumnsTest, MemoryThatIsNotAlignedIsRefusedByName) {
  const BatchSchema schema = FullSchema();
  for (size_t c = 0; c < kNumStepColumns + kNumPolicyColumns; ++c) {
    const auto batch = ValidBatch(schema);
    const PlacedColumn column = ColumnsOf(*batch, schema)[c];
    const size_t width = tensor::ElementBytes(column.view->dtype);
    if (width == 1) continue;
    column.view->data += 1;
    EXPECT_THAT(
        Message(ValidateBatch(*batch, schema, {})),
        HasSubstr(absl::StrCat(column.where, ": column '", column.name, "' is not aligned to ", width, " bytes")));
  }
}

TEST(ColumnsTest, WhatTheRunDoesNotHaveIsRefusedByName) {
  const BatchSchema schema = SimpleSchema();
  std::vector<std::string> optional;
  for (size_t c = 0; c < kNumStepColumns + kNumPolicyColumns; ++c) {
    const auto batch = ValidBatch(schema);
    const PlacedColumn column = ColumnsOf(*batch, schema)[c];
    if (column.view->present()) continue;
    optional.push_back(absl::StrCat(column.where, " ", column.name));
    *column.view = ColumnView{batch->policies[0].rewards.data, DType::kFloat32, 1, 1};
    const absl::Status status = ValidateShapes(*batch, schema, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status),
                HasSubstr(absl::StrCat(column.where, ": column '", column.name, "' is float32[1, 1], expected none")));
  }
  EXPECT_THAT(optional, testing::ElementsAre("env-step table state", "policy 'shared' action_mask",
                                             "policy 'shared' agent_mask", "policy 'shared' state",
                                             "policy 'shared' final_action_mask", "policy 'shared' final_state",
                                             "policy 'shared' memory", "policy 'shared' memory_at"));
}

TEST(ColumnsTest, AValueBeyondReasonIsRefusedInEach) {
  const BatchSchema schema = FullSchema();
  for (size_t c = 0; c < kNumStepColumns + kNumPolicyColumns; ++c) {
    const auto batch = ValidBatch(schema);
    const PlacedColumn column = ColumnsOf(*batch, schema)[c];
    SCOPED_TRACE(absl::StrCat(column.where, " ", column.name));
    switch (column.view->dtype) {
      case DType::kFloat32:
        MutableColumn<float>(*column.view)[0] = std::numeric_limits<float>::quiet_NaN();
        break;
      case DType::kInt32:
        MutableColumn<int32_t>(*column.view)[0] = std::numeric_limits<int32_t>::min();
        break;
      case DType::kUint8:
        MutableColumn<uint8_t>(*column.view)[0] = column.contents == Contents::kActions ? 255 : 2;
        break;
      case DType::kUint16:
        MutableColumn<uint16_t>(*column.view)[0] = std::numeric_limits<uint16_t>::max();
        break;
      default:
        ADD_FAILURE() << "say here what is beyond reason in " << tensor::DTypeName(column.view->dtype);
    }
    const absl::Status status = ValidateBatch(*batch, schema, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    if (column.contents == Contents::kIndices) continue;  // the message says which index
    EXPECT_THAT(Message(status), HasSubstr(absl::StrCat(column.where, ": column '", column.name, "' has ")));
  }
}

TEST(ColumnsTest, ActionsAreBytesWhereEachLeafIsDiscreteWithValuesThatFit) {
  const struct {
    const char* space;
    bool bytes;
  } cases[] = {
      {"Discrete(2)", true},
      {"Discrete(256)", true},
      {"Discrete(257)", false},
      {"Discrete(4, start=252)", true},
      {"Discrete(4, start=253)", false},
      {"Discrete(3, start=-1)", false},
      {"MultiDiscrete([256, 2])", true},
      {"MultiDiscrete([2, 300])", false},
      {"MultiBinary(5)", true},
      {"Box(-1.0, 1.0, (2,), float32)", false},
      {"Tuple(Discrete(3), Box(-1.0, 1.0, (2,), float32))", false},
  };
  for (const auto& [text, bytes] : cases) {
    SCOPED_TRACE(text);
    const absl::StatusOr<space::Space> space = space::ParseSpace(text);
    ASSERT_TRUE(space.ok()) << space.status();
    policy::PolicySpec spec = FullSchema().policies[policy::PolicySlot(0)];
    spec.action_space = *space;
    EXPECT_EQ(HasByteActions(spec), bytes);
    EXPECT_EQ(column_form::Actions({}, spec).dtype, bytes ? DType::kUint8 : DType::kInt32);
    EXPECT_EQ(column_form::Actions({}, spec).row_elements, spec.action_words());
  }
}

TEST(ColumnsTest, AWordOfAnActionIsReadWhateverItsWidth) {
  const uint8_t bytes[] = {0, 1, 200, 255};
  const space::ActionWord words[] = {{.i32 = -7}, {.i32 = 70000}, {.f32 = 0.5f}, {.f32 = -2.0f}};
  const ColumnView narrow{reinterpret_cast<const std::byte*>(bytes), DType::kUint8, 2, 2};
  const ColumnView wide{reinterpret_cast<const std::byte*>(words), DType::kInt32, 2, 2};
  EXPECT_EQ(ActionAt(narrow, 0, 1).i32, 1);
  EXPECT_EQ(ActionAt(narrow, 1, 0).i32, 200);
  EXPECT_EQ(ActionAt(narrow, 1, 1).i32, 255);
  EXPECT_EQ(ActionAt(wide, 0, 0).i32, -7);
  EXPECT_EQ(ActionAt(wide, 0, 1).i32, 70000);
  EXPECT_EQ(ActionAt(wide, 1, 1).f32, -2.0f);
}

TEST(ColumnsTest, WhatIsRememberedIsSentWhereTheActorHasACoreAndWhenWhereAnyNetworkHas) {
  const policy::CoreSpec gru = {policy::CoreKind::kGru, 3, 2};
  const policy::CoreSpec lstm = {policy::CoreKind::kLstm, 3, 2};
  for (const policy::CoreSpec& actor : {policy::CoreSpec(), gru, lstm}) {
    for (const policy::CoreSpec& critic : {policy::CoreSpec(), gru, lstm}) {
      policy::PolicySpec spec = SimpleSchema().policies[policy::PolicySlot(0)];
      spec.actor.core = actor;
      spec.mutable_critic()->core = critic;
      const ColumnForm memory = column_form::Memory({}, spec);
      const ColumnForm at = column_form::MemoryAt({}, spec);
      EXPECT_EQ(memory, actor.remembers() ? (ColumnForm{DType::kFloat32, actor == gru ? 6 : 12}) : ColumnForm{});
      EXPECT_EQ(at, actor.remembers() || critic.remembers() ? (ColumnForm{DType::kInt32, 2}) : ColumnForm{});
    }
  }
}

TEST(ColumnsTest, BytesAreTheRowsTimesTheirForms) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const BatchSchema schema = seed % 2 == 0 ? RandomSchema(seed) : WithCores(RandomSchema(seed), seed);
    const auto batch = RandomBatch(schema, seed);
    const EnvSizes sizes = schema.sizes(batch->policies_revision);
    int64_t bytes = NumRows(*batch) * RowBytes(FormsOf(sizes));
    for (const PolicyRows& rows : batch->policies) {
      const PolicyForms forms = FormsOf(sizes, schema.policies[rows.policy]);
      for (const Extent extent : {Extent::kRow, Extent::kSegment, Extent::kFinalRow, Extent::kMemory}) {
        bytes += NumRows(rows, extent) * RowBytes(forms, extent);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(ColumnBytes(*batch)), bytes);
  }
}

}  // namespace
}  // namespace troupe::sample
