// What the configuration says of the distribution of continuous actions and of their bounding.

#include <cmath>
#include <string>

#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_spec.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::ActionBoundMethod;
using policy::ContinuousDistribution;
using policy::PolicySpec;

class DistributionKeysTest : public ResolveFixture {
 protected:
  DistributionKeysTest() {
    const space::Space obs = *space::Space::Box(-1, 1, {3});
    const space::Space hybrid = *space::Space::Tuple({*space::Space::Discrete(3), *space::Space::Box(-1, 1, {2})});
    Add(Spec("hybrid", {Agent("a", obs, hybrid, true), Agent("b", obs, *space::Space::Discrete(4), true)}));
    Add(Spec("pair",
             {Agent("a", obs, *space::Space::Box(-2, 2, {2})), Agent("b", obs, *space::Space::Box(-2, 2, {2}))}));
  }

  PolicySpec SpecOf(const std::string& yaml) { return Resolve("env: {name: continuous}\n" + yaml).policies.at(0); }
};

// RLlib's normalize_actions.
TEST_F(DistributionKeysTest, AGaussianIsScaledToABoundedBox) {
  EXPECT_EQ(SpecOf("seed: 1").ToString(), SpecOf("action_bound_method: clip\naction_scaling: true").ToString());
  EXPECT_TRUE(SpecOf("seed: 1").action_scaling);
  EXPECT_FALSE(SpecOf("action_scaling: false").action_scaling);
  EXPECT_FALSE(SpecOf("action_bound_method: none").action_scaling) << "as sampled";
  EXPECT_FALSE(Resolve("env: {name: unbounded}").policies[0].action_scaling);
  EXPECT_FALSE(Resolve("env: {name: team}").policies[0].action_scaling) << "nothing to scale";
  const ResolvedRun hybrid = Resolve("env: {name: hybrid}\nalgorithm: {use_parameter_sharing: false}");
  EXPECT_TRUE(hybrid.policies[0].action_scaling);
  EXPECT_FALSE(hybrid.policies[1].action_scaling);
  EXPECT_FALSE(Resolve("preset: sb3_ppo\nenv: {name: continuous}").policies[0].action_scaling);
  EXPECT_FALSE(Resolve("preset: sb3_a2c\nenv: {name: continuous}").policies[0].action_scaling);
  EXPECT_TRUE(Resolve("preset: rllib_ppo\nenv: {name: continuous}").policies[0].action_scaling);
}

TEST_F(DistributionKeysTest, AGaussianBy255IsAsItWas) {
  const PolicySpec spec = SpecOf("model: {scaling: by_255}");
  EXPECT_EQ(spec.continuous, ContinuousDistribution::kGaussian);
  EXPECT_TRUE(spec.free_log_std);
  EXPECT_EQ(spec.min_log_std, policy::kMinLogStd);
  EXPECT_EQ(spec.max_log_std, policy::kMaxLogStd);
  EXPECT_EQ(spec.action_bound_method, ActionBoundMethod::kClip);
  EXPECT_FALSE(spec.action_scaling);
  EXPECT_EQ(spec.ToString(), SpecOf("action_bound_method: clip\naction_scaling: false").ToString());
}

TEST_F(DistributionKeysTest, TheOthersBringTheirBounding) {
  PolicySpec spec = SpecOf("model: {action_distribution: squashed_gaussian, free_log_std: false, max_log_std: 2}");
  EXPECT_EQ(spec.continuous, ContinuousDistribution::kSquashedGaussian);
  EXPECT_EQ(spec.action_bound_method, ActionBoundMethod::kTanh);
  EXPECT_TRUE(spec.action_scaling);
  EXPECT_FALSE(spec.free_log_std);
  EXPECT_EQ(spec.max_log_std, 2);
  EXPECT_EQ(spec.actor_output_size(), 4);
  spec = SpecOf("model: {action_distribution: beta, free_log_std: false, min_log_std: -3}");
  EXPECT_EQ(spec.continuous, ContinuousDistribution::kBeta);
  EXPECT_EQ(spec.action_bound_method, ActionBoundMethod::kClip);
  EXPECT_TRUE(spec.action_scaling);
  EXPECT_EQ(spec.ToString(), SpecOf("model: {action_distribution: beta}").ToString()) << "a Beta has no deviation";
  // What they bring may be said.
  EXPECT_EQ(SpecOf("model: {action_distribution: squashed_gaussian}\naction_bound_method: tanh\naction_scaling: true")
                .ToString(),
            SpecOf("model: {action_distribution: squashed_gaussian}").ToString());
  EXPECT_EQ(SpecOf("model: {action_distribution: beta}\naction_bound_method: none").action_bound_method,
            ActionBoundMethod::kNone);
}

TEST_F(DistributionKeysTest, WhatContradictsThemIsOneErrorWithBothKeys) {
  const auto error = [this](const std::string& yaml) { return ErrorOf("env: {name: continuous}\n" + yaml); };
  EXPECT_EQ(error("action_bound_method: clip\nmodel: {action_distribution: squashed_gaussian}"),
            "run.yaml:2:22: action_bound_method: got clip, but model.action_distribution: squashed_gaussian of policy "
            "\"default_policy\" is bounded by tanh; expected tanh or auto");
  EXPECT_EQ(error("action_bound_method: tanh\nmodel: {action_distribution: beta}"),
            "run.yaml:2:22: action_bound_method: got tanh, but model.action_distribution: beta of policy "
            "\"default_policy\" is bounded as it is; expected none, clip or auto");
  EXPECT_EQ(error("action_scaling: false\nmodel: {action_distribution: beta}"),
            "run.yaml:2:17: action_scaling: got false, but model.action_distribution: beta of policy "
            "\"default_policy\" gives actions in [-1, 1]; expected true or auto");
  EXPECT_EQ(
      ErrorOf("env: {name: unbounded}\nmodel: {action_distribution: squashed_gaussian}"),
      "run.yaml:2:30: model.action_distribution: got squashed_gaussian, but policy \"default_policy\" has actions "
      "without bounds, Box(-inf, inf, [2]), expected gaussian");
  EXPECT_EQ(error("model: {action_distribution: cauchy}"),
            "run.yaml:2:30: model.action_distribution: got \"cauchy\", expected one of gaussian, squashed_gaussian, "
            "beta; the default is gaussian");
  EXPECT_EQ(error("model: {min_log_std: 1, max_log_std: 0.5}"),
            "run.yaml:2:22: model.min_log_std: got 1, expected at most model.max_log_std: 0.5");
  EXPECT_EQ(error("model: {max_log_std: -1}"),
            "run.yaml:2:8: model.initial_log_std: got 0, expected a number in [-20, -1], from model.min_log_std to "
            "model.max_log_std");
  EXPECT_EQ(error("model: {max_log_std: 21}"),
            "run.yaml:2:22: model.max_log_std: got 21, expected a number in [-20, 20]; the default is 5.0");
}

TEST_F(DistributionKeysTest, PoliciesMayDifferAndWorkersHearOfIt) {
  const ResolvedRun run = Resolve(R"(
env: {name: pair}
model: {action_distribution: beta}
multi_agent:
  policies: {left: {model: {action_distribution: gaussian, free_log_std: false, min_log_std: -4}}, right: {}}
  policy_mapping: {a: left, b: right}
)");
  EXPECT_EQ(run.policies[0].continuous, ContinuousDistribution::kGaussian);
  EXPECT_TRUE(run.policies[0].action_scaling);
  EXPECT_FALSE(run.policies[0].free_log_std);
  EXPECT_EQ(run.policies[1].continuous, ContinuousDistribution::kBeta);
  EXPECT_TRUE(run.policies[1].action_scaling);
  const auto told = RunConfig::FromYaml(WelcomeYaml(run.config), "welcome");
  ASSERT_TRUE(told.ok()) << told.status();
  const auto worker = ResolveRun(*told, registry_);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->schema.WorkerHash(), run.schema.WorkerHash());
  for (const size_t slot : {0, 1}) EXPECT_EQ(worker->policies[slot].ToString(), run.policies[slot].ToString());
  // At the key of the policy that contradicts.
  EXPECT_EQ(ErrorOf(R"(
env: {name: pair}
action_bound_method: clip
multi_agent:
  policies: {left: {model: {action_distribution: squashed_gaussian}}, right: {}}
  policy_mapping: {a: left, b: right}
)"),
            "run.yaml:3:22: action_bound_method: got clip, but "
            "multi_agent.policies.left.model.action_distribution: squashed_gaussian of policy \"left\" is bounded by "
            "tanh; expected tanh or auto");
}

TEST_F(DistributionKeysTest, MasksAreOfTheDiscretePartsOfAHybridAction) {
  const ResolvedRun run = Resolve(R"(
env: {name: hybrid}
algorithm: {use_actions_mask: true, use_parameter_sharing: false}
model: {action_distribution: squashed_gaussian}
)");
  EXPECT_TRUE(run.policies[0].has_action_mask);
  EXPECT_EQ(run.policies[0].mask_size(), 3);
  EXPECT_EQ(run.policies[0].continuous, ContinuousDistribution::kSquashedGaussian);
  EXPECT_EQ(run.policies[0].actor_output_size(), 3 + 2);
  // Who has no continuous action takes none of it.
  EXPECT_EQ(run.policies[1].mask_size(), 4);
  EXPECT_EQ(run.policies[1].continuous, ContinuousDistribution::kGaussian);
  EXPECT_EQ(run.policies[1].ToString(),
            Resolve("env: {name: hybrid}\nalgorithm: {use_parameter_sharing: false}").policies[1].ToString());
  // What the squashed one beside it brings may be said, and is then the run's.
  const std::string squashed =
      "env: {name: hybrid}\nalgorithm: {use_parameter_sharing: false}\n"
      "model: {action_distribution: squashed_gaussian}\naction_bound_method: tanh";
  const ResolvedRun said = Resolve(squashed);
  EXPECT_EQ(said.policies[0].ToString(), Resolve(squashed + "\naction_scaling: true").policies[0].ToString());
  EXPECT_EQ(said.policies[1].ToString(), Resolve(squashed + "\naction_scaling: true").policies[1].ToString());
}

TEST_F(DistributionKeysTest, ARunOfBeforeGoesOn) {
  const auto resume = [](const std::string& before, const std::string& now) {
    const auto resumed = ResumeConfig(*RunConfig::FromYaml("env: {name: continuous}\n" + before, "old.yaml"),
                                      *RunConfig::FromYaml("env: {name: continuous}\n" + now, "new.yaml"));
    return resumed.ok() ? "OK" : std::string(resumed.status().message());
  };
  // Its file has what was auto then, and may have it for auto.
  const std::string by_255 = "model: {scaling: by_255}\n";
  EXPECT_EQ(resume(by_255 + "action_bound_method: clip\naction_scaling: false", "seed: 1"), "OK");
  EXPECT_EQ(resume(by_255 + "seed: 1", "action_bound_method: clip\naction_scaling: false"), "OK");
  EXPECT_EQ(resume("seed: 1", "action_bound_method: clip"), "OK");
  EXPECT_NE(resume("seed: 1", "action_scaling: false"), "OK");
  EXPECT_NE(resume("action_scaling: false", "seed: 1"), "OK");
  EXPECT_EQ(resume(by_255, "model: {scaling: by_space}")
                .find("new.yaml:2:18: model.scaling: got by_space, but the run was started with by_255"),
            0u);
  EXPECT_NE(resume("action_bound_method: none", "seed: 1"), "OK");
  EXPECT_NE(resume("seed: 1", "action_scaling: true"), "OK");
  EXPECT_EQ(resume("seed: 1", "model: {action_distribution: beta}")
                .find("new.yaml:2:30: model.action_distribution: got beta, but the run was started with gaussian"),
            0u);
}

}  // namespace
}  // namespace troupe::config
