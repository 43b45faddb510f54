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
  EXPECT_EQ(critic->offset, layout.actor_size());
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
  spec.critic_input = CriticInput::kJointObservation;
  spec.critic_state_size = 11;
  spec.critic_agent_id = true;
  spec.action_space = *space::Space::Tuple({*space::Space::Discrete(3), *space::Space::Box(-1, 1, {2})});
  const ParameterLayout layout = ParameterLayout::For(spec);
  EXPECT_EQ(layout.Find("actor.0.weight")->shape, (std::vector<int64_t>{4, 3 + 5}));
  EXPECT_EQ(layout.Find("actor.2.bias")->shape, (std::vector<int64_t>{3 + 2}));
  EXPECT_EQ(layout.Find("actor.log_std")->shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(layout.Find("critic.0.weight")->shape, (std::vector<int64_t>{4, 11 + 5}));
}

}  // namespace
}  // namespace troupe::policy
