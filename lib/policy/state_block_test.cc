#include "lib/policy/state_block.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using testing::HasSubstr;

StateBlock Floats(const char* name, std::vector<int64_t> shape, std::vector<float> values) {
  return {name, std::move(shape), std::move(values)};
}
std::string Problem(const std::vector<StateBlock>& blocks) {
  return std::string(CheckBlocks("policy \"p\"", blocks).message());
}

TEST(StateBlockTest, IsFoundSetAndRemovedByName) {
  std::vector<StateBlock> blocks;
  SetBlock(&blocks, Floats("a", {2}, {1, 2}));
  SetBlock(&blocks, {"b", {}, std::vector<int64_t>{7}});
  SetBlock(&blocks, Floats("a", {1}, {3}));
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(BlockValues<float>(blocks, "a"), std::vector<float>{3});
  EXPECT_EQ(BlockValues<int64_t>(blocks, "b"), std::vector<int64_t>{7});
  EXPECT_TRUE(BlockValues<double>(blocks, "b").empty()) << "of another type";
  EXPECT_TRUE(BlockValues<float>(blocks, "c").empty());
  EXPECT_EQ(FindBlock(blocks, "b")->Form(), "i64 []");
  RemoveBlock(&blocks, "a");
  RemoveBlock(&blocks, "c");
  EXPECT_EQ(FindBlock(blocks, "a"), nullptr);
  EXPECT_EQ(blocks.size(), 1u);
}

TEST(StateBlockTest, WhatNoBlockCanBeIsSaidWithOwnerAndName) {
  EXPECT_EQ(Problem({Floats("a.b_2", {2, 1}, {1, 2}), Floats("none", {0, 3}, {})}), "");
  EXPECT_EQ(Problem({Floats("a", {2}, {1})}), "policy \"p\": block \"a\" has 1 values; expected those of f32 [2]");
  EXPECT_THAT(Problem({Floats("a", {-1}, {})}), HasSubstr("expected those of f32 [-1]"));
  const int64_t half = int64_t{1} << 32;
  EXPECT_THAT(Problem({Floats("a", {half, half}, {})}), HasSubstr("has 0 values")) << "an overflow";
  EXPECT_THAT(Problem({Floats("a", {}, {1}), Floats("a", {}, {1})}), HasSubstr("\"a\" is there twice"));
  for (const char* name : {"", "A", "a/b", "a b"}) EXPECT_THAT(Problem({Floats(name, {}, {1})}), HasSubstr("bad name"));
  EXPECT_THAT(Problem({Floats(std::string(129, 'a').c_str(), {}, {1})}), HasSubstr("bad name"));
  EXPECT_THAT(Problem({Floats("a", {2}, {1, NAN})}), HasSubstr("\"a\" is not finite at [1]"));
  EXPECT_THAT(Problem({{"a", {1}, std::vector<double>{std::numeric_limits<double>::infinity()}}}), HasSubstr("finite"));
  EXPECT_THAT(Problem({{"m.variance", {1}, std::vector<double>{-1}}}), HasSubstr("has a variance of -1"));
  EXPECT_THAT(Problem({{"m.count", {1}, std::vector<double>{-1}}}), HasSubstr("has a count of -1"));
}

TEST(StateBlockTest, AnImporterKnowsItsBlocks) {
  const std::vector<BlockSpec> known = {{"weights", BlockType::kF32, {2}, true}, {"steps", BlockType::kI64, {}, false}};
  const auto problem = [&known](const std::vector<StateBlock>& blocks) {
    return std::string(CheckKnownBlocks("policy \"p\"", blocks, known).message());
  };
  const StateBlock weights = Floats("weights", {2}, {1, 2});
  EXPECT_EQ(problem({weights}), "");
  EXPECT_EQ(problem({{"steps", {}, std::vector<int64_t>{1}}, weights}), "");
  EXPECT_EQ(problem({}), "policy \"p\" has no block \"weights\"; expected f32 [2]");
  EXPECT_EQ(problem({weights, Floats("mixer", {1}, {1})}),
            "policy \"p\": block \"mixer\" is unknown; expected one of weights, steps");
  EXPECT_EQ(problem({Floats("weights", {1, 2}, {1, 2})}),
            "policy \"p\": block \"weights\" is f32 [1, 2], expected f32 [2]");
  EXPECT_EQ(problem({weights, Floats("steps", {}, {1})}), "policy \"p\": block \"steps\" is f32 [], expected i64 []");
}

}  // namespace
}  // namespace troupe::policy
