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
  snapshot.actor.assign(static_cast<size_t>(ParameterLayout::For(spec).acting_size()), 0.5f);
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
  EXPECT_TRUE(shorter.Validate(spec, static_cast<int64_t>(shorter.actor.size())).ok()) << "by the size that is given";

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

TEST(WeightSnapshotTest, ExploresWithFewNumbersThatHaveNames) {
  const PolicySpec spec = SmallSpecForTesting();
  WeightSnapshot snapshot = MakeSnapshot(spec);
  EXPECT_TRUE(snapshot.exploration.empty());
  snapshot.exploration["epsilon"] = 0.05;
  EXPECT_TRUE(snapshot.Validate(spec).ok());
  snapshot.exploration["noise"] = std::numeric_limits<double>::infinity();
  EXPECT_NE(snapshot.Validate(spec).message().find("exploration \"noise\" is inf"), absl::string_view::npos);
  for (const std::string& name : {std::string(), std::string(65, 'a')}) {
    snapshot.exploration = {{name, 1.0}};
    EXPECT_FALSE(snapshot.Validate(spec).ok());
  }
  snapshot.exploration = {{WeightSnapshot::kEpsilon, 1.5}};
  EXPECT_NE(snapshot.Validate(spec).message().find("\"epsilon\" is 1.5; expected 0 to 1, of a policy with discrete"),
            absl::string_view::npos);
  snapshot.exploration = {{WeightSnapshot::kNoise, 0.1}};
  EXPECT_NE(snapshot.Validate(spec).message().find("of a policy with Gaussian actions"), absl::string_view::npos);
  snapshot.exploration.clear();
  for (int i = 0; i < 17; ++i) snapshot.exploration[std::to_string(i)] = i;
  EXPECT_NE(snapshot.Validate(spec).message().find("explores with 17 numbers"), absl::string_view::npos);
}

TEST(WeightSnapshotTest, OfAStateIsItsActorAndNormalizer) {
  PolicySpec spec = SmallSpecForTesting();
  spec.normalize_observations = true;
  PolicyState state;
  state.id = spec.id;
  state.version = {3, 7};
  std::vector<float> parameters;
  for (int64_t i = 0; i < ParameterLayout::For(spec).size(); ++i) parameters.push_back(static_cast<float>(i));
  state.Set(kParameters, parameters);
  const size_t columns = static_cast<size_t>(spec.observation_size());
  RunningMoments moments = {10, std::vector<double>(columns, 2.0), std::vector<double>(columns, 4.0)};
  moments.variance[0] = 0;  // a column that never changed
  state.SetMoments(kObservationMoments, moments);

  const absl::StatusOr<WeightSnapshotPtr> snapshot = SnapshotOf(state, spec);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ((*snapshot)->version, state.version);
  ASSERT_EQ(static_cast<int64_t>((*snapshot)->actor.size()), ParameterLayout::For(spec).acting_size());
  EXPECT_EQ((*snapshot)->actor.back(), static_cast<float>((*snapshot)->actor.size() - 1));
  EXPECT_EQ((*snapshot)->observation_mean[1], 2.0f);
  EXPECT_EQ((*snapshot)->observation_inverse_std[1], 0.5f);
  EXPECT_FLOAT_EQ((*snapshot)->observation_inverse_std[0], 1e4f);

  parameters.pop_back();
  state.Set(kParameters, parameters);
  EXPECT_EQ(SnapshotOf(state, spec).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::policy
