#include "lib/policy/policy_class.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/testing.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::policy {
namespace {

using Kind = PolicyClass::Kind;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<PolicyClass> parsed = ParsePolicyClass(text);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(parsed.status().message());
}

TEST(PolicyClassTest, ReadsWhatItWrites) {
  for (const std::string text : {"trained", "random", "scripted:beat_last", "checkpoint:runs/a",
                                 "checkpoint:/x/runs/a#b/checkpoints/100#main"}) {
    const absl::StatusOr<PolicyClass> parsed = ParsePolicyClass(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), text);
  }
  const PolicyClass checkpoint = *ParsePolicyClass("checkpoint:runs/a#main");
  EXPECT_EQ(checkpoint.path, "runs/a");
  EXPECT_EQ(checkpoint.source, PolicyId("main"));
  EXPECT_EQ(ParsePolicyClass("scripted:beat_last")->name, "beat_last");
}

TEST(PolicyClassTest, AWorkerIsNotToldWhereTheLearnerHasACheckpoint) {
  const PolicyClass told = ParsePolicyClass("checkpoint:/home/mara/runs/a#main")->ForWorkers();
  EXPECT_EQ(told.ToString(), "checkpoint:the-learner-has-it");
  EXPECT_EQ(ParsePolicyClass(told.ToString())->kind, PolicyClass::Kind::kCheckpoint);
  for (const char* text : {"trained", "random", "scripted:x", "python:mine:act"}) {
    EXPECT_EQ(ParsePolicyClass(text)->ForWorkers().ToString(), text);
  }
}

TEST(PolicyClassTest, PpoIsTrainedByItsOldName) {
  const absl::StatusOr<PolicyClass> parsed = ParsePolicyClass("ppo");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->ToString(), "trained");
  EXPECT_TRUE(parsed->trainable());
  EXPECT_FALSE(ParsePolicyClass("ppo:x").ok());
}

TEST(PolicyClassTest, OnlyTrainedTrainsAndNetworksHaveWeights) {
  EXPECT_TRUE(PolicyClass{}.trainable());
  EXPECT_TRUE(PolicyClass{}.has_weights());
  EXPECT_TRUE(ParsePolicyClass("checkpoint:runs/a")->has_weights());
  EXPECT_FALSE(ParsePolicyClass("checkpoint:runs/a")->trainable());
  for (const char* text : {"random", "scripted:x", "python:mine:act"}) {
    EXPECT_FALSE(ParsePolicyClass(text)->has_weights()) << text;
    EXPECT_FALSE(ParsePolicyClass(text)->trainable()) << text;
  }
}

TEST(PolicyClassTest, RefusesInWords) {
  EXPECT_EQ(ErrorOf("radnom"),
            "got \"radnom\", the nearest is \"random\"; expected trained, random, scripted:NAME, "
            "python:MODULE:NAME, or checkpoint:PATH (checkpoint:PATH#ID for a policy of another id)");
  EXPECT_THAT(ErrorOf(""), HasSubstr("got \"\", expected trained"));
  EXPECT_THAT(ErrorOf("random:x"), HasSubstr("which takes no argument"));
  EXPECT_THAT(ErrorOf("scripted"), HasSubstr("without its NAME"));
  EXPECT_THAT(ErrorOf("python"), HasSubstr("without its MODULE:NAME"));
  EXPECT_THAT(ErrorOf("python:mine"), HasSubstr("got \"python:mine\", expected python:MODULE:NAME"));
  EXPECT_EQ(ParsePolicyClass("python:mine:act")->ToString(), "python:mine:act");
  EXPECT_THAT(ErrorOf("checkpoint:"), HasSubstr("without its PATH"));
  EXPECT_THAT(ErrorOf("checkpoint:#main"), HasSubstr("without its PATH"));
  EXPECT_THAT(ErrorOf("checkpoint:runs/a#../b"), HasSubstr("policy id"));
  EXPECT_TRUE(ParsePolicyClass("checkpoint:" + std::string(4096, 'x')).ok());
  EXPECT_THAT(ErrorOf("checkpoint:" + std::string(4097, 'x')), HasSubstr("4097 characters"));
}

TEST(PolicyClassTest, IsPartOfTheSpecAndDecidesWhetherThereAreParameters) {
  const PolicySpec trained = SmallSpecForTesting();
  PolicySpec random = trained;
  random.policy_class = *ParsePolicyClass("random");
  EXPECT_NE(random.ToString(), trained.ToString());
  EXPECT_EQ(random.ToString(), trained.ToString() + " class=random");
  EXPECT_GT(ParameterLayout::For(trained).size(), 0);
  EXPECT_EQ(ParameterLayout::For(random).size(), 0);
  EXPECT_EQ(ParameterLayout::For(random).acting_size(), 0);
  random.normalize_observations = true;
  EXPECT_THAT(std::string(random.Validate().message()), HasSubstr("class random has no observation normalizer"));
}

TEST(PolicyClassTest, AStateWithoutWeightsIsValidAndGivesAnEmptySnapshot) {
  PolicySpec random = SmallSpecForTesting();
  random.policy_class = *ParsePolicyClass("random");
  PolicyState state;
  state.id = random.id;
  EXPECT_TRUE(state.Validate(random).ok()) << state.Validate(random);
  const absl::StatusOr<WeightSnapshotPtr> snapshot = SnapshotOf(state, random);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_TRUE((*snapshot)->actor.empty());
  state.Set(kParameters, std::vector<float>{1.0f});
  EXPECT_FALSE(state.Validate(random).ok());
}

}  // namespace
}  // namespace troupe::policy
