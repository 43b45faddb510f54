#include "lib/env/guarded_writer.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/env_rule.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {
namespace {

using ::testing::HasSubstr;

EnvSpec MaskedSpec() {
  EnvSpec spec;
  spec.name = "test/guarded";
  spec.possible_agents = {{.id = AgentId("a"),
                           .observation_space = *space::Space::Box(0, 255, {3}, tensor::DType::kUint8),
                           .action_space = *space::Space::Discrete(3),
                           .has_action_mask = true},
                          {.id = AgentId("b"),
                           .observation_space = *space::Space::Box(-1, 1, {2}),
                           .action_space = *space::Space::Discrete(3),
                           .has_action_mask = true}};
  spec.state_kind = StateKind::kPerEnv;
  spec.state_space = *space::Space::Box(-1, 1, {2});
  return spec;
}

TEST(GuardedWriterTest, RowsArriveAndBeginWithWhatWasThere) {
  const EnvSpec spec = MaskedSpec();
  SlotBuffers buffers(spec, 1);
  buffers.Fill(0x11);
  GuardedWriter guard(spec);
  StepWriter& out = guard.Begin(buffers.BeginStep(0));
  auto* const row = static_cast<uint8_t*>(out.Observe(AgentSlot(0)));
  row[0] = 7;
  row[2] = 9;
  out.ActionMask(AgentSlot(1))[2] = 1;
  out.State(AgentSlot(1))[1] = 0.5f;
  EXPECT_EQ(out.State(AgentSlot(0))[1], 0.5f) << "one state an environment";
  out.AddReward(AgentSlot(1), 2.0f);
  ASSERT_TRUE(guard.End().ok());
  EXPECT_EQ(std::vector<uint8_t>(buffers.observation_uint8(0, 0).begin(), buffers.observation_uint8(0, 0).end()),
            (std::vector<uint8_t>{7, 0x11, 9}));
  EXPECT_EQ(buffers.action_mask(0, 1)[2], 1);
  EXPECT_EQ(buffers.state(0, 0)[1], 0.5f);
  EXPECT_EQ(buffers.reward(0, 1), 2.0f);
}

TEST(GuardedWriterTest, FindsWhatIsWrittenOutsideEveryKindOfRow) {
  const EnvSpec spec = MaskedSpec();
  SlotBuffers buffers(spec, 1);
  GuardedWriter guard(spec);
  const auto error = [&](EnvRule rule, const auto& write) {
    write(guard.Begin(buffers.BeginStep(0)));
    const absl::Status status = guard.End();
    EXPECT_EQ(EnvRuleOf(status), rule);
    EXPECT_TRUE(guard.End().ok()) << "the guards are whole again";
    return std::string(status.message());
  };
  EXPECT_THAT(error(EnvRule::kObservationValue,
                    [](StepWriter& out) { static_cast<uint8_t*>(out.Observe(AgentSlot(0)))[3] = 0; }),
              HasSubstr("agent a wrote beyond its observation row of 3 bytes"));
  EXPECT_THAT(error(EnvRule::kObservationValue, [](StepWriter& out) { out.ObserveFloat(AgentSlot(1))[-1] = 0; }),
              HasSubstr("agent b wrote before its observation row of 8 bytes"));
  EXPECT_THAT(error(EnvRule::kActionMask, [](StepWriter& out) { out.ActionMask(AgentSlot(1))[3] = 1; }),
              HasSubstr("agent b wrote beyond its action mask row of 3 bytes"));
  EXPECT_THAT(error(EnvRule::kState, [](StepWriter& out) { out.State(AgentSlot(0))[17] = 1; }),
              HasSubstr("wrote beyond its state row of 8 bytes"));
}

}  // namespace
}  // namespace troupe::env
