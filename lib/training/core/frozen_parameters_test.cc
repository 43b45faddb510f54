#include "lib/training/core/frozen_parameters.h"

#include <string>
#include <vector>

#include "lib/policy/policy_spec.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

policy::PolicySpec Spec() {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = *space::Space::Box(-1, 1, {3});
  spec.action_space = *space::Space::Box(-1, 1, {2});
  spec.actor.hidden_sizes = {4};
  spec.mutable_critic()->hidden_sizes = {5};
  return spec;
}

TEST(FrozenParametersTest, GlobsBecomeRangesOfWholeEntries) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(Spec());
  const auto ranges = FrozenRanges(Spec(), {"*.log_std", "actor.0.*"});
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  // actor.0.weight and actor.0.bias lie side by side.
  ASSERT_EQ(ranges->size(), 2u);
  EXPECT_EQ((*ranges)[0],
            (ParameterRange{layout.Find("actor.0.weight")->offset, layout.Find("actor.1.weight")->offset}));
  EXPECT_EQ((*ranges)[1], (ParameterRange{layout.Find("actor.log_std")->offset, layout.acting_size()}));
  EXPECT_EQ(FrozenRanges(Spec(), {"critic.*"})->at(0), (ParameterRange{layout.acting_size(), layout.size()}));
  EXPECT_TRUE(FrozenRanges(Spec(), {})->empty());
}

/// Whose actor and critic are users' modules with a weight and a buffer each.
policy::PolicySpec ModuleSpec() {
  policy::PolicySpec spec = Spec();
  for (policy::NetworkSpec* const network : {&spec.actor, spec.mutable_critic()}) {
    network->encoder = policy::EncoderKind::kTorchScript;
    network->hidden_sizes = {};
    network->module = {std::string(64, 'a'), {{"w", {20}}, {"scale", {3}, true}}};
  }
  return spec;
}

TEST(FrozenParametersTest, BuffersOfModulesAreNeverTrained) {
  const policy::PolicySpec spec = ModuleSpec();
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const auto section = [&](const char* role) {
    const policy::ParameterSection& found = *layout.FindSection(role);
    return ParameterRange{found.offset, found.offset + found.size};
  };
  EXPECT_EQ(*FrozenRanges(spec, {}),
            (std::vector<ParameterRange>{section("actor.buffers"), section("critic.buffers")}));
  // The critic lies behind the actor's buffers: one range.
  EXPECT_EQ(*FrozenRanges(spec, {"critic.w"}),
            (std::vector<ParameterRange>{{section("actor.buffers").first, layout.size()}}));
  EXPECT_FALSE(FrozenRanges(spec, {"actor.w", "actor.log_std", "critic.w"}).ok()) << "buffers are not left to train";
  EXPECT_FALSE(*ValuesAreFrozen(spec, *FrozenRanges(spec, {"actor.w"}), false));
  EXPECT_TRUE(*ValuesAreFrozen(spec, *FrozenRanges(spec, {"critic.*"}), false));
}

TEST(FrozenParametersTest, ValuesAreFrozenWithTheCriticsWholeLastLayer) {
  const auto frozen = [](const std::vector<std::string>& globs, bool use_popart) {
    return ValuesAreFrozen(Spec(), *FrozenRanges(Spec(), globs), use_popart);
  };
  for (const bool popart : {true, false}) {
    EXPECT_TRUE(*frozen({"critic.*"}, popart));
    EXPECT_TRUE(*frozen({"critic.1.weight", "critic.1.bias"}, popart));
    EXPECT_FALSE(*frozen({"critic.0.*", "actor.*"}, popart)) << "the layer before";
    EXPECT_FALSE(*frozen({}, popart));
  }
  for (const std::string half : {"critic.1.weight", "critic.1.bias"}) {
    EXPECT_FALSE(*frozen({half}, false)) << "the other half follows the units";
    EXPECT_EQ(frozen({half}, true).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(std::string(frozen({"critic.?.bias"}, true).status().message()),
            "algorithm.frozen_parameters: of policy \"p\" they hold \"critic.1.bias\" and leave \"critic.1.weight\"; "
            "expected both or none with use_popart, which rescales the critic's last layer");
}

TEST(FrozenParametersTest, SaysWhatMatchesNothing) {
  const auto message = [](const std::vector<std::string>& globs) {
    const absl::Status status = FrozenRanges(Spec(), globs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(
      message({"actor.0.*", "actr.1.*"}),
      "algorithm.frozen_parameters: \"actr.1.*\" matches no parameter of policy \"p\"; the nearest is \"actor.1.*\"");
  EXPECT_EQ(message({"actor.1.wieght"}),
            "algorithm.frozen_parameters: \"actor.1.wieght\" matches no parameter of policy \"p\"; the nearest is "
            "\"actor.1.weight\"");
  EXPECT_EQ(message({"x"}).substr(0, 100),
            "algorithm.frozen_parameters: \"x\" matches no parameter of policy \"p\"; they are actor.0.weight, actor.");
  EXPECT_EQ(message({"*"}),
            "algorithm.frozen_parameters: nothing of policy \"p\" is left to train, expected some; leave it out of "
            "multi_agent.policies_to_train instead");
}

}  // namespace
}  // namespace troupe::training
