// model.scaling: how observations and actions are scaled, and that runs of before there was the key go on as they
// began.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/config/resolved_run.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::HasSubstr;

class ScalingTest : public ResolveFixture {
 protected:
  ScalingTest() {
    const space::Space flags = *space::Space::Box(0, 1, {8}, tensor::DType::kUint8);
    Add(Spec("flags", {Agent("a", flags, *space::Space::Box(0, 1000, {1}))}));
    Add(Spec("picture",
             {Agent("a", *space::Space::Box(0, 255, {16, 16, 1}, tensor::DType::kUint8), *space::Space::Discrete(2))}));
    const space::Space map = *space::Space::Box(0, 1, {12, 12, 2}, tensor::DType::kUint8);
    Add(Spec("map", {Agent("a", map, *space::Space::Discrete(2))}));
    Add(Spec("maps", {Agent("a", *space::Space::Dict({{"map", map}}), *space::Space::Discrete(2))}));
  }

  policy::PolicySpec SpecOf(const std::string& yaml) { return Resolve(yaml).policies.at(0); }
  /// A run's config.yaml.
  std::string Write(const std::string& text) {
    const std::string path = absl::StrCat(testing::TempDir(), "/scaling_test_config_", getpid(), ".yaml");
    std::ofstream(path) << text;
    return path;
  }
  /// The same as the versions before wrote it.
  static std::string OfBefore(const RunConfig& config) {
    const std::string text = config.ToYaml();
    const std::string before = absl::StrReplaceAll(
        text, {{"  scaling: by_space\n", ""}, {"  scaling: by_255\n", ""}, {"  discount_by: decision\n", ""}});
    EXPECT_LT(before.size(), text.size());
    return before;
  }
};

TEST_F(ScalingTest, BySpaceIsTheDefault) {
  const policy::PolicySpec spec = SpecOf("env: {name: flags}");
  EXPECT_FALSE(spec.bytes_by_255);
  EXPECT_TRUE(spec.action_scaling);
  EXPECT_THAT(spec.ToString(), HasSubstr(" bytes=bounds"));
  const policy::PolicySpec before = SpecOf("env: {name: flags}\nmodel: {scaling: by_255}");
  EXPECT_TRUE(before.bytes_by_255);
  EXPECT_FALSE(before.action_scaling);
  EXPECT_THAT(before.ToString(), testing::Not(HasSubstr("bytes=")));
  // Images do not change.
  EXPECT_EQ(SpecOf("env: {name: picture}").ToString(),
            SpecOf("env: {name: picture}\nmodel: {scaling: by_255}").ToString());
}

TEST_F(ScalingTest, OnlyBytesOf0To255AreConvolvedUnasked) {
  EXPECT_EQ(SpecOf("env: {name: picture}").actor.encoder, policy::EncoderKind::kCnn);
  for (const std::string env : {"map", "maps"}) {
    const std::string yaml = absl::StrCat("env: {name: ", env, "}\n");
    EXPECT_EQ(SpecOf(yaml).actor.encoder, policy::EncoderKind::kMlp) << env;
    EXPECT_NE(SpecOf(yaml + "model: {encoder: cnn}").actor.encoder, policy::EncoderKind::kMlp) << env;
    EXPECT_NE(SpecOf(yaml + "model: {scaling: by_255}").actor.encoder, policy::EncoderKind::kMlp) << "as it was";
  }
}

TEST_F(ScalingTest, ARunOfBeforeIsReadAsItBegan) {
  const RunConfig now = *RunConfig::FromYaml("env: {name: flags}", "run.yaml");
  const std::string path = Write(OfBefore(now));
  const auto run = RunConfig::FromRun(path);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto resolved = ResolveRun(*run, registry_);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_TRUE(resolved->policies[0].bytes_by_255);
  EXPECT_FALSE(resolved->policies[0].action_scaling);
  // Written again it says so, and what says so is not touched.
  EXPECT_THAT(run->ToYaml(), HasSubstr("  scaling: by_255\n"));
  EXPECT_EQ(RunConfig::FromRun(Write(run->ToYaml()))->ToYaml(), run->ToYaml());
  EXPECT_EQ(RunConfig::FromRun(Write(now.ToYaml()))->ToYaml(), now.ToYaml());
  EXPECT_THAT(RunConfig::FromRun(path, {"model.scaling=by_space"})->ToYaml(), HasSubstr("  scaling: by_space\n"));
  std::filesystem::remove(path);
}

TEST_F(ScalingTest, ALearnerOfBeforeMeansBy255) {
  const RunConfig by_255 = *RunConfig::FromYaml("env: {name: flags}\nmodel: {scaling: by_255}", "run.yaml");
  const std::string told = absl::StrReplaceAll(WelcomeYaml(by_255), {{"  scaling: by_255\n", ""}});
  const auto welcome = FromWelcome(told);
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(ResolveRun(*welcome, registry_)->schema.WorkerHash(), ResolveRun(by_255, registry_)->schema.WorkerHash());
  const RunConfig by_space = *RunConfig::FromYaml("env: {name: flags}", "run.yaml");
  EXPECT_EQ(ResolveRun(*FromWelcome(WelcomeYaml(by_space)), registry_)->schema.WorkerHash(),
            ResolveRun(by_space, registry_)->schema.WorkerHash());
}

// The file that a run was started with says nothing of keys that came later, or whose defaults changed.
TEST_F(ScalingTest, ARunOfBeforeGoesOnByTheFileItBeganWith) {
  for (const std::string algorithm : {"ippo", "ia2c"}) {
    const std::string yaml = absl::StrCat("env: {name: flags}\nalgorithm: {name: ", algorithm, "}\n");
    std::vector<std::string> before = {"model.scaling=by_255", "algorithm.use_value_active_masks=true",
                                       "algorithm.entropy_coeff=0.01", "algorithm.minibatch_by=rows",
                                       "algorithm.normalize_observations=false"};
    if (algorithm == "ippo") before.push_back("algorithm.use_value_clip=true");
    const RunConfig old_config = *RunConfig::FromYaml(yaml, "old.yaml", before);
    const auto resumed = ResumeConfig(old_config, *RunConfig::FromYaml(yaml, "run.yaml"));
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(resumed->ToYaml(), old_config.ToYaml());
    const auto other =
        ResumeConfig(old_config, *RunConfig::FromYaml(yaml, "run.yaml", {"algorithm.use_value_active_masks=false"}));
    EXPECT_THAT(std::string(other.status().message()), HasSubstr("got false, but the run was started with true"));
  }
}

TEST_F(ScalingTest, APolicyMayBeOfBefore) {
  const ResolvedRun run = Resolve(
      "env: {name: flags}\nmulti_agent: {policies: {now: {}, before: {model: {scaling: by_255}}}, policy_mapping: {a: "
      "{now: 1, before: 1}}}");
  EXPECT_FALSE(run.policies[0].bytes_by_255);
  EXPECT_TRUE(run.policies[0].action_scaling);
  EXPECT_TRUE(run.policies[1].bytes_by_255);
  EXPECT_FALSE(run.policies[1].action_scaling);
}

}  // namespace
}  // namespace troupe::config
