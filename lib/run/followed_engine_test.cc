#include "lib/run/followed_engine.h"

#include <string>

#include "lib/serving/testing/query_builder.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

policy::PolicySpec Spec(const std::string& id) {
  return serving::MakeSpec(id, *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(4));
}

policy::PolicyTablePtr TableOf(const std::vector<policy::PolicySpec>& specs) {
  return *policy::PolicyTable::Make(specs, std::vector<bool>(specs.size(), false), {{"*", {{specs[0].id, 1.0}}}},
                                    {"a"});
}

absl::StatusOr<serving::ActionAnswer> AskOf(FollowedEngine& followed, const policy::PolicySpec& spec) {
  const serving::OwnedRows rows = serving::MakeRows(spec, 1);
  return followed.engine()->Compute(serving::Ask({&rows}, true));
}

bool IsReady(FollowedEngine& followed) { return followed.AwaitReady(base::Deadline::After(absl::ZeroDuration())); }

TEST(FollowedEngineTest, IsReadyWhenEveryPolicyHasWeights) {
  FollowedEngine followed({}, 0, 1);
  EXPECT_EQ(followed.engine(), nullptr);
  EXPECT_EQ(followed.OnWeights(serving::MakeWeights(Spec("p"), 1)).code(), absl::StatusCode::kInvalidArgument);
  policy::PolicySpec random = Spec("random");
  random.policy_class = *policy::ParsePolicyClass("random");
  const policy::PolicyTablePtr table = TableOf({Spec("p"), Spec("q"), random});
  ASSERT_EQ(followed.OnPolicies(table), absl::OkStatus());
  EXPECT_FALSE(IsReady(followed));
  ASSERT_EQ(followed.OnWeights(serving::MakeWeights(Spec("p"), 1)), absl::OkStatus());
  EXPECT_FALSE(IsReady(followed)) << "q has none";
  ASSERT_EQ(followed.OnWeights(serving::MakeWeights(Spec("q"), 1)), absl::OkStatus());
  EXPECT_TRUE(IsReady(followed));
  EXPECT_EQ((*AskOf(followed, Spec("p")))[0].version.n, 1);
  ASSERT_EQ(followed.OnWeights(serving::MakeWeights(Spec("p"), 2)), absl::OkStatus());
  EXPECT_EQ((*AskOf(followed, Spec("p")))[0].version.n, 2);
  // A policy that comes, one that goes, and weights of what is gone.
  ASSERT_EQ(followed.OnPolicies(*(*table->Add(Spec("late"), false))->Remove(policy::PolicyId("q"))), absl::OkStatus());
  EXPECT_FALSE(IsReady(followed));
  EXPECT_EQ(followed.OnWeights(serving::MakeWeights(Spec("q"), 2)), absl::OkStatus());
  EXPECT_EQ(AskOf(followed, Spec("q")).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(followed.OnWeights(serving::MakeWeights(Spec("late"), 2)), absl::OkStatus());
  EXPECT_TRUE(AskOf(followed, Spec("late")).ok());
  auto wrong = serving::MakeWeights(Spec("p"), 3);
  wrong->actor.pop_back();
  EXPECT_EQ(followed.OnWeights(wrong).code(), absl::StatusCode::kInvalidArgument);
}

TEST(FollowedEngineTest, CodeThatNothingPermitsIsRefused) {
  policy::PolicySpec python = Spec("python");
  python.actor = policy::DefaultActor();
  python.learner_networks = {policy::DefaultCritic()};
  python.policy_class = *policy::ParsePolicyClass("python:os:system");
  FollowedEngine followed({}, 0, 1);
  const absl::Status refused = followed.OnPolicies(TableOf({Spec("p"), python}));
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_EQ(followed.engine(), nullptr) << "nothing was made of it";
}

}  // namespace
}  // namespace troupe::run
