// What a spec says of layers beside their sizes: normalization, activations by network, what first weights are of.

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

TEST(LayerOptionsTest, WithoutThemTheTextIsAsItWas) {
  EXPECT_EQ(SmallSpecForTesting().ToString(),
            "policy p obs=Box(-1, 1, [3]) act=Discrete(2) actor=[4,4] critic=[4] activation=tanh "
            "gain=0.01 log_std=0 critic_input=1 critic_state=0 agent_id=0 critic_agent_id=0 "
            "normalize=0 mask=0 bound=2 scaling=0");
}

TEST(LayerOptionsTest, TheTextSaysEachOfANetwork) {
  const std::string plain = SmallSpecForTesting().ToString();
  PolicySpec spec = SmallSpecForTesting();
  spec.actor.layer_norm = true;
  EXPECT_EQ(spec.ToString(), plain + " layer_norm=actor");
  spec.mutable_critic()->layer_norm = true;
  spec.mutable_critic()->initializer = Initializer::kTorch;
  spec.actor.initializer = Initializer::kXavier;
  spec.actor.hidden_gain = 0.5;
  EXPECT_EQ(spec.ToString(), plain +
                                 " layer_norm=actor initializer=actor:xavier hidden_gain=actor:0.5 "
                                 "layer_norm=critic initializer=critic:torch");
  spec = SmallSpecForTesting();
  spec.mutable_critic()->activation = Activation::kSilu;
  EXPECT_EQ(spec.ToString(), plain + " network=critic:observation:[4]:silu:1");
}

TEST(LayerOptionsTest, EachHiddenLayerHasScaleAndShift) {
  PolicySpec spec = SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kNone);
  spec.mutable_critic()->core = {};
  spec.mutable_critic()->hidden_sizes = {4};
  spec.actor.layer_norm = true;
  std::vector<std::pair<std::string, std::vector<int64_t>>> entries;
  for (const ParameterLayout layout = ParameterLayout::For(spec); const ParameterEntry& entry : layout.entries()) {
    if (entry.name.find("core") == std::string::npos) entries.emplace_back(entry.name, entry.shape);
  }
  EXPECT_EQ(entries, (std::vector<std::pair<std::string, std::vector<int64_t>>>{{"actor.0.weight", {4, 3}},
                                                                                {"actor.0.bias", {4}},
                                                                                {"actor.norm.0.weight", {4}},
                                                                                {"actor.norm.0.bias", {4}},
                                                                                {"actor.1.weight", {6, 5}},
                                                                                {"actor.1.bias", {6}},
                                                                                {"actor.norm.1.weight", {6}},
                                                                                {"actor.norm.1.bias", {6}},
                                                                                {"actor.2.weight", {2, 6}},
                                                                                {"actor.2.bias", {2}},
                                                                                {"critic.0.weight", {4, 3}},
                                                                                {"critic.0.bias", {4}},
                                                                                {"critic.1.weight", {1, 4}},
                                                                                {"critic.1.bias", {1}}}));
}

TEST(LayerOptionsTest, WhatWeightsOfAnotherDifferIn) {
  const PolicySpec plain = SmallSpecForTesting();
  const auto differs = [&plain](const std::function<void(PolicySpec*)>& change) {
    PolicySpec spec = plain;
    change(&spec);
    return std::pair(FirstDifference(spec, plain), ShapeOf(spec) == ShapeOf(plain));
  };
  using Difference = std::pair<std::string, bool>;
  EXPECT_EQ(differs([](PolicySpec* s) { s->actor.layer_norm = true; }),
            Difference("the actor's layer normalization is true, expected false; set model.layer_norm alike", false));
  EXPECT_EQ(differs([](PolicySpec* s) { s->mutable_critic()->layer_norm = true; }),
            Difference("the critic's layer normalization is true, expected false; set model.layer_norm alike", false));
  EXPECT_EQ(differs([](PolicySpec* s) { s->mutable_critic()->activation = Activation::kGelu; }),
            Difference("the critic's activation is gelu, expected tanh; set model alike", false));
  // What only first weights are made from.
  for (const auto& change : std::vector<std::function<void(PolicySpec*)>>{
           [](PolicySpec* s) { s->actor.initializer = Initializer::kTorch; },
           [](PolicySpec* s) { s->mutable_critic()->initializer = Initializer::kXavier; },
           [](PolicySpec* s) { s->actor.hidden_gain = 2; }, [](PolicySpec* s) { s->mutable_critic()->hidden_gain = 2; },
           [](PolicySpec* s) { s->mutable_critic()->output_gain = 0.5; }}) {
    EXPECT_EQ(differs(change), Difference("", true));
  }
}

TEST(LayerOptionsTest, BadOnesAreRefusedInWords) {
  const auto refused = [](const std::function<void(PolicySpec*)>& spoil) {
    PolicySpec spec = SmallSpecForTesting();
    spoil(&spec);
    return std::string(spec.Validate().message());
  };
  EXPECT_EQ(refused([](PolicySpec* s) { s->actor.initializer = Initializer(9); }),
            "policy \"p\": actor has an unknown initializer");
  EXPECT_EQ(refused([](PolicySpec* s) { s->mutable_critic()->activation = Activation(9); }),
            "policy \"p\": critic has an unknown activation");
  EXPECT_EQ(refused([](PolicySpec* s) { s->actor.hidden_gain = -1; }),
            "policy \"p\": actor has a gain of hidden layers of -1; expected 0 (by activation) or above");
  EXPECT_EQ(refused([](PolicySpec* s) { s->mutable_critic()->hidden_gain = std::numeric_limits<double>::infinity(); }),
            "policy \"p\": critic has a gain of hidden layers of inf; expected 0 (by activation) or above");
}

TEST(LayerOptionsTest, ATableHasThemAndOneWithoutIsAsItWas) {
  PolicySpec spec = SmallSpecForTesting();
  const auto text = [&spec] {
    MappingRule all{"*", {}};
    all.policies.push_back({PolicyId("p")});
    return ToJson(**PolicyTable::Make({spec}, {true}, {all}, {"agent"}));
  };
  for (const char* word : {"layer_norm", "initializer", "hidden_gain"}) {
    EXPECT_EQ(text().find(word), std::string::npos) << word << ": workers of before read it";
  }
  spec.actor.layer_norm = true;
  spec.actor.initializer = Initializer::kXavier;
  spec.mutable_critic()->initializer = Initializer::kTorch;
  spec.mutable_critic()->hidden_gain = 0.1;
  spec.mutable_critic()->output_gain = 0.7;
  spec.mutable_critic()->activation = Activation::kSilu;
  const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(text());
  ASSERT_TRUE(back.ok()) << back.status();
  const PolicySpec& read = (*back)->Find(PolicySlot(0))->spec;
  EXPECT_EQ(read.ToString(), spec.ToString());
  EXPECT_EQ(read.actor, spec.actor);
  EXPECT_EQ(read.critic(), spec.critic());
  std::string unknown = text();
  unknown.replace(unknown.find("xavier"), 6, "zeroes");
  const absl::Status status = PolicyTableFromJson(unknown).status();
  EXPECT_NE(status.message().find("zeroes"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace troupe::policy
