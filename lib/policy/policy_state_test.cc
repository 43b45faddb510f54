#include "lib/policy/policy_state.h"

#include <cmath>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/random_state.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using testing::HasSubstr;

std::string Problem(const PolicyState& state, const PolicySpec& spec) {
  return std::string(state.Validate(spec).message());
}

TEST(PolicyStateTest, ChecksParametersAndObservationMoments) {
  PolicySpec spec = SmallSpecForTesting();
  const std::vector<float> parameters(static_cast<size_t>(ParameterLayout::For(spec).size()), 0.f);
  PolicyState state;
  state.id = spec.id;
  EXPECT_THAT(Problem(state, spec), HasSubstr("policy \"p\" has no block \"parameters\"; expected f32 ["));
  state.Set(kParameters, std::vector<float>(3));
  EXPECT_THAT(Problem(state, spec), HasSubstr("block \"parameters\" is f32 [3], expected f32 ["));
  state.Set(kParameters, parameters);
  EXPECT_EQ(Problem(state, spec), "");
  state.MutableFloats(kParameters)[2] = NAN;
  EXPECT_THAT(Problem(state, spec), HasSubstr("\"parameters\" is not finite at [2]"));
  state.MutableFloats(kParameters)[2] = 0;

  state.SetMoments(kObservationMoments, {1, {0, 0, 0}, {1, 1, 1}});
  EXPECT_THAT(Problem(state, spec), HasSubstr("observation_moments.mean\" is f64 [3], expected f64 [0]"));
  spec.normalize_observations = true;
  EXPECT_EQ(Problem(state, spec), "");
  state.SetMoments(kObservationMoments, {1, {0, 0}, {1, 1}});
  EXPECT_THAT(Problem(state, spec), HasSubstr("is f64 [2], expected f64 [3]"));
  state.SetMoments(kObservationMoments, {});
  EXPECT_THAT(Problem(state, spec), HasSubstr("has no block \"observation_moments.mean\""));

  state.id = PolicyId("q");
  EXPECT_THAT(Problem(state, spec), HasSubstr("state is of policy \"q\"; expected \"p\""));
}

TEST(PolicyStateTest, WhatAnotherAlgorithmKeepsIsItsOwnBusiness) {
  const PolicySpec spec = SmallSpecForTesting();
  PolicyState state = RandomState(spec, 1);
  state.Set("target.parameters", std::vector<float>(7, 1.0f));
  state.Set("temperature", std::vector<double>{0.2});
  EXPECT_EQ(Problem(state, spec), "");
  state.Set("temperature", std::vector<double>{NAN});
  EXPECT_THAT(Problem(state, spec), HasSubstr("\"temperature\" is not finite"));
}

TEST(PolicyStateTest, ReadsBackWhatWasSet) {
  PolicyState state;
  state.SetInteger("steps", 12);
  state.SetMoments("m", {2.5, {1, 2}, {3, 4}});
  EXPECT_EQ(state.Integer("steps"), 12);
  EXPECT_EQ(state.Integer("m.mean"), 0) << "of another type";
  EXPECT_EQ(state.Moments("m").count, 2.5);
  EXPECT_EQ(state.Moments("m").mean, (std::vector<double>{1, 2}));
  EXPECT_EQ(state.Moments("m").variance, (std::vector<double>{3, 4}));
  EXPECT_TRUE(state.Moments("n").mean.empty());
  EXPECT_TRUE(state.MutableFloats("steps").empty());
  const int64_t bytes = BytesOf(state);
  state.Set("floats", std::vector<float>(1000));
  EXPECT_NEAR(static_cast<double>(BytesOf(state) - bytes), 4000, 200);
  state.Remove("floats");
  EXPECT_EQ(BytesOf(state), bytes);
}

}  // namespace
}  // namespace troupe::policy
