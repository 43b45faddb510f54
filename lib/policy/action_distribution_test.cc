// What a spec says of the distribution of continuous actions.

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

/// Of a discrete part and two continuous ones, 1 and 3 words.
PolicySpec MixedSpec() {
  PolicySpec spec = SmallSpecForTesting();
  spec.action_space = *space::Space::Tuple(
      {*space::Space::Box(-1, 1, {1}), *space::Space::Discrete(5), *space::Space::Box(-1, 1, {3})});
  return spec;
}

PolicySpec Squashed() {
  PolicySpec spec = MixedSpec();
  spec.continuous = ContinuousDistribution::kSquashedGaussian;
  spec.action_bound_method = ActionBoundMethod::kTanh;
  spec.action_scaling = true;
  return spec;
}

PolicySpec Beta() {
  PolicySpec spec = MixedSpec();
  spec.continuous = ContinuousDistribution::kBeta;
  spec.action_scaling = true;
  return spec;
}

TEST(ActionDistributionTest, WithoutThemTheTextIsAsItWas) {
  EXPECT_EQ(MixedSpec().ToString(),
            "policy p obs=Box(-1, 1, [3]) act=Tuple(Box(-1, 1, [1]), Discrete(5), Box(-1, 1, [3])) actor=[4,4] "
            "critic=[4] activation=tanh gain=0.01 log_std=0 critic_input=1 critic_state=0 agent_id=0 "
            "critic_agent_id=0 normalize=0 mask=0 bound=2 scaling=0");
}

TEST(ActionDistributionTest, TheTextSaysEach) {
  PolicySpec spec = Squashed();
  const auto ends_with = [&spec](const std::string& end) {
    const std::string text = spec.ToString();
    return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
  };
  EXPECT_TRUE(ends_with("bound=3 scaling=1 continuous=squashed_gaussian")) << spec.ToString();
  spec.free_log_std = false;
  spec.min_log_std = -5;
  spec.max_log_std = 0.5;
  EXPECT_TRUE(ends_with(" continuous=squashed_gaussian log_std=predicted log_std_in=[-5,0.5]")) << spec.ToString();
  spec = Beta();
  EXPECT_TRUE(ends_with("bound=2 scaling=1 continuous=beta")) << spec.ToString();
}

TEST(ActionDistributionTest, TheLastLayerSaysOneOrTwoNumbersOfAWord) {
  const auto sizes = [](const PolicySpec& spec) {
    EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
    const ParameterLayout layout = ParameterLayout::For(spec);
    const ParameterEntry* const log_std = layout.Find("actor.log_std");
    EXPECT_EQ(log_std == nullptr ? 0 : log_std->count, spec.log_std_size());
    EXPECT_EQ(layout.Find("actor.2.bias")->count, spec.actor_output_size());
    return std::pair(spec.actor_output_size(), spec.log_std_size());
  };
  using Sizes = std::pair<int64_t, int64_t>;
  PolicySpec spec = MixedSpec();
  EXPECT_EQ(sizes(spec), Sizes(5 + 4, 4));
  spec.free_log_std = false;
  EXPECT_EQ(sizes(spec), Sizes(5 + 8, 0));
  spec = Squashed();
  EXPECT_EQ(sizes(spec), Sizes(5 + 4, 4));
  spec.free_log_std = false;
  EXPECT_EQ(sizes(spec), Sizes(5 + 8, 0));
  spec = Beta();
  EXPECT_EQ(sizes(spec), Sizes(5 + 8, 0));
  spec.free_log_std = false;
  EXPECT_EQ(sizes(spec), Sizes(5 + 8, 0));
  // Without a continuous part there is nothing to say.
  spec = SmallSpecForTesting();
  spec.free_log_std = false;
  EXPECT_EQ(sizes(spec), Sizes(2, 0));
}

TEST(ActionDistributionTest, WhatWeightsOfAnotherDifferIn) {
  const auto differs = [](const PolicySpec& got, const PolicySpec& expected) {
    EXPECT_NE(ShapeOf(got), ShapeOf(expected));
    return FirstDifference(got, expected);
  };
  EXPECT_EQ(differs(Beta(), MixedSpec()),
            "the distribution of continuous actions is beta, expected gaussian; set model alike");
  PolicySpec spec = MixedSpec();
  spec.free_log_std = false;
  EXPECT_EQ(differs(spec, MixedSpec()), "model.free_log_std is false, expected true; set it alike");
  spec = MixedSpec();
  spec.min_log_std = -1;
  EXPECT_EQ(differs(spec, MixedSpec()), "model.min_log_std is -1, expected -20; set it alike");
  spec = MixedSpec();
  spec.max_log_std = 1;
  EXPECT_EQ(differs(spec, MixedSpec()), "model.max_log_std is 1, expected 5; set it alike");
  spec = MixedSpec();
  spec.initial_log_std = 1;
  EXPECT_EQ(FirstDifference(spec, MixedSpec()), "") << "only first weights are made from it";
}

struct BadDistribution {
  const char* name;
  PolicySpec spec;
  std::function<void(PolicySpec&)> spoil;
  const char* expected;
};

TEST(ActionDistributionTest, BadOnesAreRefusedInWords) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<BadDistribution> cases = {
      {"unknown", MixedSpec(), [](PolicySpec& s) { s.continuous = ContinuousDistribution(9); },
       "has an unknown distribution of continuous actions"},
      {"no scaling", Beta(), [](PolicySpec& s) { s.action_scaling = false; },
       "actions of distribution beta are in [-1, 1] and need action_scaling: true"},
      {"clipped", Squashed(), [](PolicySpec& s) { s.action_bound_method = ActionBoundMethod::kClip; },
       "distribution squashed_gaussian is bounded by tanh; expected action_bound_method: tanh"},
      {"squashed twice", Beta(), [](PolicySpec& s) { s.action_bound_method = ActionBoundMethod::kTanh; },
       "distribution beta is bounded as it is; expected action_bound_method: none or clip"},
      {"discrete", Squashed(), [](PolicySpec& s) { s.action_space = *space::Space::Discrete(3); },
       "distribution squashed_gaussian needs a continuous action; the action space is Discrete(3)"},
      {"unbounded", Beta(), [inf](PolicySpec& s) { s.action_space = *space::Space::Box(-inf, inf, {2}); }, "bounded"},
      {"turned round", MixedSpec(),
       [](PolicySpec& s) {
         s.min_log_std = 1;
         s.max_log_std = -1;
       },
       "log standard deviations are in [1, -1]; expected an interval within [-20, 20]"},
      {"too low", MixedSpec(), [](PolicySpec& s) { s.min_log_std = -20.5; }, "in [-20.5, 5]; expected an interval"},
      {"too high", MixedSpec(), [](PolicySpec& s) { s.max_log_std = 21; }, "in [-20, 21]; expected an interval"},
      {"nan", MixedSpec(), [nan](PolicySpec& s) { s.max_log_std = nan; }, "expected an interval within [-20, 20]"},
      {"first one", MixedSpec(), [](PolicySpec& s) { s.initial_log_std = 6; },
       "initial_log_std is 6; expected a number in [-20, 5]"},
      {"first predicted one", Squashed(),
       [](PolicySpec& s) {
         s.free_log_std = false;
         s.min_log_std = 0.5;
       },
       "initial_log_std is 0; expected a number in [0.5, 5]"},
  };
  for (BadDistribution bad : cases) {
    bad.spoil(bad.spec);
    const absl::Status status = bad.spec.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_NE(status.message().find(bad.expected), absl::string_view::npos) << bad.name << ": " << status;
  }
}

TEST(ActionDistributionTest, APolicyWithoutNetworksHasNone) {
  PolicySpec spec = Squashed();
  spec.free_log_std = false;
  spec.min_log_std = -2;
  spec.max_log_std = 2;
  DropNetworks(&spec);
  PolicySpec plain = MixedSpec();
  DropNetworks(&plain);
  EXPECT_EQ(spec.ToString(), plain.ToString());
}

TEST(ActionDistributionTest, ATableHasThemAndOneWithoutIsAsItWas) {
  const auto text = [](const PolicySpec& spec) {
    MappingRule all{"*", {}};
    all.policies.push_back({PolicyId("p")});
    return ToJson(**PolicyTable::Make({spec}, {true}, {all}, {"agent"}));
  };
  for (const char* word : {"continuous", "free_log_std", "min_log_std", "max_log_std"}) {
    EXPECT_EQ(text(MixedSpec()).find(word), std::string::npos) << word << ": workers of before read it";
  }
  PolicySpec predicted = Squashed();
  predicted.free_log_std = false;
  predicted.min_log_std = -4.5;
  predicted.max_log_std = 2;
  for (const PolicySpec& spec : {predicted, Beta()}) {
    const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(text(spec));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ((*back)->entries()[PolicySlot(0)]->spec.ToString(), spec.ToString());
  }
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text(predicted);
    const size_t place = changed.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return std::string(PolicyTableFromJson(changed.replace(place, from.size(), to)).status().message());
  };
  EXPECT_NE(error("\"squashed_gaussian\"", "\"cauchy\"")
                .find("continuous is \"cauchy\", which is unknown; expected one of gaussian, squashed_gaussian, beta"),
            std::string::npos)
      << error("\"squashed_gaussian\"", "\"cauchy\"");
  EXPECT_NE(error("\"free_log_std\":false", "\"free_log_std\":0").find("free_log_std is number, expected"),
            std::string::npos);
  EXPECT_NE(error("\"min_log_std\":-4.5", "\"min_log_std\":\"-4.5\"").find("min_log_std is string, expected"),
            std::string::npos);
  EXPECT_NE(error("\"max_log_std\":2.0", "\"max_log_std\":200.0").find("expected an interval within [-20, 20]"),
            std::string::npos);
}

}  // namespace
}  // namespace troupe::policy
