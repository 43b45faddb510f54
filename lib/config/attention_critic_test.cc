// A critic that attends to agents: model.critic_encoder, attention_size and attention_heads.

#include "lib/config/attention_critic.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/attention.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::EncoderKind;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kAttention[] = "model: {critic_encoder: attention}";

class AttentionCriticTest : public ResolveFixture {
 protected:
  std::string Yaml(const std::string& env, const std::string& algorithm, const std::string& more = kAttention) {
    return absl::StrCat("env: {name: ", env, "}\nalgorithm: {", algorithm, "}\n", more, "\n");
  }
};

TEST_F(AttentionCriticTest, AnEmbeddingForEachObservationSpace) {
  const ResolvedRun team = Resolve(Yaml("team", "name: mappo"));
  EXPECT_EQ(team.policies[0].actor.encoder, EncoderKind::kMlp);
  const policy::NetworkSpec& critic = team.policies[0].critic();
  EXPECT_EQ(critic.encoder, EncoderKind::kAttention);
  EXPECT_EQ(critic.attention.size, 64);
  EXPECT_EQ(critic.attention.heads, 4);
  EXPECT_THAT(critic.attention.observation_sizes, ElementsAre(3));
  EXPECT_THAT(critic.attention.agents, ElementsAre(0, 0, 0));
  // Each of the policies attends to all agents, also to those that another one plays.
  const ResolvedRun mixed = Resolve(
      Yaml("mixed", "name: maa2c",
           "model: {critic_encoder: attention, attention_size: 6, attention_heads: 3, critic_hidden_sizes: []}\n"
           "multi_agent: {policies: {wolves: {}, sheep: {model: {critic_encoder: auto, critic_hidden_sizes: [8]}}},\n"
           "  policy_mapping: {'wolf*': wolves, '*': sheep}}"));
  ASSERT_EQ(mixed.policies.size(), 2u);
  EXPECT_EQ(mixed.policies[0].critic().attention,
            (policy::AttentionSpec{.size = 6, .heads = 3, .observation_sizes = {3, 2}, .agents = {0, 0, 1}}));
  EXPECT_EQ(mixed.policies[1].critic().encoder, EncoderKind::kMlp);
  EXPECT_EQ(mixed.policies[1].critic().attention, policy::AttentionSpec());
}

TEST_F(AttentionCriticTest, SpacesThatHaveTheSameSizeAreStillTwo) {
  Add(Spec("units", {Agent("near", *space::Space::Box(0, 1, {4}), *space::Space::Discrete(2)),
                     Agent("far", *space::Space::Box(0, 100, {4}), *space::Space::Discrete(2)),
                     Agent("close", *space::Space::Box(0, 1, {4}), *space::Space::Discrete(2))}));
  const policy::AttentionSpec attention =
      Resolve(Yaml("units", "name: mappo", absl::StrCat(kAttention, "\nmulti_agent: {policy_mapping: per_agent}")))
          .policies[0]
          .critic()
          .attention;
  EXPECT_THAT(attention.observation_sizes, ElementsAre(4, 4));
  EXPECT_THAT(attention.agents, ElementsAre(0, 1, 0));
}

TEST_F(AttentionCriticTest, OtherCriticsAreRefused) {
  EXPECT_THAT(
      ErrorOf(Yaml("team", "name: ippo")),
      HasSubstr("run.yaml:3:25: model.critic_encoder: got attention, but the critic of ippo sees its agent's own "
                "observation; expected algorithm.name: mappo, or model.critic_encoder: auto"));
  EXPECT_THAT(ErrorOf(Yaml("state", "name: mappo, use_global_state: true")),
              HasSubstr("model.critic_encoder: got attention, but the critic of policy \"default_policy\" reads the "
                        "global state, which does not say what is of which agent; expected "
                        "algorithm.use_global_state: false, or model.critic_encoder: auto"));
}

TEST_F(AttentionCriticTest, NumbersThatDoNotFitAreRefused) {
  EXPECT_THAT(ErrorOf(Yaml("team", "name: mappo", "model: {critic_encoder: attention, attention_heads: 3}")),
              HasSubstr("run.yaml:3:53: model.attention_heads: got 3, which does not divide attention_size, 64; "
                        "expected a divisor"));
  EXPECT_EQ(Resolve(Yaml("team", "name: mappo", "model: {attention_heads: 3}")).policies[0].critic().encoder,
            EncoderKind::kMlp)
      << "nobody asks";
  EXPECT_THAT(ErrorOf(Yaml("team", "name: mappo", "model: {attention_size: 1025}")),
              HasSubstr("model.attention_size: got 1025"));
  EXPECT_THAT(ErrorOf(Yaml("team", "name: mappo", "model: {attention_heads: 0}")),
              HasSubstr("model.attention_heads: got 0"));
  EXPECT_THAT(ErrorOf(Yaml("team", "name: mappo", "model: {critic_encoder: cnn}")),
              HasSubstr("model.critic_encoder: got \"cnn\", expected one of auto, attention, shared, mlp"));
  std::vector<env::AgentSpec> crowd;
  for (int i = 0; i <= policy::kMaxAttentionAgents; ++i) {
    crowd.push_back(Agent(absl::StrCat("a", i), *space::Space::Box(-1, 1, {2}), *space::Space::Discrete(2)));
  }
  Add(Spec("crowd", crowd));
  EXPECT_THAT(
      ErrorOf(Yaml("crowd", "name: mappo")),
      HasSubstr("got attention, but crowd has 257 agents; expected at most 256, or model.critic_encoder: auto"));
  crowd.pop_back();
  Add(Spec("fewer", crowd));
  EXPECT_EQ(Resolve(Yaml("fewer", "name: mappo")).policies[0].critic().attention.agents.size(), 256u);
}

TEST_F(AttentionCriticTest, ImagesAreRefused) {
  const space::Space image = *space::Space::Box(0, 255, {12, 12, 3}, tensor::DType::kUint8);
  Add(Spec("eyes", {Agent("a", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2)),
                    Agent("b", image, *space::Space::Discrete(2))}));
  EXPECT_THAT(
      ErrorOf(Yaml("eyes", "name: mappo", absl::StrCat(kAttention, "\nmulti_agent: {policy_mapping: per_agent}"))),
      HasSubstr("got attention, but agent \"b\" observes an image, Box(0, 255, [12, 12, 3], uint8), which it does not "
                "convolve; expected model.critic_encoder: auto"));
  const space::Space dict = *space::ParseSpace("Dict{arm: Box(-1, 1, [2]), camera: Box(0, 255, [12, 12, 3], uint8)}");
  Add(Spec("robots", {Agent("a", dict, *space::Space::Discrete(2)), Agent("b", dict, *space::Space::Discrete(2))}));
  EXPECT_THAT(ErrorOf(Yaml("robots", "name: mappo")),
              HasSubstr("got attention, but agent \"a\" observes an image, Box(0, 255, [12, 12, 3], uint8), which"));
}

}  // namespace
}  // namespace troupe::config
