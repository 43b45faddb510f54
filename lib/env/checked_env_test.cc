#include "lib/env/checked_env.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"
#include "lib/env/testing/elsewhere_env.h"
#include "lib/env/testing/scripted_env.h"

namespace troupe::env {
namespace {

using ::testing::HasSubstr;
using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

/// A checked ScriptedEnv with its arrays; every ready agent plays action 1.
class Harness {
 public:
  Harness(EnvSpec spec, ScriptedEnv::Script script, CheckedEnv::Options options = {})
      : env_(std::make_unique<ScriptedEnv>(std::move(spec), std::move(script)), options), buffers_(env_.spec(), 1) {
    rows_.resize(env_.spec().possible_agents.size());
  }

  absl::Status Reset() {
    return env_.Reset({.seed = 1, .env_id = base::EnvId(5), .episode = 2}, buffers_.BeginStep(0));
  }
  absl::Status Step() {
    for (size_t i = 0; i < rows_.size(); ++i)
      rows_[i] = buffers_.ready(0, static_cast<int32_t>(i)) ? &action_ : nullptr;
    return env_.Step(rows_, buffers_.BeginStep(0));
  }
  absl::Status StepWith(ActionRows rows) { return env_.Step(rows, buffers_.BeginStep(0)); }
  /// Reset and Steps until an error or `steps` are made.
  absl::Status Play(int steps) {
    absl::Status status = Reset();
    for (int i = 0; i < steps && status.ok(); ++i) status = Step();
    return status;
  }

  CheckedEnv& env() { return env_; }
  const SlotBuffers& buffers() const { return buffers_; }
  const space::ActionWord* action() const { return &action_; }

 private:
  const space::ActionWord action_{.i32 = 1};
  CheckedEnv env_;
  SlotBuffers buffers_;
  std::vector<const space::ActionWord*> rows_;
};

/// Both agents observe 0 in every step but step 2, in which `fault` speaks too, and the episode ends at step 4.
ScriptedEnv::Script WithFaultAt2(std::function<void(StepWriter&)> fault) {
  return [fault](int64_t t, ActionRows, StepWriter& out) {
    if (t == 2) fault(out);
    if (t != 2) ObserveAs(out, 0, 0);
    if (t != 2) ObserveAs(out, 1, 0);
    if (t == 4) out.TruncateAll();
    return absl::OkStatus();
  };
}

void ExpectBroken(EnvSpec spec, EnvRule rule, const std::string& message, const std::function<void(StepWriter&)>& fault,
                  CheckedEnv::Options options = {}) {
  Harness harness(std::move(spec), WithFaultAt2(fault), options);
  const absl::Status status = harness.Play(4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << message;
  EXPECT_EQ(EnvRuleOf(status), rule) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("environment test/scripted (env 5, episode 2)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 2: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  EXPECT_THAT(std::string(harness.Step().message()), HasSubstr("Step after an error"));
  EXPECT_TRUE(harness.Reset().ok());  // the next episode is not spoiled
  EXPECT_TRUE(harness.Step().ok());
}

TEST(CheckedEnvTest, PassesWhatIsRightUnchanged) {
  EnvSpec spec = SmallSpec(2);
  spec.info_columns = {"a"};
  spec.has_agent_mask = true;
  Harness harness(spec, [](int64_t t, ActionRows actions, StepWriter& out) {
    EXPECT_TRUE(t == 0 || actions[0]->i32 == 1);
    if (t == 1) out.AddReward(AgentSlot(1), 0.5f);
    if (t == 1) out.AddReward(AgentSlot(1), 0.25f);
    ObserveAs(out, 0, 0.25f);
    if (t == 0) ObserveAs(out, 1, 0.5f);
    if (t == 0) out.SetAgentMask(AgentSlot(1), false);
    if (t == 1) out.TruncateAgent(AgentSlot(1));
    if (t == 1) out.SetInfo(AgentSlot(1), 0, 7);
    if (t == 2) out.TerminateAll();
    return absl::OkStatus();
  });
  ASSERT_TRUE(harness.Reset().ok());
  EXPECT_TRUE(harness.buffers().ready(0, 1));
  EXPECT_FALSE(harness.buffers().agent_mask(0, 1));
  EXPECT_EQ(harness.buffers().observation(0, 1)[1], 0.5f);
  ASSERT_TRUE(harness.Step().ok());
  EXPECT_EQ(harness.buffers().reward(0, 1), 0.75f);
  EXPECT_TRUE(harness.buffers().truncated(0, 1));
  EXPECT_EQ(harness.buffers().infos(0, 1)[0], 7);
  EXPECT_FALSE(harness.buffers().ready(0, 1));
  ASSERT_TRUE(harness.Step().ok());
  EXPECT_TRUE(harness.buffers().all_terminated(0));
  EXPECT_EQ(harness.env().missing_all_count(), 0);
}

TEST(CheckedEnvTest, TheCallersMistakes) {
  Harness harness(SmallSpec(2), [](int64_t t, ActionRows, StepWriter& out) {
    ObserveAs(out, static_cast<int32_t>(t % 2), 0);
    if (t == 2) out.TerminateAll();
    return absl::OkStatus();
  });
  absl::Status status = harness.Step();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Step before Reset"));

  ASSERT_TRUE(harness.Reset().ok());
  status = harness.StepWith(std::array<const space::ActionWord*, 2>{harness.action(), harness.action()});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(EnvRuleOf(status), EnvRule::kActions);
  EXPECT_THAT(std::string(status.message()), HasSubstr("agent agent_1, step 1: acted unobserved"));

  ASSERT_TRUE(harness.Reset().ok());
  status = harness.StepWith(std::array<const space::ActionWord*, 2>{nullptr, nullptr});
  EXPECT_THAT(std::string(status.message()), HasSubstr("agent agent_0, step 1: did not act though it was ready"));

  ASSERT_TRUE(harness.Reset().ok());
  EXPECT_THAT(std::string(harness.StepWith({}).message()), HasSubstr("got 0 action rows, expected 2"));

  ASSERT_TRUE(harness.Reset().ok());
  const space::ActionWord bad{.i32 = 3};
  status = harness.StepWith(std::array<const space::ActionWord*, 2>{&bad, nullptr});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("agent agent_0, step 1: action outside Discrete(3): element 0 is 3"));

  ASSERT_TRUE(harness.Play(2).ok());
  status = harness.Step();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 2: Step after the end of the episode"));
}

TEST(CheckedEnvTest, ChecksActionsOfEveryKindOfSpace) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].action_space = *space::Space::Box(0, 1, {2});
  Harness harness(spec, [](int64_t, ActionRows, StepWriter& out) {
    ObserveAs(out, 0, 0);
    return absl::OkStatus();
  });
  ASSERT_TRUE(harness.Reset().ok());
  const std::array<space::ActionWord, 2> good = {space::ActionWord{.f32 = 0.0f}, space::ActionWord{.f32 = 1.0f}};
  EXPECT_TRUE(harness.StepWith(std::array<const space::ActionWord*, 1>{good.data()}).ok());
  const std::array<space::ActionWord, 2> bad = {space::ActionWord{.f32 = 0.0f},
                                                space::ActionWord{.f32 = std::nanf("")}};
  EXPECT_THAT(std::string(harness.StepWith(std::array<const space::ActionWord*, 1>{bad.data()}).message()),
              HasSubstr("element 1 is nan"));
}

TEST(CheckedEnvTest, ObservedAgents) {
  const auto broken = [](const std::string& message, const std::function<void(StepWriter&)>& fault) {
    ExpectBroken(SmallSpec(2), EnvRule::kObservedAgents, message, fault);
  };
  broken("agent slot 2 was observed, expected one below 2", [](StepWriter& out) { ObserveAs(out, 2, 0); });
  broken("agent slot -1 was observed", [](StepWriter& out) { ObserveAs(out, -1, 0); });
  broken("agent agent_1, step 2: was observed twice", [](StepWriter& out) {
    ObserveAs(out, 1, 0);
    ObserveAs(out, 1, 0);
  });
}

TEST(CheckedEnvTest, AnAgentThatIsObservedAfterItsEndReturns) {
  // agent_1 has a last look at its end, returns at step 3 and ends once more; nobody is there after step 5.
  Harness harness(SmallSpec(2), [](int64_t t, ActionRows actions, StepWriter& out) {
    EXPECT_EQ(t > 0 && actions[1] != nullptr, t == 1 || t == 4 || t == 5) << t;
    if (t == 4) out.AddReward(AgentSlot(1), 2);
    if (t < 5) ObserveAs(out, 0, 0);
    if (t != 2) ObserveAs(out, 1, 0);
    if (t == 1) out.TerminateAgent(AgentSlot(1));
    if (t == 5) {
      out.TruncateAgent(AgentSlot(0));
      out.TruncateAgent(AgentSlot(1));
    }
    return absl::OkStatus();
  });
  ASSERT_EQ(harness.Play(4), absl::OkStatus());
  EXPECT_EQ(harness.buffers().reward(0, 1), 2.0f);
  EXPECT_FALSE(harness.buffers().all_done(0));
  ASSERT_EQ(harness.Step(), absl::OkStatus());
  EXPECT_TRUE(harness.buffers().all_truncated(0)) << "both are counted once";

  Harness rewarded(SmallSpec(2), [](int64_t t, ActionRows, StepWriter& out) {
    ObserveAs(out, 0, 0);
    if (t == 1) out.TerminateAgent(AgentSlot(1));
    if (t == 2) out.AddReward(AgentSlot(1), 3);
    ObserveAs(out, 1, 0);
    return absl::OkStatus();
  });
  ASSERT_EQ(rewarded.Play(1), absl::OkStatus());
  EXPECT_THAT(std::string(rewarded.Step().message()),
              HasSubstr("agent agent_1, step 2: got the reward 3 after it was"));
}

TEST(CheckedEnvTest, ObservationValues) {
  const float bads[] = {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  for (const float bad : bads) {
    ExpectBroken(SmallSpec(2), EnvRule::kObservationValue, "agent agent_1, step 2: observation element 0 is ",
                 [bad](StepWriter& out) { ObserveAs(out, 1, bad); });
  }
  const auto outside = [](StepWriter& out) { ObserveAs(out, 1, 1.5f); };
  ExpectBroken(SmallSpec(2), EnvRule::kObservationValue, "observation outside Box(-1, 1, [2]): element 0 is 1.5",
               outside, {.check_bounds = true});
  Harness lenient(SmallSpec(2), WithFaultAt2(outside));
  EXPECT_TRUE(lenient.Play(4).ok());

  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[1].observation_space = *space::Space::Box(0, 9, {3}, tensor::DType::kUint8);
  Harness images(spec,
                 [](int64_t, ActionRows, StepWriter& out) {
                   uint8_t* row = static_cast<uint8_t*>(out.Observe(AgentSlot(1)));
                   row[0] = row[1] = 9;
                   row[2] = 10;
                   return absl::OkStatus();
                 },
                 {.check_bounds = true});
  EXPECT_THAT(std::string(images.Reset().message()), HasSubstr("element 2 is 10"));
}

TEST(CheckedEnvTest, Rewards) {
  const auto broken = [](const std::string& message, const std::function<void(StepWriter&)>& fault) {
    ExpectBroken(SmallSpec(3), EnvRule::kReward, message, fault);
  };
  broken("agent agent_1, step 2: got the reward nan",
         [](StepWriter& out) { out.AddReward(AgentSlot(1), std::nanf("")); });
  broken("agent slot 3 was rewarded", [](StepWriter& out) { out.AddReward(AgentSlot(3), 0); });
  broken("was rewarded after its observation", [](StepWriter& out) {
    ObserveAs(out, 0, 0);
    out.AddReward(AgentSlot(0), 1);
  });
  Harness at_reset(SmallSpec(1), [](int64_t, ActionRows, StepWriter& out) {
    out.AddReward(AgentSlot(0), 1);
    ObserveAs(out, 0, 0);
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(at_reset.Reset().message()), HasSubstr("step 0: got the reward 1 at Reset"));

  // The third agent never comes: the others folded at once.
  Harness early(SmallSpec(3), WithFaultAt2([](StepWriter& out) { out.AddReward(AgentSlot(2), 1); }));
  ASSERT_TRUE(early.Play(2).ok());
  EXPECT_EQ(early.buffers().reward(0, 2), 1.0f);

  // Zeros for everybody mean nothing and do not get through.
  Harness zeros(SmallSpec(2), [](int64_t t, ActionRows, StepWriter& out) {
    out.AddReward(AgentSlot(1), 0);
    ObserveAs(out, 0, 0);
    if (t == 3) out.TerminateAll();
    return absl::OkStatus();
  });
  EXPECT_TRUE(zeros.Play(3).ok());

  Harness late(SmallSpec(2), [](int64_t t, ActionRows, StepWriter& out) {
    if (t == 2) out.AddReward(AgentSlot(1), 2);
    ObserveAs(out, 0, 0);
    if (t == 0) ObserveAs(out, 1, 0);
    if (t == 1) out.TerminateAgent(AgentSlot(1));
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(late.Play(2).message()),
              HasSubstr("agent agent_1, step 2: got the reward 2 after it was done"));
}

TEST(CheckedEnvTest, EndsOfAgentsAndEpisodes) {
  ExpectBroken(SmallSpec(2), EnvRule::kDone, "agent agent_0, step 2: was ended twice", [](StepWriter& out) {
    out.TerminateAgent(AgentSlot(0));
    out.TruncateAgent(AgentSlot(0));
  });
  ExpectBroken(SmallSpec(3), EnvRule::kDone, "agent agent_2, step 2: was ended but never observed",
               [](StepWriter& out) { out.TerminateAgent(AgentSlot(2)); });
  ExpectBroken(SmallSpec(2), EnvRule::kEpisodeEnd, "ended the episode twice", [](StepWriter& out) {
    out.TerminateAll();
    out.TruncateAll();
  });
  Harness empty(SmallSpec(1), [](int64_t, ActionRows, StepWriter&) { return absl::OkStatus(); });
  const absl::Status status = empty.Reset();
  EXPECT_EQ(EnvRuleOf(status), EnvRule::kReset);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Reset observed no agent"));
  Harness dead(SmallSpec(1), [](int64_t, ActionRows, StepWriter& out) {
    ObserveAs(out, 0, 0);
    out.TerminateAll();
    return absl::OkStatus();
  });
  EXPECT_EQ(EnvRuleOf(dead.Reset()), EnvRule::kReset);
}

TEST(CheckedEnvTest, AllDoneWithoutAllEndsTheEpisodeAndIsCounted) {
  for (const bool truncate : {false, true}) {
    Harness harness(SmallSpec(2), [truncate](int64_t t, ActionRows actions, StepWriter& out) {
      for (int32_t slot = 0; slot < 2; ++slot) {
        const bool acts = t > 0 && actions[static_cast<size_t>(slot)] != nullptr;
        if (t == 0 || acts) ObserveAs(out, slot, 0);
        if (acts && t == slot + 1) {
          if (truncate) {
            out.TruncateAgent(AgentSlot(slot));
          } else {
            out.TerminateAgent(AgentSlot(slot));
          }
        }
      }
      return absl::OkStatus();
    });
    for (int episode = 1; episode <= 2; ++episode) {
      ASSERT_TRUE(harness.Play(1).ok());
      EXPECT_FALSE(harness.buffers().all_done(0));
      ASSERT_TRUE(harness.Step().ok());
      EXPECT_EQ(harness.buffers().all_truncated(0), truncate);
      EXPECT_EQ(harness.buffers().all_terminated(0), !truncate);
      EXPECT_EQ(harness.env().missing_all_count(), episode);
      EXPECT_THAT(std::string(harness.Step().message()), HasSubstr("after the end"));
    }
  }
}

TEST(CheckedEnvTest, ActionMasks) {
  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[1].has_action_mask = true;
  const auto script = [](int64_t bad_step, uint8_t byte, bool ends) {
    return [=](int64_t t, ActionRows, StepWriter& out) {
      ObserveAs(out, 0, 0);
      ObserveAs(out, 1, 0);
      uint8_t* mask = out.ActionMask(AgentSlot(1));
      for (int i = 0; i < 3; ++i) mask[i] = t == bad_step ? byte : 1;
      if (t == bad_step && ends) out.TruncateAll();
      return absl::OkStatus();
    };
  };
  const absl::Status none = Harness(spec, script(1, 0, false)).Play(2);
  EXPECT_EQ(EnvRuleOf(none), EnvRule::kActionMask);
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("agent agent_1, step 1: action mask allows nothing in bytes 0 to 2"));
  EXPECT_TRUE(Harness(spec, script(1, 0, true)).Play(1).ok());  // nobody acts on the last one
  EXPECT_THAT(std::string(Harness(spec, script(1, 2, false)).Play(1).message()),
              HasSubstr("action mask byte 0 is 2, expected 0 or 1"));

  Harness without(spec, [](int64_t, ActionRows, StepWriter& out) {
    ObserveAs(out, 1, 0);
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(without.Reset().message()), HasSubstr("was observed without the action mask"));
  Harness undeclared(spec, [](int64_t, ActionRows, StepWriter& out) {
    ObserveAs(out, 0, 0);
    out.ActionMask(AgentSlot(0))[0] = 1;
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(undeclared.Reset().message()), HasSubstr("its spec declares none"));
  Harness early(spec, [](int64_t, ActionRows, StepWriter& out) {
    out.ActionMask(AgentSlot(1))[0] = 1;
    ObserveAs(out, 1, 0);
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(early.Reset().message()), HasSubstr("action mask before its observation"));
}

TEST(CheckedEnvTest, States) {
  const auto play = [](StateKind kind, bool give, float value) {
    EnvSpec spec = SmallSpec(2);
    spec.state_kind = kind;
    if (kind != StateKind::kNone) spec.state_space = *space::Space::Box(0, 1, {3});
    Harness harness(spec,
                    [=](int64_t, ActionRows, StepWriter& out) {
                      ObserveAs(out, 1, 0);
                      if (give) std::fill_n(out.State(AgentSlot(1)), 3, value);
                      return absl::OkStatus();
                    },
                    {.check_bounds = true});
    return harness.Play(1);
  };
  EXPECT_TRUE(play(StateKind::kNone, false, 0).ok());
  EXPECT_TRUE(play(StateKind::kPerEnv, true, 1).ok());
  EXPECT_TRUE(play(StateKind::kPerAgent, true, 1).ok());
  EXPECT_THAT(std::string(play(StateKind::kNone, true, 0).message()),
              HasSubstr("gave a global state, but its spec declares none"));
  EXPECT_THAT(std::string(play(StateKind::kPerEnv, false, 0).message()), HasSubstr("gave no global state"));
  EXPECT_THAT(std::string(play(StateKind::kPerAgent, false, 0).message()),
              HasSubstr("agent agent_1, step 0: was observed without its global state"));
  EXPECT_THAT(std::string(play(StateKind::kPerEnv, true, std::nanf("")).message()),
              HasSubstr("element 0 of the global state is nan"));
  EXPECT_THAT(std::string(play(StateKind::kPerAgent, true, 2).message()),
              HasSubstr("its global state is outside Box(0, 1, [3])"));
  EXPECT_EQ(EnvRuleOf(play(StateKind::kPerAgent, true, 2)), EnvRule::kState);
}

TEST(CheckedEnvTest, InfosAndAgentMasks) {
  ExpectBroken(SmallSpec(2), EnvRule::kInfo, "was given an agent mask, but the spec declares none",
               [](StepWriter& out) {
                 ObserveAs(out, 0, 0);
                 out.SetAgentMask(AgentSlot(0), false);
               });
  ExpectBroken(SmallSpec(2), EnvRule::kInfo, "agent agent_0, step 2: was given info column 0, expected one of 0",
               [](StepWriter& out) { out.SetInfo(AgentSlot(0), 0, 1); });
  EnvSpec spec = SmallSpec(2);
  spec.has_agent_mask = true;
  ExpectBroken(spec, EnvRule::kInfo, "agent mask before its observation",
               [](StepWriter& out) { out.SetAgentMask(AgentSlot(0), false); });
}

TEST(CheckedEnvTest, ExceptionsAndErrorsOfTheEnvironment) {
  const auto play = [](const ScriptedEnv::Script& script) {
    Harness harness(SmallSpec(1), script);
    return harness.Play(1);
  };
  absl::Status status = play([](int64_t t, ActionRows, StepWriter& out) {
    ObserveAs(out, 0, 0);
    if (t == 1) throw std::runtime_error("no more\nluck");
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(EnvRuleOf(status), EnvRule::kNoError);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("environment test/scripted (env 5, episode 2), step 1: threw no more"));
  EXPECT_THAT(std::string(play([](int64_t, ActionRows, StepWriter&) -> absl::Status { throw 3; }).message()),
              HasSubstr("step 0: threw something"));
  status = play([](int64_t, ActionRows, StepWriter&) { return absl::UnavailableError("simulator gone"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 0: simulator gone"));
}

TEST(CheckedEnvTest, KeepsTheRuleOfWhatWasCheckedInside) {
  // Where it happened is said once.
  auto inner = std::make_unique<CheckedEnv>(
      std::make_unique<ScriptedEnv>(SmallSpec(1), [](int64_t, ActionRows, StepWriter& out) {
        out.ObserveFloat(AgentSlot(0))[0] = std::numeric_limits<float>::quiet_NaN();
        return absl::OkStatus();
      }));
  CheckedEnv outer(std::move(inner));
  SlotBuffers buffers(outer.spec(), 1);
  const absl::Status status = outer.Reset({.seed = 1}, buffers.BeginStep(0));
  EXPECT_EQ(EnvRuleOf(status), EnvRule::kObservationValue);
  const std::string text(status.message());
  EXPECT_EQ(text.find("environment test/scripted ("), 0u) << text;
  EXPECT_EQ(text.find("environment", 1), std::string::npos) << text;

  // A rule alone, as plug-ins give it, gets its place.
  CheckedEnv bare(std::make_unique<ScriptedEnv>(SmallSpec(1), [](int64_t, ActionRows, StepWriter&) {
    return WithEnvRule(absl::InternalError("slot 9 does not exist"), EnvRule::kObservedAgents);
  }));
  const absl::Status refused = bare.Reset({.seed = 1}, buffers.BeginStep(0));
  EXPECT_EQ(EnvRuleOf(refused), EnvRule::kObservedAgents);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("environment test/scripted ("));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("slot 9 does not exist"));
}

TEST(CheckedEnvTest, HalvesAreHeldToTheContractToo) {
  const ScriptedEnv::Script script = [](int64_t t, ActionRows, StepWriter& out) {
    if (t == 2) out.AddReward(AgentSlot(0), std::numeric_limits<float>::quiet_NaN());
    ObserveAs(out, 0, 0);
    return absl::OkStatus();
  };
  testing::ElsewhereEnv::Calls calls;
  CheckedEnv env(std::make_unique<testing::ElsewhereEnv>(std::make_unique<ScriptedEnv>(SmallSpec(1), script), calls));
  ASSERT_TRUE(env.runs_elsewhere());
  SlotBuffers buffers(env.spec(), 1);
  const space::ActionWord action{.i32 = 1};
  const space::ActionWord* const rows[] = {&action};
  const space::ActionWord outside{.i32 = 7};
  const space::ActionWord* const bad_rows[] = {&outside};

  EXPECT_EQ(env.Finish(buffers.BeginStep(0)).code(), absl::StatusCode::kFailedPrecondition) << "nothing was started";
  EXPECT_EQ(env.StartStep(rows).code(), absl::StatusCode::kFailedPrecondition) << "before Reset";
  ASSERT_TRUE(env.StartReset({.seed = 1}).ok());
  EXPECT_THAT(std::string(env.StartReset({.seed = 1}).message()), HasSubstr("expected Finish"));
  EXPECT_THAT(std::string(env.StartStep(rows).message()), HasSubstr("expected Finish"));
  ASSERT_TRUE(env.Finish(buffers.BeginStep(0)).ok());
  EXPECT_EQ(env.StartStep(bad_rows).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(calls.in_flight, 0) << "a bad action does not reach the environment";
  ASSERT_TRUE(env.Reset({.seed = 1}, buffers.BeginStep(0)).ok());
  ASSERT_TRUE(env.StartStep(rows).ok());
  ASSERT_TRUE(env.Finish(buffers.BeginStep(0)).ok());
  ASSERT_TRUE(env.StartStep(rows).ok());
  const absl::Status nan = env.Finish(buffers.BeginStep(0));
  EXPECT_EQ(EnvRuleOf(nan), EnvRule::kReward) << nan;
  EXPECT_EQ(calls.out_of_order, 0);

  ScriptedEnv here(SmallSpec(1), script);
  EXPECT_EQ(here.StartReset({}).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(here.StartStep(rows).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(here.Finish(buffers.BeginStep(0)).code(), absl::StatusCode::kUnimplemented);
}

TEST(CheckedEnvTest, CountsObservationsOutsideTheirSpaceAndTellsTheFirstOfEachAgent) {
  const auto gives = [](float value) {
    return [value](int64_t, ActionRows, StepWriter& out) {
      ObserveAs(out, 0, 0);
      ObserveAs(out, 1, value);
      return absl::OkStatus();
    };
  };
  const EnvSpec spec = SmallSpec(2);
  Harness counts(spec, gives(2.5f), {.count_outside_space = true});
  ASSERT_TRUE(counts.Play(4).ok()) << "nothing ends for it";
  EXPECT_EQ(counts.env().outside_space_count(), 5);
  ASSERT_TRUE(counts.env().has_outside_space());
  const std::vector<CheckedEnv::OutsideSpace> told = counts.env().TakeOutsideSpace();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].agent, AgentSlot(1));
  EXPECT_THAT(told[0].message, HasSubstr("(env 5, episode 2)"));
  EXPECT_THAT(told[0].message, HasSubstr("step 0: element 0 is 2.5, expected a finite number in [-1, 1]"));
  EXPECT_FALSE(counts.env().has_outside_space());

  Harness inside(spec, gives(1.0f), {.count_outside_space = true});
  ASSERT_TRUE(inside.Play(4).ok());
  EXPECT_EQ(inside.env().outside_space_count(), 0) << "the bounds are inside";
  Harness unasked(spec, gives(2.5f));
  ASSERT_TRUE(unasked.Play(4).ok());
  EXPECT_EQ(unasked.env().outside_space_count(), 0);
}

TEST(CheckedEnvTest, CountsOutsideSpacesOfEveryKindAndSkipsThoseWithoutBounds) {
  const double infinity = std::numeric_limits<double>::infinity();
  const space::Space pair = *space::Space::Tuple({*space::Space::Discrete(2), *space::Space::Box(0, infinity, {1})});
  const auto count = [](const space::Space& space, std::array<float, 3> row) {
    EnvSpec spec = SmallSpec(2);
    for (AgentSpec& agent : spec.possible_agents) agent.observation_space = space;
    Harness harness(spec,
                    [row](int64_t, ActionRows, StepWriter& out) {
                      for (int32_t slot : {0, 1}) std::memcpy(out.Observe(AgentSlot(slot)), row.data(), sizeof(row));
                      return absl::OkStatus();
                    },
                    {.count_outside_space = true});
    EXPECT_TRUE(harness.Reset().ok());
    return harness.env().outside_space_count();
  };
  EXPECT_EQ(count(pair, {0, 1, 1e9f}), 0);
  EXPECT_EQ(count(pair, {0, 2, 0}), 1) << "no one-hot; a call counts once, whatever its agents";
  EXPECT_EQ(count(pair, {1, 0, -0.5f}), 1);
  EXPECT_EQ(count(*space::Space::Box(-infinity, infinity, {3}), {1e30f, -1e30f, 0}), 0);
}

}  // namespace
}  // namespace troupe::env
