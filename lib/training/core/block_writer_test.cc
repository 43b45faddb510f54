#include "lib/training/core/block_writer.h"

#include "lib/policy/policy_state.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::PolicyState;

void Write(float first, bool with_moments, PolicyState* state) {
  const std::vector<float> values = {first, 2, 3};
  const std::vector<double> mean = {4, 5}, variance = {6, 7}, count = {8};
  BlockWriter writer(&state->blocks);
  writer.Array(policy::kParameters, absl::MakeConstSpan(values));
  if (with_moments) writer.Moments("a_name_of_many_letters", mean, variance, count);
  writer.Moments("none", {}, {}, {});
  writer.Scalar("steps", int64_t{9});
  writer.Scalar("rate", 0.5);
}

TEST(BlockWriterTest, WritesTheBlocksOfSet) {
  PolicyState expected;
  expected.Set(policy::kParameters, std::vector<float>{1, 2, 3});
  expected.SetMoments("a_name_of_many_letters", {8, {4, 5}, {6, 7}});
  expected.SetInteger("steps", 9);
  expected.SetNumber("rate", 0.5);
  PolicyState state;
  Write(1, true, &state);
  EXPECT_EQ(state.blocks, expected.blocks);
}

TEST(BlockWriterTest, WritesOverWhatStoodThereWithoutNewMemory) {
  PolicyState state;
  Write(1, true, &state);
  const policy::StateBlock* const blocks = state.blocks.data();
  const float* const parameters = state.parameters().data();
  const double* const mean = state.Doubles("a_name_of_many_letters.mean").data();
  const char* const name = state.blocks[1].name.data();
  Write(10, true, &state);
  EXPECT_EQ(state.parameters(), (std::vector<float>{10, 2, 3}));
  EXPECT_EQ(state.blocks.data(), blocks);
  EXPECT_EQ(state.parameters().data(), parameters);
  EXPECT_EQ(state.Doubles("a_name_of_many_letters.mean").data(), mean);
  EXPECT_EQ(state.blocks[1].name.data(), name);
}

TEST(BlockWriterTest, NothingIsLeftOfAStateWithOtherBlocks) {
  PolicyState state, expected;
  Write(1, true, &state);
  Write(10, false, &state);
  Write(10, false, &expected);
  EXPECT_EQ(state.blocks, expected.blocks);
  EXPECT_EQ(state.blocks.size(), 3u);
}

}  // namespace
}  // namespace troupe::training
