#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/testing/malloc_counter.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

/// A sink that keeps nothing, so that memory returns to the pool.
class DroppingSink final : public SampleSink {
 public:
  absl::Status Submit(sample::MultiAgentBatchPtr fragment) override {
    rows += fragment->num_agent_steps;
    return absl::OkStatus();
  }
  int64_t rows = 0;
};

/// All agents act at every step; an episode has ten. Writes nothing but rows.
class SteadyEnv final : public env::MultiAgentEnv {
 public:
  explicit SteadyEnv(const ScriptedOptions& options) : options_(options), spec_(ScriptedSpec(options)) {}
  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed&, env::StepWriter& out) override {
    step_ = 0;
    Write(out);
    return absl::OkStatus();
  }
  absl::Status Step(env::ActionRows, env::StepWriter& out) override {
    ++step_;
    for (int i = 0; i < options_.agents; ++i) out.AddReward(env::AgentSlot(i), 1.0f);
    Write(out);
    if (step_ == 10) out.TruncateAll();
    return absl::OkStatus();
  }

 private:
  void Write(env::StepWriter& out) {
    for (int i = 0; i < options_.agents; ++i) {
      // Every third agent takes turns.
      if (i % 3 == 2 && step_ % 2 == 1) continue;
      float* row = out.ObserveFloat(env::AgentSlot(i));
      for (int k = 0; k < 4; ++k) row[k] = static_cast<float>(step_ + k);
      if (options_.action_mask) {
        uint8_t* mask = out.ActionMask(env::AgentSlot(i));
        mask[0] = mask[1] = mask[2] = 1;
      }
    }
    if (options_.state_kind == env::StateKind::kPerEnv) {
      float* state = out.State(env::AgentSlot(0));
      state[0] = state[1] = 0;
    }
  }

  const ScriptedOptions options_;
  const env::EnvSpec spec_;
  int step_ = 0;
};

TEST(AllocationTest, TheHookCounts) {
  if (!CountsAllocations()) GTEST_SKIP() << "sanitizers replace malloc themselves";
  const int64_t before = AllocationCount();
  auto* volatile p = new int(3);
  delete p;
  void* volatile q = malloc(10);
  free(q);
  EXPECT_EQ(AllocationCount() - before, 2);
}

TEST(AllocationTest, NoneInTheSteadyStateOfRollout) {
  if (!CountsAllocations()) GTEST_SKIP() << "sanitizers replace malloc themselves";
  struct Case {
    bool continuous;
    const char* other_class;  // of the second policy
    policy::CoreSpec core = {};
  };
  for (const Case& c : std::vector<Case>{{false, "ppo"},
                                         {true, "ppo"},
                                         {false, "random"},
                                         {true, "random"},
                                         {false, "scripted:always_same"},
                                         {false, "ppo", {policy::CoreKind::kGru, 16, 1}},
                                         {true, "random", {policy::CoreKind::kLstm, 16, 2}}}) {
    SCOPED_TRACE(absl::StrCat(c.other_class, ", core of ", c.core.state_size()));
    const ScriptedOptions options = {
        .agents = 3, .state_kind = env::StateKind::kPerEnv, .action_mask = !c.continuous, .continuous = c.continuous};
    RolloutConfig config = ScriptedConfig(
        options, [=] { return std::make_unique<SteadyEnv>(options); }, 2);
    config.policies[policy::PolicySlot(1)].policy_class = *policy::ParsePolicyClass(c.other_class);
    for (policy::PolicySpec& spec : config.policies) {
      if (!c.core.remembers() || !spec.policy_class.has_weights()) continue;
      spec.actor.core = c.core;
      spec.sequence_length = 4;
    }
    auto collector = *Collector::Create(config);
    FixedWeights weights(ScriptedWeights(config, 1));
    DroppingSink sink;
    const sample::Grant grant = ScriptedGrant(16, 53);
    // Odd steps, so that grants begin at different places of the episodes and buffers reach their full size.
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    const int64_t fragments = collector->stats().fragments;
    const int64_t before = AllocationCount();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    const int64_t allocations = AllocationCount() - before;
    // What remains belongs to handing a fragment over (owners' counts), however many steps it has.
    EXPECT_LE(allocations, 3 * (collector->stats().fragments - fragments));
    EXPECT_EQ(collector->stats().fragments - fragments, 20);
    EXPECT_GT(sink.rows, 30 * 16 * 53);
  }
}

TEST(AllocationTest, LongerFragmentsAllocateNoMore) {
  if (!CountsAllocations()) GTEST_SKIP() << "sanitizers replace malloc themselves";
  const ScriptedOptions options = {.agents = 3};
  RolloutConfig config = ScriptedConfig(options, [=] { return std::make_unique<SteadyEnv>(options); });
  auto collector = *Collector::Create(config);
  FixedWeights weights(ScriptedWeights(config, 1));
  DroppingSink sink;
  int64_t counted[2];
  for (int k = 0; k < 2; ++k) {
    const sample::Grant grant = ScriptedGrant(8, k == 0 ? 40 : 400);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    const int64_t before = AllocationCount();
    ASSERT_TRUE(collector->RunGrant(grant, weights, sink).ok());
    counted[k] = AllocationCount() - before;
  }
  EXPECT_EQ(counted[0], counted[1]) << "so a step allocates nothing";
}

}  // namespace
}  // namespace troupe::rollout
