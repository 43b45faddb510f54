// Keys of how algorithms train: schedules, optimizers, what follows the KL divergence, frozen parameters.

#include <string>
#include <string_view>
#include <vector>

#include "lib/config/run_config.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/policy_spec.h"
#include "proto/troupe/v1/config.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::HasSubstr;

RunConfig ReadKeys(std::string_view yaml) {
  absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : RunConfig();
}

std::string KeyErrorOf(std::string_view yaml) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml");
  return config.ok() ? "OK" : std::string(config.status().message());
}

TEST(ScheduleKeysTest, NeedItsThreeParts) {
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {initial: 1, final: 0}}"),
            "run.yaml:1:17: algorithm.lr.env_steps is missing; expected {initial, final, env_steps}");
  EXPECT_EQ(
      KeyErrorOf("algorithm: {lr: {initial: -1, final: 0, env_steps: 3}}"),
      "run.yaml:1:27: algorithm.lr.initial: got -1, expected a number in [0, 1000] or a schedule ({initial, final, "
      "env_steps}); the default is 3.0e-4");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {initial: 1, final: 0, env_steps: 0}}"),
            "run.yaml:1:51: algorithm.lr.env_steps: got 0, expected an integer >= 1");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {start: 1}}"),
            "run.yaml:1:18: unknown key \"algorithm.lr.start\"; expected one of initial, final, env_steps; or points "
            "and by");
}

TEST(ScheduleKeysTest, OfPoints) {
  const RunConfig config = ReadKeys(
      "algorithm: {lr: {points: [[0, 1.0e-3], [1e6, 1.0e-4]], by: updates}, critic_lr: [[5, 2.0e-3]], clip_param: "
      "{points: [[0, 0.2], [10, 0.1], [20, 0.3]]}}");
  const v1::PpoConfig& ppo = config.proto().algorithm().ppo();
  ASSERT_EQ(ppo.lr().points_size(), 2);
  EXPECT_EQ(ppo.lr().points(1).at(), 1000000);
  EXPECT_EQ(ppo.lr().points(1).value(), 1e-4);
  EXPECT_EQ(ppo.lr().by(), v1::SCHEDULE_BY_UPDATES);
  EXPECT_EQ(ppo.critic_lr().by(), v1::SCHEDULE_BY_ENV_STEPS) << "RLlib's list";
  EXPECT_EQ(ppo.critic_lr().initial(), 2e-3);
  EXPECT_EQ(ppo.clip_param().final(), 0.3);
  EXPECT_NE(config.ToYaml().find("  lr: {points: [[0, 0.001], [1000000, 0.0001]], by: updates}\n"), std::string::npos);
  EXPECT_NE(config.ToYaml().find("  critic_lr: {points: [[5, 0.002]], by: env_steps}\n"), std::string::npos);
  EXPECT_EQ(ReadKeys(config.ToYaml()), config);
  EXPECT_EQ(ReadKeys(config.ToYaml()).proto().SerializeAsString(), config.proto().SerializeAsString());
}

TEST(ScheduleKeysTest, BadPoints) {
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: []}"), "run.yaml:1:17: algorithm.lr: got 0 points, expected 1 to 64");
  std::string many;
  for (int i = 0; i < 64; ++i) many += "[" + std::to_string(i) + ", 1], ";
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: [" + many + "]}"), "OK");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: [" + many + "[64, 1]]}"),
            "run.yaml:1:17: algorithm.lr: got 65 points, expected 1 to 64");
  EXPECT_EQ(
      KeyErrorOf("algorithm: {lr: [0, 1]}"),
      "run.yaml:1:18: algorithm.lr: got 0 as a point, expected [AT, VALUE]; write [[0, 1.0e-3], [1000000, 1.0e-4]] "
      "for a list of them");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {points: 3}}"),
            "run.yaml:1:26: algorithm.lr.points: got 3, expected a list of [AT, VALUE]");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {points: [[-1, 1]]}}"),
            "run.yaml:1:28: algorithm.lr.points: got -1 as the time of a point, expected an integer >= 0");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {points: [[3, 1], [3, 2]]}}"),
            "run.yaml:1:36: algorithm.lr.points: got 3 as the time of a point, expected an integer above that of the "
            "point before, 3");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: [[3, .nan]]}").substr(0, 46),
            "run.yaml:1:22: algorithm.lr: got \".nan\", expec");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: [[3, -1]]}"),
            "run.yaml:1:22: algorithm.lr: got -1, expected a number in [0, 1000] or a schedule ({initial, "
            "final, env_steps}); the "
            "default is 3.0e-4");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {points: [[3, 1]], by: seconds}}"),
            "run.yaml:1:40: algorithm.lr.by: got \"seconds\", expected one of env_steps, updates");
  EXPECT_EQ(KeyErrorOf("algorithm: {lr: {points: [[3, 1]], env_steps: 2}}"),
            "run.yaml:1:36: unknown key \"algorithm.lr.env_steps\"; expected one of points, by");
}

class TrainingKeysTest : public ResolveFixture {};

TEST_F(TrainingKeysTest, ReachTheirOptions) {
  const ResolvedRun run = Resolve(R"(
env: {name: team}
algorithm:
  optimizer: rmsprop
  momentum: 0.5
  weight_decay: 0.01
  clip_grad_norm_by: policy
  time_limit_bootstrap: false
  lr_kl_target: 0.01
  use_kl_loss: true
  frozen_parameters: ["actor.0.*"]
  critic_lr: {points: [[0, 1.0e-3], [10, 1.0e-4]], by: updates}
  minibatch_by: env_steps
)");
  EXPECT_EQ(Option<std::string>(run, 0, "optimizer"), "rmsprop");
  EXPECT_EQ(Option<double>(run, 0, "momentum"), 0.5);
  EXPECT_EQ(Option<std::string>(run, 0, "minibatch_by"), "env_steps");
  EXPECT_EQ(Option<double>(run, 0, "weight_decay"), 0.01);
  EXPECT_EQ(Option<std::string>(run, 0, "clip_grad_norm_by"), "policy");
  EXPECT_EQ(Option<bool>(run, 0, "time_limit_bootstrap"), false);
  EXPECT_EQ(Option<double>(run, 0, "lr_kl_target"), 0.01);
  EXPECT_EQ(Option<bool>(run, 0, "use_kl_loss"), true);
  EXPECT_EQ(Option<std::vector<std::string>>(run, 0, "frozen_parameters"), std::vector<std::string>{"actor.0.*"});
  const auto rate = Option<policy::ScheduleValue>(run, 0, "critic_lr");
  EXPECT_EQ(rate.points, (std::vector<policy::SchedulePoint>{{0, 1e-3}, {10, 1e-4}}));
  EXPECT_EQ(rate.by, policy::ScheduleUnit::kUpdates);
  EXPECT_EQ(rate.initial, 1e-3);
  EXPECT_EQ(RunConfig::FromYaml(run.config.ToYaml(), "again.yaml")->ToYaml(), run.config.ToYaml());
}

// Workers discount rewards within waits, so that they get it with the policy.
TEST_F(TrainingKeysTest, DiscountBy) {
  const auto discount = [this](const std::string& algorithm) {
    return Resolve("env: {name: team}\nalgorithm: {" + algorithm + "}").policies[0].reward_discount;
  };
  EXPECT_EQ(discount("gamma: 0.9"), 1);
  EXPECT_EQ(discount("gamma: 0.9, discount_by: decision"), 1);
  EXPECT_EQ(discount("gamma: 0.9, discount_by: env_step"), 0.9);
  EXPECT_EQ(discount("name: ia2c, discount_by: env_step"), 0.99);
  const ResolvedRun run = Resolve(
      "env: {name: team}\nalgorithm: {name: ippo, gamma: 0.8}\nmulti_agent: {policies: {a: {algorithm: {discount_by: "
      "env_step}}, b: {}}, policy_mapping: {agent_0: a, \"*\": b}}");
  EXPECT_EQ(run.policies[0].reward_discount, 0.8);
  EXPECT_EQ(Option<std::string>(run, 0, "discount_by"), "env_step");
  EXPECT_EQ(run.policies[1].reward_discount, 1);
  EXPECT_EQ(Option<std::string>(run, 1, "discount_by"), "decision");
  EXPECT_THAT(ErrorOf("env: {name: team}\nalgorithm: {discount_by: env_steps}"),
              HasSubstr("got \"env_steps\", expected one of decision, env_step"));
}

TEST_F(TrainingKeysTest, WhatDoesNotFitIsSaidAtItsKey) {
  const auto error = [this](const std::string& algorithm) {
    return ErrorOf("env: {name: team}\nalgorithm: {" + algorithm + "}");
  };
  EXPECT_EQ(error("momentum: 0.5"),
            "run.yaml:2:23: algorithm.momentum: got 0.5; expected 0 with optimizer adam or adamw, whose moments are "
            "adam_beta1 and adam_beta2");
  EXPECT_EQ(error("lr_kl_target: 0.1, lr: 0.5"),
            "run.yaml:2:36: algorithm.lr: got 0.5; expected min_lr to max_lr, 1e-06 to 0.01, with lr_kl_target");
  EXPECT_EQ(error("lr_kl_target: 0.1, lr: {initial: 1, final: 0, env_steps: 3}"),
            "run.yaml:2:27: algorithm.lr_kl_target: got 0.1; expected 0 where lr is a schedule: it sets the rate");
  EXPECT_THAT(error("frozen_parameters: [\"actr.0.*\"]"),
              HasSubstr("run.yaml:2:32: algorithm.frozen_parameters: \"actr.0.*\" matches no parameter of policy "
                        "\"default_policy\"; the nearest is \"actor.0.*\""));
  EXPECT_THAT(error("frozen_parameters: [\"*\"]"), HasSubstr("is left to train, expected some"));
  EXPECT_THAT(error("optimizer: lion"), HasSubstr("got \"lion\", expected one of adam, adamw, rmsprop, sgd"));
  EXPECT_THAT(error("minibatch_by: episodes"), HasSubstr("got \"episodes\", expected one of rows, env_steps"));
  EXPECT_EQ(ErrorOf("env: {name: team}\nmodel: {actor_core: gru}\nalgorithm: {minibatch_by: env_steps}"),
            "run.yaml:3:27: algorithm.minibatch_by: got env_steps; expected rows: policy \"default_policy\" remembers "
            "(model.actor_core, critic_core, a TorchScript module's state_size), and its minibatches are made of whole "
            "sequences");
  EXPECT_THAT(error("critic_lr: [[0, 0], [5, 1]]"),
              HasSubstr("algorithm.critic_lr: got 0 to begin with, expected a number > 0 or auto"));
}

TEST_F(TrainingKeysTest, AListOfStringsHasALimit) {
  std::string many;
  for (int i = 0; i < 64; ++i) many += "\"actor.0.*\", ";
  EXPECT_EQ(KeyErrorOf("algorithm: {frozen_parameters: [" + many + "]}"), "OK");
  EXPECT_EQ(
      KeyErrorOf("algorithm: {frozen_parameters: [" + many + "x]}"),
      "run.yaml:1:32: algorithm.frozen_parameters: got a list, expected a list of 0 to 64 strings; the default is []");
  EXPECT_EQ(KeyErrorOf("algorithm: {frozen_parameters: [a, \"\"]}"),
            "run.yaml:1:36: algorithm.frozen_parameters: got \"\", expected a string of 1 to 256 bytes");
  EXPECT_EQ(KeyErrorOf("algorithm: {frozen_parameters: [" + std::string(257, 'a') + "]}").substr(0, 40),
            "run.yaml:1:33: algorithm.frozen_paramete");
}

}  // namespace
}  // namespace troupe::config
