#include "lib/policy/parameter_layout.h"

#include <string>
#include <utility>
#include <vector>

#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

TEST(ParameterLayoutTest, ActorIsAnAlignedPrefix) {
  const ParameterLayout layout = ParameterLayout::For(SmallSpecForTesting());
  const ParameterEntry* weight = layout.Find("actor.0.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(weight->offset, 0);
  const ParameterEntry* head = layout.Find("actor.2.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->shape, (std::vector<int64_t>{2, 4}));
  const ParameterEntry* critic = layout.Find("critic.0.weight");
  ASSERT_NE(critic, nullptr);
  EXPECT_EQ(critic->offset, layout.acting_size());
  EXPECT_EQ(layout.Find("critic.1.weight")->shape, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(layout.Find("actor.log_std"), nullptr);

  int64_t end = 0;
  for (const ParameterEntry& entry : layout.entries()) {
    EXPECT_EQ(entry.offset % 16, 0) << entry.name;
    EXPECT_GE(entry.offset, end) << entry.name << " overlaps the one before";
    end = entry.offset + entry.count;
  }
  EXPECT_LE(end, layout.size());
  EXPECT_EQ(layout.size() % 16, 0);
}

TEST(ParameterLayoutTest, InputsAndHeadsFollowTheSpec) {
  PolicySpec spec = SmallSpecForTesting();
  spec.agent_id_size = 5;
  spec.SetCriticInput(NetworkInput::kJointObservation, 11);
  spec.SetCriticAgentId(true);
  spec.action_space = *space::Space::Tuple({*space::Space::Discrete(3), *space::Space::Box(-1, 1, {2})});
  const ParameterLayout layout = ParameterLayout::For(spec);
  EXPECT_EQ(layout.Find("actor.0.weight")->shape, (std::vector<int64_t>{4, 3 + 5}));
  EXPECT_EQ(layout.Find("actor.2.bias")->shape, (std::vector<int64_t>{3 + 2}));
  EXPECT_EQ(layout.Find("actor.log_std")->shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(layout.Find("critic.0.weight")->shape, (std::vector<int64_t>{4, 11 + 5}));
}

std::vector<std::pair<std::string, std::vector<int64_t>>> NamesAndShapes(const ParameterLayout& layout) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> entries;
  for (const ParameterEntry& entry : layout.entries()) entries.emplace_back(entry.name, entry.shape);
  return entries;
}

// The names, shapes and order of torch.nn.GRU and torch.nn.LSTM; fully connected layers are numbered through.
TEST(ParameterLayoutTest, ACoreStandsBetweenEncoderAndHead) {
  const ParameterLayout layout = ParameterLayout::For(SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kLstm));
  EXPECT_EQ(NamesAndShapes(layout), (std::vector<std::pair<std::string, std::vector<int64_t>>>{
                                        {"actor.0.weight", {4, 3}},
                                        {"actor.0.bias", {4}},
                                        {"actor.core.weight_ih_l0", {15, 4}},
                                        {"actor.core.weight_hh_l0", {15, 5}},
                                        {"actor.core.bias_ih_l0", {15}},
                                        {"actor.core.bias_hh_l0", {15}},
                                        {"actor.1.weight", {6, 5}},
                                        {"actor.1.bias", {6}},
                                        {"actor.2.weight", {2, 6}},
                                        {"actor.2.bias", {2}},
                                        // No encoder: the core reads the observation.
                                        {"critic.core.weight_ih_l0", {12, 3}},
                                        {"critic.core.weight_hh_l0", {12, 3}},
                                        {"critic.core.bias_ih_l0", {12}},
                                        {"critic.core.bias_hh_l0", {12}},
                                        {"critic.core.weight_ih_l1", {12, 3}},
                                        {"critic.core.weight_hh_l1", {12, 3}},
                                        {"critic.core.bias_ih_l1", {12}},
                                        {"critic.core.bias_hh_l1", {12}},
                                        {"critic.0.weight", {1, 3}},
                                        {"critic.0.bias", {1}},
                                    }));
  const ParameterSection* const actor = layout.FindSection("actor");
  EXPECT_EQ(layout.acting_size(), actor->size) << "workers get the actor's core";
  EXPECT_EQ(layout.Find("critic.core.weight_ih_l0")->offset, actor->size);
}

// All names and shapes are the same, and yet the networks are not.
TEST(ParameterLayoutTest, ALayerOnTheOtherSideOfTheCoreIsADifference) {
  PolicySpec before = SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kGru);
  before.actor.hidden_sizes = {5, 5};
  before.actor.head_hidden_sizes = {};
  PolicySpec behind = before;
  behind.actor.hidden_sizes = {5};
  behind.actor.head_hidden_sizes = {5};
  EXPECT_EQ(FirstShapeDifference(before, before), "");
  EXPECT_EQ(FirstShapeDifference(before, behind),
            "tensor \"p/actor.1.weight\" stands where actor.core.weight_ih_l0 is expected");
  EXPECT_EQ(FirstShapeDifference(behind, before),
            "tensor \"p/actor.core.weight_ih_l0\" stands where actor.1.weight is expected");
}

TEST(ParameterLayoutTest, SectionsAreTheNetworks) {
  const ParameterLayout layout = ParameterLayout::For(SmallSpecForTesting());
  ASSERT_EQ(layout.sections().size(), 2u);
  const ParameterSection* const actor = layout.FindSection("actor");
  const ParameterSection* const critic = layout.FindSection("critic");
  ASSERT_TRUE(actor != nullptr && critic != nullptr);
  EXPECT_TRUE(actor->acting && actor->trained && critic->trained && !critic->acting);
  EXPECT_EQ(actor->offset, 0);
  EXPECT_EQ(actor->size, layout.acting_size());
  EXPECT_EQ(critic->offset + critic->size, layout.size());
  for (const ParameterEntry& entry : layout.entries()) {
    EXPECT_EQ(entry.name.rfind(layout.sections()[entry.section].role + ".", 0), 0u) << entry.name;
  }
  EXPECT_EQ(layout.FindSection("mixer"), nullptr);
}

// As an algorithm with a target network will have them.
TEST(ParameterLayoutTest, ATargetIsNeitherTrainedNorSentToWorkers) {
  const ParameterLayout layout = ParameterLayout::Builder()
                                     .Section("q", /*trained=*/true, /*acting=*/true)
                                     .Mlp(3, {4}, 2)
                                     .Section("temperature", true, false)
                                     .Entry("log", {1})
                                     .Section("q_target", false, false)
                                     .Mlp(3, {4}, 2)
                                     .Build();
  ASSERT_EQ(layout.sections().size(), 3u);
  const ParameterSection* const q = layout.FindSection("q");
  const ParameterSection* const target = layout.FindSection("q_target");
  EXPECT_EQ(q->size, target->size);
  EXPECT_FALSE(target->trained);
  EXPECT_EQ(layout.acting_size(), q->size);
  EXPECT_EQ(target->offset, q->size + 16);
  EXPECT_EQ(layout.Find("q_target.0.weight")->offset, target->offset);
  EXPECT_EQ(layout.Find("temperature.log")->section, 1u);
  std::vector<float> parameters(static_cast<size_t>(layout.size()));
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = static_cast<float>(i);
  const std::vector<float> acting = layout.ActingPart(parameters);
  EXPECT_EQ(acting, std::vector<float>(parameters.begin(), parameters.begin() + q->size));
  EXPECT_EQ(layout.size(), target->offset + target->size) << "a state has all of them";
}

}  // namespace
}  // namespace troupe::policy
