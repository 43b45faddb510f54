#include "lib/policy/weight_snapshot.h"

#include <limits>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

WeightSnapshot MakeSnapshot(const PolicySpec& spec) {
  WeightSnapshot snapshot;
  snapshot.id = spec.id;
  snapshot.actor.assign(static_cast<size_t>(ParameterLayout::For(spec).actor_size()), 0.5f);
  return snapshot;
}

TEST(WeightSnapshotTest, FitsItsSpecOrSaysWhatDoesNot) {
  const PolicySpec spec = SmallSpecForTesting();
  EXPECT_TRUE(MakeSnapshot(spec).Validate(spec).ok());

  WeightSnapshot other = MakeSnapshot(spec);
  other.id = PolicyId("q");
  EXPECT_FALSE(other.Validate(spec).ok());

  WeightSnapshot shorter = MakeSnapshot(spec);
  shorter.actor.pop_back();
  EXPECT_NE(shorter.Validate(spec).message().find("expected"), absl::string_view::npos);

  WeightSnapshot not_finite = MakeSnapshot(spec);
  not_finite.actor[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(not_finite.Validate(spec).message().find("actor[3] is not finite"), absl::string_view::npos);
}

TEST(WeightSnapshotTest, NormalizerIsThereExactlyWhenAskedFor) {
  PolicySpec spec = SmallSpecForTesting();
  WeightSnapshot snapshot = MakeSnapshot(spec);
  snapshot.observation_mean.assign(3, 0);
  snapshot.observation_inverse_std.assign(3, 1);
  EXPECT_FALSE(snapshot.Validate(spec).ok());
  spec.normalize_observations = true;
  EXPECT_TRUE(snapshot.Validate(spec).ok());
}

TEST(PolicyStateTest, ChecksSizesAndMoments) {
  const PolicySpec spec = SmallSpecForTesting();
  PolicyState state;
  state.id = spec.id;
  state.parameters.assign(static_cast<size_t>(ParameterLayout::For(spec).size()), 0.f);
  EXPECT_TRUE(state.Validate(spec).ok());
  state.adam_exp_avg.assign(3, 0.f);
  EXPECT_FALSE(state.Validate(spec).ok());
  state.adam_exp_avg.clear();
  state.value_moments = RunningMoments{1, {0}, {-1}};
  EXPECT_NE(state.Validate(spec).message().find("variance"), absl::string_view::npos);
}

TEST(WeightSnapshotTest, OfAStateIsItsActorAndNormalizer) {
  PolicySpec spec = SmallSpecForTesting();
  spec.normalize_observations = true;
  PolicyState state;
  state.id = spec.id;
  state.version = {3, 7};
  for (int64_t i = 0; i < ParameterLayout::For(spec).size(); ++i) state.parameters.push_back(static_cast<float>(i));
  const size_t columns = static_cast<size_t>(spec.observation_size());
  state.observation_moments = {10, std::vector<double>(columns, 2.0), std::vector<double>(columns, 4.0)};
  state.observation_moments.variance[0] = 0;  // a column that never changed

  const absl::StatusOr<WeightSnapshotPtr> snapshot = SnapshotOf(state, spec);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ((*snapshot)->version, state.version);
  ASSERT_EQ(static_cast<int64_t>((*snapshot)->actor.size()), ParameterLayout::For(spec).actor_size());
  EXPECT_EQ((*snapshot)->actor.back(), static_cast<float>((*snapshot)->actor.size() - 1));
  EXPECT_EQ((*snapshot)->observation_mean[1], 2.0f);
  EXPECT_EQ((*snapshot)->observation_inverse_std[1], 0.5f);
  EXPECT_FLOAT_EQ((*snapshot)->observation_inverse_std[0], 1e4f);

  state.parameters.pop_back();
  EXPECT_EQ(SnapshotOf(state, spec).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::policy
