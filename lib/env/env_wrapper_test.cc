#include "lib/env/env_wrapper.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/env/agent_groups.h"
#include "lib/env/conformance.h"
#include "lib/env/slot_buffers.h"
#include "lib/env/testing/call.h"
#include "lib/env/testing/scripted_env.h"
#include <gtest/gtest.h>

namespace troupe::env {
namespace {

using testing::Called;
using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

/// No hook overridden.
class Plain final : public EnvWrapper {
 public:
  explicit Plain(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec) : EnvWrapper(std::move(env), std::move(spec)) {}
};

std::unique_ptr<MultiAgentEnv> Wrapped(std::unique_ptr<MultiAgentEnv> env) {
  const EnvSpec spec = env->spec();
  return std::make_unique<Plain>(std::move(env), spec);
}

/// Everything that a writer can be told, in three steps.
std::unique_ptr<MultiAgentEnv> Everything() {
  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[1].has_action_mask = true;
  spec.state_kind = StateKind::kPerEnv;
  spec.state_space = *space::Space::Box(0, 10, {1});
  spec.has_agent_mask = true;
  spec.info_columns = {"speed"};
  spec.max_episode_steps = 3;
  return std::make_unique<ScriptedEnv>(spec, [](int64_t t, ActionRows actions, StepWriter& out) {
    for (int32_t slot = 0; slot < 2; ++slot) {
      if (slot == 0 && t == 3) continue;
      if (t > 0 && actions[static_cast<size_t>(slot)] != nullptr)
        out.AddReward(AgentSlot(slot), static_cast<float>(actions[static_cast<size_t>(slot)]->i32));
      ObserveAs(out, slot, 0.1f * static_cast<float>(t));
      out.SetAgentMask(AgentSlot(slot), t != 1);
      out.SetInfo(AgentSlot(slot), 0, static_cast<double>(10 * t + slot));
    }
    uint8_t* const mask = out.ActionMask(AgentSlot(1));
    mask[0] = 0;
    mask[1] = mask[2] = 1;
    *out.State(AgentSlot(0)) = static_cast<float>(t);
    if (t == 2) out.TruncateAgent(AgentSlot(0));
    if (t == 3) out.TerminateAgent(AgentSlot(1));
    if (t == 3) out.TruncateAll();
    return absl::OkStatus();
  });
}

/// Computes elsewhere: a call is made only when it is finished.
class Elsewhere final : public MultiAgentEnv {
 public:
  explicit Elsewhere(std::unique_ptr<MultiAgentEnv> env) : env_(std::move(env)) {}
  const EnvSpec& spec() const override { return env_->spec(); }
  absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) override { return env_->Reset(seed, out); }
  absl::Status Step(ActionRows actions, StepWriter& out) override { return env_->Step(actions, out); }
  bool runs_elsewhere() const override { return true; }
  absl::Status StartReset(const EpisodeSeed& seed) override {
    seed_ = seed;
    is_reset_ = true;
    return absl::OkStatus();
  }
  absl::Status StartStep(ActionRows actions) override {
    is_reset_ = false;
    words_.clear();
    for (const space::ActionWord* row : actions) words_.push_back(row == nullptr ? space::ActionWord{.i32 = -1} : *row);
    return absl::OkStatus();
  }
  absl::Status Finish(StepWriter& out) override {
    if (is_reset_) return env_->Reset(seed_, out);
    std::vector<const space::ActionWord*> rows;
    for (const space::ActionWord& word : words_) rows.push_back(word.i32 < 0 ? nullptr : &word);
    return env_->Step(rows, out);
  }

 private:
  const std::unique_ptr<MultiAgentEnv> env_;
  EpisodeSeed seed_;
  bool is_reset_ = false;
  std::vector<space::ActionWord> words_;
};

/// As text, what a call brought.
std::string Text(const SlotBuffers& got) {
  std::string text = absl::StrCat(got.all_terminated(0), got.all_truncated(0), " state ", got.state(0, 0)[0]);
  for (int32_t slot = 0; slot < 2; ++slot) {
    absl::StrAppend(&text, " | ", got.observed(0, slot), got.terminated(0, slot), got.truncated(0, slot),
                    got.agent_mask(0, slot), " obs ", got.observation(0, slot)[1], " reward ", got.reward(0, slot),
                    " info ", got.infos(0, slot)[0]);
    for (const uint8_t bit : got.action_mask(0, slot)) absl::StrAppend(&text, " ", static_cast<int>(bit));
  }
  return text;
}

TEST(EnvWrapperTest, WithoutHooksItIsTheEnvironment) {
  Called bare(Everything());
  Called wrapped(Wrapped(Wrapped(Everything())));
  EXPECT_EQ(wrapped.spec().ToString(), bare.spec().ToString());
  for (Called* env : {&bare, &wrapped}) {
    ASSERT_TRUE(env->Reset().ok());
    env->action(0)[0].i32 = 1;
    env->action(1)[0].i32 = 2;
  }
  EXPECT_EQ(Text(wrapped.got()), Text(bare.got()));
  for (int t = 1; t <= 3; ++t) {
    ASSERT_TRUE(bare.Step().ok());
    ASSERT_TRUE(wrapped.Step().ok());
    EXPECT_EQ(Text(wrapped.got()), Text(bare.got())) << t;
  }
  EXPECT_EQ(Text(bare.got()), "01 state 3 | 0001 obs 0.2 reward 0 info nan | 1101 obs 0.3 reward 2 info 31 0 1 1");
  const ConformanceReport report = CheckConformance([] { return Wrapped(Everything()); });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

TEST(EnvWrapperTest, HalvesArePassedOn) {
  EXPECT_FALSE(Wrapped(Everything())->runs_elsewhere());
  EXPECT_EQ(Wrapped(Everything())->StartReset({}).code(), absl::StatusCode::kUnimplemented);
  // Not below CheckedEnv, so that this is about wrappers alone.
  const std::unique_ptr<MultiAgentEnv> env = Wrapped(Wrapped(std::make_unique<Elsewhere>(Everything())));
  Called bare(Everything());
  ASSERT_TRUE(bare.Reset().ok());
  bare.action(0)[0].i32 = 1;
  bare.action(1)[0].i32 = 2;
  ASSERT_TRUE(env->runs_elsewhere());
  SlotBuffers got(env->spec(), 1);
  ASSERT_TRUE(env->StartReset({}).ok());
  ASSERT_TRUE(env->Finish(got.BeginStep(0)).ok());
  EXPECT_EQ(Text(got), Text(bare.got()));
  const space::ActionWord one{.i32 = 1};
  const space::ActionWord two{.i32 = 2};
  ASSERT_TRUE(env->StartStep(std::vector<const space::ActionWord*>{&one, &two}).ok());
  ASSERT_TRUE(env->Finish(got.BeginStep(0)).ok());
  ASSERT_TRUE(bare.Step().ok());
  EXPECT_EQ(Text(got), Text(bare.got()));
}

TEST(EnvWrapperTest, EpisodesThatEndedWithoutAllAreCountedOnceBehindEveryWrapper) {
  const auto forgetful = [] {
    return std::make_unique<ScriptedEnv>(SmallSpec(2), [](int64_t t, ActionRows, StepWriter& out) {
      for (int32_t slot = 0; slot < 2; ++slot) {
        ObserveAs(out, slot, 0);
        if (t == 1) out.TerminateAgent(AgentSlot(slot));
      }
      return absl::OkStatus();
    });
  };
  auto groups = WithAgentGroups(Wrapped(forgetful()), {{.name = "team", .agents = {"agent_0", "agent_1"}}});
  ASSERT_TRUE(groups.ok()) << groups.status();
  std::unique_ptr<MultiAgentEnv> made[] = {forgetful(), Wrapped(Wrapped(forgetful())), *std::move(groups)};
  for (std::unique_ptr<MultiAgentEnv>& env : made) {
    Called checked(std::move(env));
    EXPECT_EQ(checked.env().missing_all_count(), 0);
    for (int episode = 1; episode <= 2; ++episode) {
      ASSERT_TRUE(checked.Reset().ok());
      ASSERT_TRUE(checked.Step().ok());
      EXPECT_TRUE(checked.got().all_terminated(0));
      EXPECT_EQ(checked.env().missing_all_count(), episode);
    }
  }
}

TEST(EnvWrapperTest, TheEnvironmentIsHeldToItsContractOnce) {
  const auto env =
      Wrapped(Wrapped(std::make_unique<ScriptedEnv>(SmallSpec(2), [](int64_t, ActionRows, StepWriter& out) {
        out.AddReward(AgentSlot(1), 1);
        ObserveAs(out, 0, 0);
        return absl::OkStatus();
      })));
  SlotBuffers got(env->spec(), 1);
  const absl::Status status = env->Reset({.env_id = base::EnvId(7)}, got.BeginStep(0));
  EXPECT_EQ(EnvRuleOf(status), EnvRule::kReward);
  EXPECT_EQ(status.message(),
            "environment test/scripted (env 7, episode 0), agent agent_1, step 0: got the reward 1 at Reset");
  EXPECT_EQ(env->Step({}, got.BeginStep(0)).message(), "environment test/scripted: got 0 action rows, expected 2");
}

}  // namespace
}  // namespace troupe::env
