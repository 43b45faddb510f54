// Agents that end and return: each time they begin a trajectory of their own.

#include "lib/policy/policy_spec.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/multi_agent_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::ElementsAre;

// Agent 1 ends at step 1, with a last look, and returns at step 3.
const Script kReturning = {
    {.observe = {0, 1}},
    {.observe = {0, 1}, .rewards = {{1, 5.0f}}, .terminate = {1}},
    {.observe = {0}},
    {.observe = {0, 1}},
    {.observe = {0, 1}, .rewards = {{1, 2.0f}}},
    {.observe = {0, 1}, .rewards = {{1, 1.0f}}, .truncate_all = true},
};

RolloutConfig Returning() {
  return ScriptedConfig({}, [] { return MakeScriptedEnv({}, kReturning); });
}

TEST(ReturningAgentsTest, EachTimeATrajectoryBegins) {
  Rig rig(Returning());
  ASSERT_EQ(rig.Run(ScriptedGrant(1, 5)), absl::OkStatus());
  const sample::MultiAgentBatch& batch = *rig.sink.fragments[0];
  EXPECT_THAT(SegmentsOf(batch), ElementsAre("env 0 ep 0 agent 0: 0(+0) 1(+0) 2(+0) 3(+0) 4(+0) truncated@5 lag 0",
                                             "env 0 ep 0 agent 1: 0(+5) terminated lag 0",
                                             "env 0 ep 0 agent 1: 3(+2) 4(+1) truncated@5 lag 0"));
  ASSERT_EQ(batch.finished.size(), 1u);
  EXPECT_THAT(batch.finished[0].returns, ElementsAre(0.0f, 4.0f)) << "the mean of 5 and 3";
  EXPECT_THAT(batch.finished[0].trajectories, ElementsAre(1, 2));
}

TEST(ReturningAgentsTest, AFragmentMayEndWhileTheyAreAwayOrThere) {
  Rig whole(Returning());
  ASSERT_EQ(whole.Run(ScriptedGrant(1, 5)), absl::OkStatus());
  Rig cut(Returning());
  for (int grant = 0; grant < 5; ++grant) ASSERT_EQ(cut.Run(ScriptedGrant(1, 1)), absl::OkStatus());
  EXPECT_EQ(RowsOf(cut.sink.fragments).size(), RowsOf(whole.sink.fragments).size());
  EXPECT_THAT(cut.sink.fragments[4]->finished[0].returns, ElementsAre(0.0f, 4.0f));
  EXPECT_THAT(SegmentsOf(*cut.sink.fragments[3]),
              ElementsAre("env 0 ep 0 agent 0: 3(+0) cut@4 lag 0", "env 0 ep 0 agent 1: 3(+2) cut@4 lag 0"));
}

TEST(ReturningAgentsTest, NothingIsRememberedOfTheTrajectoryBefore) {
  RolloutConfig config = Returning();
  config.policies[policy::PolicySlot(0)].actor.core = {policy::CoreKind::kGru, 4, 1};
  config.policies[policy::PolicySlot(0)].sequence_length = 3;
  Rig rig(std::move(config));
  ASSERT_EQ(rig.Run(ScriptedGrant(1, 5)), absl::OkStatus());
  const sample::PolicyRows& rows = rig.sink.fragments[0]->policies[0];
  const int32_t* const at = rows.memory_at.As<int32_t>().data();
  int of_agent_1 = 0;
  for (int64_t m = 0; m < rows.num_memories; ++m) {
    const int32_t row = at[m * sample::kMemoryFields + sample::kMemoryRow];
    const sample::Index segment = rows.segment.As<sample::Index>()[row];
    if (rows.segments.As<int32_t>()[segment * sample::kSegmentFields + sample::kSegmentSlot] != 1) continue;
    ++of_agent_1;
    EXPECT_EQ(at[m * sample::kMemoryFields + sample::kMemoryDecision], 0) << "decisions are counted anew";
    const float* const before = rows.memory.As<float>().data() + m * rows.memory.row_elements;
    EXPECT_THAT(absl::MakeConstSpan(before, static_cast<size_t>(rows.memory.row_elements)), testing::Each(0.0f));
  }
  EXPECT_EQ(of_agent_1, 2);
}

}  // namespace
}  // namespace troupe::rollout
