#include "lib/policy/parameter_layout.h"

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
