#include "lib/policy/value_network.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

/// A state whose parameters are 1, 2, 3, ...
PolicyState CountedState(const PolicySpec& spec) {
  PolicyState state;
  state.id = spec.id;
  state.version = {2, 7};
  const ParameterLayout layout = ParameterLayout::For(spec);
  std::vector<float> parameters(static_cast<size_t>(layout.size()), 0.0f);
  float next = 1;
  for (const ParameterEntry& entry : layout.entries()) {
    for (int64_t i = 0; i < entry.count; ++i) parameters[static_cast<size_t>(entry.offset + i)] = next++;
  }
  state.Set(kParameters, std::move(parameters));
  return state;
}

std::vector<float> TensorOf(const std::vector<float>& values, const PolicySpec& spec, const std::string& name) {
  const ParameterLayout layout = ParameterLayout::For(spec);
  const ParameterEntry* const entry = layout.Find(name);
  if (entry == nullptr) return {};
  return {values.begin() + entry->offset, values.begin() + entry->offset + entry->count};
}

TEST(ValueNetworkTest, HasTheCriticsWeightsAtTheirNames) {
  PolicySpec spec = SmallSpecForTesting();
  spec.mutable_critic()->layer_norm = true;
  const auto network = ValueNetworkOf(spec);
  ASSERT_TRUE(network.has_value());
  ASSERT_EQ(network->Validate(), absl::OkStatus());
  EXPECT_EQ(network->actor_output_size(), 1);
  const PolicyState state = CountedState(spec);
  const auto weights = ValueSnapshotOf(state, spec, *network);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)->version, state.version);
  const std::vector<float> all(state.parameters().begin(), state.parameters().end());
  for (const char* name : {"0.weight", "0.bias", "norm.0.weight", "norm.0.bias", "1.weight", "1.bias"}) {
    const std::vector<float> expected = TensorOf(all, spec, absl::StrCat("critic.", name));
    EXPECT_FALSE(expected.empty()) << name;
    EXPECT_EQ(TensorOf((*weights)->actor, *network, absl::StrCat("actor.", name)), expected) << name;
  }
}

TEST(ValueNetworkTest, SpeaksInTheUnitsOfRewards) {
  const PolicySpec spec = SmallSpecForTesting();
  const auto network = ValueNetworkOf(spec);
  ASSERT_TRUE(network.has_value());
  PolicyState state = CountedState(spec);
  const auto plain = ValueSnapshotOf(state, spec, *network);
  state.SetMoments(kValueMoments, {100, {5.0}, {9.0}});
  const auto weights = ValueSnapshotOf(state, spec, *network);
  ASSERT_TRUE(plain.ok() && weights.ok()) << plain.status() << weights.status();
  EXPECT_EQ(TensorOf((*weights)->actor, *network, "actor.0.weight"),
            TensorOf((*plain)->actor, *network, "actor.0.weight"));
  const std::vector<float> before = TensorOf((*plain)->actor, *network, "actor.1.weight");
  std::vector<float> expected;
  for (const float weight : before) expected.push_back(3 * weight);
  EXPECT_EQ(TensorOf((*weights)->actor, *network, "actor.1.weight"), expected);
  EXPECT_EQ(TensorOf((*weights)->actor, *network, "actor.1.bias")[0],
            3 * TensorOf((*plain)->actor, *network, "actor.1.bias")[0] + 5);
}

TEST(ValueNetworkTest, ReadsTheSlotWhereTheCriticDoes) {
  PolicySpec spec = SmallSpecForTesting();
  spec.agent_id_size = 3;
  spec.SetCriticAgentId(true);
  EXPECT_EQ(ValueNetworkOf(spec)->agent_id_size, 3);
  spec.SetCriticAgentId(false);
  EXPECT_EQ(ValueNetworkOf(spec)->agent_id_size, 0);
}

TEST(ValueNetworkTest, ThereIsNoneWhereTheCriticNeedsMore) {
  PolicySpec joint = SmallSpecForTesting();
  joint.SetCriticInput(NetworkInput::kJointObservation, 8);
  PolicySpec no_critic = SmallSpecForTesting();
  no_critic.learner_networks.clear();
  for (const PolicySpec& spec : {joint, no_critic, SharedSpecForTesting(), AttendingSpecForTesting(),
                                 SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kGru)}) {
    EXPECT_FALSE(ValueNetworkOf(spec).has_value());
  }
  EXPECT_TRUE(ValueNetworkOf(SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kNone)).has_value())
      << "a core of the actor alone";
}

}  // namespace
}  // namespace troupe::policy
