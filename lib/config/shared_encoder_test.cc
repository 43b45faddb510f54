// A critic that shares the actor's encoder: model.critic_encoder: shared.

#include "lib/config/shared_encoder.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/sha256.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::EncoderKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SharedEncoderTest : public ResolveFixture {
 protected:
  SharedEncoderTest() {
    Add(Spec("camera",
             {Agent("a", *space::Space::Box(0, 255, {12, 12, 3}, tensor::DType::kUint8), *space::Space::Discrete(5))}));
    Add(Spec("robot",
             {Agent("a", *space::ParseSpace("Dict{arm: Box(-1, 1, [4]), camera: Box(0, 255, [12, 12, 3], uint8)}"),
                    *space::Space::Discrete(5))}));
  }

  /// Lines 1 to 3.
  static std::string Yaml(const std::string& env, const std::string& model = "",
                          const std::string& algorithm = "name: ippo, use_agent_id: false") {
    return absl::StrCat("env: {name: ", env, "}\nalgorithm: {", algorithm, "}\nmodel: {critic_encoder: shared",
                        model.empty() ? "" : ", ", model, "}\n");
  }
  policy::PolicySpec First(const std::string& yaml) { return Resolve(yaml).policies.at(0); }
};

TEST_F(SharedEncoderTest, TheCriticHasAHeadAlone) {
  const policy::PolicySpec spec =
      First(Yaml("team",
                 "actor_hidden_sizes: [32, 16], critic_head_hidden_sizes: [8], critic_activation: relu, "
                 "critic_output_gain: 0.5, layer_norm: true"));
  EXPECT_TRUE(spec.shares_encoder());
  const policy::NetworkSpec& critic = spec.critic();
  EXPECT_THAT(spec.actor.hidden_sizes, ElementsAre(32, 16));
  EXPECT_THAT(critic.hidden_sizes, IsEmpty());
  EXPECT_THAT(critic.head_hidden_sizes, ElementsAre(8));
  EXPECT_EQ(critic.activation, policy::Activation::kRelu);
  EXPECT_EQ(critic.output_gain, 0.5);
  EXPECT_TRUE(critic.layer_norm);
  EXPECT_THAT(First(Yaml("team")).critic().head_hidden_sizes, IsEmpty());
}

TEST_F(SharedEncoderTest, WhateverTheEncoderIs) {
  EXPECT_EQ(First(Yaml("camera")).actor.encoder, EncoderKind::kCnn);
  EXPECT_EQ(First(Yaml("robot")).actor.encoder, EncoderKind::kLeaves);
  for (const char* const env : {"camera", "robot"}) {
    const policy::NetworkSpec critic = First(Yaml(env)).critic();
    EXPECT_EQ(critic.encoder, EncoderKind::kShared) << env;
    EXPECT_THAT(critic.conv_layers, IsEmpty());
    EXPECT_THAT(critic.leaf_encoders, IsEmpty());
  }
}

TEST_F(SharedEncoderTest, ACoreIsSharedWithIt) {
  for (const char* const core : {"actor_core: gru", "actor_core: gru, critic_core: gru"}) {
    const policy::PolicySpec spec = First(Yaml("team", absl::StrCat(core, ", core_size: 8, max_seq_len: 5")));
    EXPECT_EQ(spec.actor.core.size, 8) << core;
    EXPECT_FALSE(spec.critic().core.remembers()) << core;
    EXPECT_EQ(spec.sequence_length, 5) << core;
  }
}

TEST_F(SharedEncoderTest, EachPolicyMayHaveItOrNot) {
  const ResolvedRun run = Resolve(
      "env: {name: team}\nalgorithm: {name: ippo}\n"
      "multi_agent: {policies: {a: {model: {critic_encoder: shared}}, b: {}}, policy_mapping: {agent_0: a, '*': b}}\n");
  EXPECT_TRUE(run.policies[0].shares_encoder());
  EXPECT_EQ(run.policies[1].critic().encoder, EncoderKind::kMlp);
}

TEST_F(SharedEncoderTest, ACriticThatReadsSomethingElseIsRefused) {
  EXPECT_THAT(ErrorOf(Yaml("team", "", "name: mappo")),
              HasSubstr("run.yaml:3:25: model.critic_encoder: got shared, but the critic of mappo reads all "
                        "observations, the actor its agent's own observation; expected an algorithm whose critic reads "
                        "that, as algorithm.name: ippo, or model.critic_encoder: auto"));
  EXPECT_THAT(ErrorOf(Yaml("state", "", "name: mappo, use_global_state: true")),
              HasSubstr("but the critic of mappo reads the global state, the actor"));
  EXPECT_THAT(ErrorOf(Yaml("team", "", "name: ippo, critic_agent_id: false")),
              HasSubstr("run.yaml:2:42: algorithm.critic_agent_id: got false, but model.critic_encoder is shared, and "
                        "the actor of policy \"default_policy\" reads the one-hot of its agent; expected true, or "
                        "algorithm.use_agent_id: false"));
  EXPECT_TRUE(First(Yaml("team", "", "name: ippo, critic_agent_id: true")).critic_agent_id());
  // Who plays one agent sees no one-hot.
  EXPECT_TRUE(First(Yaml("camera", "", "name: ippo")).shares_encoder());
}

TEST_F(SharedEncoderTest, LayersThatContradictItAreRefused) {
  EXPECT_THAT(ErrorOf(Yaml("team", "actor_hidden_sizes: [32], critic_hidden_sizes: [16]")),
              HasSubstr("run.yaml:3:80: model.critic_hidden_sizes: got [16], but model.critic_encoder is shared: the "
                        "critic of policy \"default_policy\" has the actor's, [32]; expected them left out; layers of "
                        "its own are model.critic_head_hidden_sizes"));
  EXPECT_TRUE(First(Yaml("team", "actor_hidden_sizes: [32], critic_hidden_sizes: [32]")).shares_encoder());
  for (const char* const actor : {"", ", actor_core: lstm"}) {
    EXPECT_THAT(ErrorOf(Yaml("team", absl::StrCat("critic_core: gru", actor))),
                HasSubstr("run.yaml:3:46: model.critic_core: got a core, but model.critic_encoder is shared: the "
                          "critic of policy \"default_policy\" has the actor's, "));
  }
}

TEST_F(SharedEncoderTest, ModulesHaveNoEncoderToShare) {
  const std::string hash = absl::StrCat("'sha256:", base::Sha256("a module"), "'");
  EXPECT_THAT(ErrorOf(Yaml("team", absl::StrCat("torchscript: ", hash))),
              HasSubstr("run.yaml:3:25: model.critic_encoder: got shared, but the actor of policy \"default_policy\" "
                        "is a TorchScript module, of which no layer is known to be its encoder's; expected auto, or no "
                        "model.torchscript"));
  EXPECT_THAT(ErrorOf(Yaml("team", absl::StrCat("critic_torchscript: ", hash))),
              HasSubstr("run.yaml:3:53: model.critic_torchscript: got a TorchScript module, but model.critic_encoder "
                        "is shared; expected one of the two"));
}

TEST_F(SharedEncoderTest, ThereIsOneRate) {
  EXPECT_THAT(ErrorOf(Yaml("camera", "", "name: ippo, lr: 1e-3, critic_lr: 2e-3")),
              HasSubstr("run.yaml:2:46: algorithm.critic_lr: got another rate than lr, but the critic of policy "
                        "\"default_policy\" shares the actor's encoder (model.critic_encoder), which one rate trains; "
                        "expected auto"));
  EXPECT_TRUE(First(Yaml("camera", "", "name: ippo, lr: 1e-3, critic_lr: 1e-3")).shares_encoder());
  EXPECT_THAT(ErrorOf(Yaml("camera", "", "name: ippo, lr: {initial: 1e-3, final: 0, env_steps: 9}, critic_lr: 1e-3")),
              HasSubstr("algorithm.critic_lr: got another rate than lr"));
}

TEST_F(SharedEncoderTest, TheDeadAreSeenByBoth) {
  EXPECT_THAT(ErrorOf(Yaml("camera", "", "name: ippo, death_masking: true")),
              HasSubstr("run.yaml:2:40: algorithm.death_masking: got true; expected no death masking: the critic of "
                        "policy \"default_policy\" shares the actor's encoder (model.critic_encoder), which sees the "
                        "dead, too"));
}

}  // namespace
}  // namespace troupe::config
