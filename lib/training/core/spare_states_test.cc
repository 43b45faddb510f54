#include "lib/training/core/spare_states.h"

#include <variant>

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

policy::PolicyState State(size_t values) {
  policy::PolicyState state;
  state.Set("x", std::vector<float>(values));
  return state;
}

TEST(SpareStatesTest, GivesBackTheMemoryThatItGot) {
  SpareStates spares(1 << 20);
  EXPECT_TRUE(spares.Take().blocks.empty());
  policy::PolicyState state = State(100);
  const float* const memory = state.Floats("x").data();
  spares.Give(std::move(state));
  EXPECT_EQ(spares.size(), 1u);
  EXPECT_EQ(spares.Take().Floats("x").data(), memory);
  EXPECT_EQ(spares.size(), 0u);
  EXPECT_EQ(spares.bytes(), 0);
}

TEST(SpareStatesTest, KeepsNoMoreThanItsBytes) {
  const int64_t bytes = 100 * sizeof(float);
  SpareStates spares(2 * bytes);
  for (int i = 0; i < 3; ++i) spares.Give(State(100));
  EXPECT_EQ(spares.size(), 2u);
  EXPECT_EQ(spares.bytes(), 2 * bytes);
  spares.Take();
  spares.Give(State(101));
  EXPECT_EQ(spares.size(), 1u) << "a value too large";
  policy::PolicyState shrunk = State(101);
  std::get<std::vector<float>>(shrunk.blocks[0].values).resize(1);
  spares.Give(std::move(shrunk));
  EXPECT_EQ(spares.size(), 1u) << "its memory is of 101";
  spares.Give(State(100));
  EXPECT_EQ(spares.size(), 2u);
}

}  // namespace
}  // namespace troupe::training
