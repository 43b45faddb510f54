#include "lib/env/dict_env.h"

#include <functional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/checked_env.h"
#include "lib/env/conformance.h"
#include "lib/env/slot_buffers.h"
#include "lib/env/testing/scripted_env.h"

namespace troupe::env {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::SmallSpec;

using DictActions = std::map<std::string, std::vector<space::ActionWord>>;

/// The example of RLlib's documentation in small: agent_1 comes at t = 1, agent_0 leaves at t = 2, all ends at t = 3.
class Traffic final : public DictEnv {
 public:
  using Change = std::function<void(int64_t t, DictStep& step)>;
  explicit Traffic(Change change = {}) : spec_(MakeSpec()), change_(std::move(change)) {}

  const EnvSpec& spec() const override { return spec_; }
  absl::StatusOr<DictStep> Reset(const EpisodeSeed&) override {
    t_ = 0;
    return Make();
  }
  absl::StatusOr<DictStep> Step(const DictActions& actions) override {
    ++t_;
    actions_ = actions;
    return Make();
  }
  const DictActions& actions() const { return actions_; }

 private:
  static EnvSpec MakeSpec() {
    EnvSpec spec = SmallSpec(2);
    spec.state_kind = StateKind::kPerEnv;
    spec.state_space = *space::Space::Box(0, 10, {1});
    spec.possible_agents[1].has_action_mask = true;
    spec.info_columns = {"speed"};
    spec.max_episode_steps = 3;
    return spec;
  }
  DictStep Make() const {
    DictStep step;
    if (t_ < 3) step.observations["agent_0"] = {0.1f, 0.2f};
    if (t_ >= 1) step.observations["agent_1"] = {0.5f, 0.5f};
    if (t_ == 3) step.observations.erase("agent_0");
    if (t_ >= 1) step.action_masks["agent_1"] = {0, 1, 1};
    step.states["__all__"] = {static_cast<float>(t_)};
    // Rewards and flags for everybody at any time, as RLlib's environments give them.
    step.rewards = {{"agent_0", t_ <= 2 ? 1.0 : 0.0}, {"agent_1", t_ >= 2 ? 2.0 : 0.0}};
    step.terminateds = {{"agent_0", t_ >= 2}, {"agent_1", false}, {"__all__", false}};
    step.truncateds = {{"__all__", t_ == 3}};
    step.infos["agent_1"] = {{"speed", 30.0}, {"undeclared", 1.0}};
    if (change_) change_(t_, step);
    return step;
  }

  const EnvSpec spec_;
  const Change change_;
  int64_t t_ = 0;
  DictActions actions_;
};

TEST(DictEnvTest, IsAMultiAgentEnv) {
  auto traffic = std::make_unique<Traffic>();
  Traffic* raw = traffic.get();
  CheckedEnv env(MakeMultiAgentEnv(std::move(traffic)), {.check_bounds = true});
  SlotBuffers buffers(env.spec(), 1);
  const space::ActionWord one{.i32 = 1};
  const auto step = [&] {
    const std::array<const space::ActionWord*, 2> rows = {buffers.ready(0, 0) ? &one : nullptr,
                                                          buffers.ready(0, 1) ? &one : nullptr};
    return env.Step(rows, buffers.BeginStep(0));
  };
  ASSERT_TRUE(env.Reset({}, buffers.BeginStep(0)).ok());
  EXPECT_TRUE(buffers.ready(0, 0));
  EXPECT_FALSE(buffers.ready(0, 1));
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(raw->actions().size(), 1u);
  EXPECT_EQ(buffers.reward(0, 0), 1.0f);
  EXPECT_THAT(buffers.action_mask(0, 1), ElementsAre(0, 1, 1));
  EXPECT_EQ(buffers.state(0, 0)[0], 1.0f);
  EXPECT_EQ(buffers.infos(0, 1)[0], 30.0);
  ASSERT_TRUE(step().ok());
  EXPECT_EQ(raw->actions().size(), 2u);
  EXPECT_TRUE(buffers.terminated(0, 0));
  const absl::Status last = step();
  ASSERT_TRUE(last.ok()) << last;
  EXPECT_TRUE(buffers.all_truncated(0));
  EXPECT_EQ(env.missing_all_count(), 0);
}

TEST(DictEnvTest, BothWaysKeepTheContract) {
  const ConformanceReport one = CheckConformance([] { return MakeMultiAgentEnv(std::make_unique<Traffic>()); });
  EXPECT_TRUE(one.ok()) << one.ToString();
  const ConformanceReport there_and_back =
      CheckConformance([] { return MakeMultiAgentEnv(MakeDictEnv(MakeMultiAgentEnv(std::make_unique<Traffic>()))); });
  EXPECT_TRUE(there_and_back.ok()) << there_and_back.ToString();
}

TEST(DictEnvTest, DictFormOfASlotEnvironment) {
  std::unique_ptr<DictEnv> env = MakeDictEnv(MakeMultiAgentEnv(std::make_unique<Traffic>()));
  absl::StatusOr<DictStep> step = env->Reset({});
  ASSERT_TRUE(step.ok());
  EXPECT_THAT(step->observations, ElementsAre(Pair("agent_0", ElementsAre(0.1f, 0.2f))));
  EXPECT_THAT(step->states, ElementsAre(Pair("__all__", ElementsAre(0.0f))));
  EXPECT_THAT(step->terminateds, ElementsAre(Pair("__all__", false)));

  const std::vector<space::ActionWord> action = {{.i32 = 1}};
  EXPECT_THAT(std::string(env->Step({}).status().message()), HasSubstr("agent agent_0 is ready, but has no action"));
  EXPECT_THAT(std::string(env->Step({{"agent_0", action}, {"agent_1", action}}).status().message()),
              HasSubstr("agent_1 acted, but is not ready"));
  EXPECT_THAT(std::string(env->Step({{"agent_9", action}}).status().message()), HasSubstr("unknown agent 'agent_9'"));
  EXPECT_THAT(std::string(env->Step({{"agent_0", {}}}).status().message()), HasSubstr("0 words, expected 1"));

  step = env->Step({{"agent_0", action}});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_THAT(step->rewards, ElementsAre(Pair("agent_0", 1.0), Pair("agent_1", 0.0)));
  EXPECT_THAT(step->action_masks, ElementsAre(Pair("agent_1", ElementsAre(0, 1, 1))));
  EXPECT_EQ(step->infos["agent_1"]["speed"], 30.0);
  step = env->Step({{"agent_0", action}, {"agent_1", action}});
  ASSERT_TRUE(step.ok());
  EXPECT_THAT(step->terminateds, ElementsAre(Pair("__all__", false), Pair("agent_0", true)));
  step = env->Step({{"agent_1", action}});
  ASSERT_TRUE(step.ok());
  EXPECT_TRUE(step->truncateds["__all__"]);
}

TEST(DictEnvTest, BadMapsAreErrorsOfTheEnvironment) {
  const auto reset_error = [](const Traffic::Change& change) {
    std::unique_ptr<MultiAgentEnv> env = MakeMultiAgentEnv(std::make_unique<Traffic>(change));
    SlotBuffers buffers(env->spec(), 1);
    const absl::Status status = env->Reset({}, buffers.BeginStep(0));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    return std::string(status.message());
  };
  EXPECT_THAT(reset_error([](int64_t, DictStep& s) {
                s.observations["agent_7"] = {0, 0};
              }),
              HasSubstr("observations hold the unknown agent 'agent_7'"));
  EXPECT_THAT(reset_error([](int64_t, DictStep& s) {
                s.observations["__all__"] = {0, 0};
              }),
              HasSubstr("unknown agent '__all__'"));
  EXPECT_THAT(reset_error([](int64_t, DictStep& s) { s.terminateds["agent_7"] = true; }),
              HasSubstr("terminateds hold the unknown agent"));
  EXPECT_THAT(reset_error([](int64_t, DictStep& s) { s.observations["agent_0"] = {0}; }),
              HasSubstr("observation has 1 elements, expected 2"));
  EXPECT_THAT(reset_error([](int64_t, DictStep& s) {
                s.observations["agent_1"] = {0, 0};
              }),
              HasSubstr("action mask has 0 elements, expected 3"));
  EXPECT_THAT(reset_error([](int64_t, DictStep& s) { s.states.clear(); }),
              HasSubstr("state of __all__ has 0 elements, expected 1"));
}

/// One env step for two agents; `change` says what it brings.
SlotBuffers* StepOnce(const Traffic::Change& change, std::unique_ptr<SlotBuffers>* got) {
  CheckedEnv env(MakeMultiAgentEnv(std::make_unique<Traffic>([change](int64_t t, DictStep& step) {
    step.terminateds.clear();
    step.truncateds.clear();
    step.rewards.clear();
    step.observations = {{"agent_0", {0, 0}}, {"agent_1", {0, 0}}};
    step.action_masks["agent_1"] = {0, 1, 1};
    if (t == 1) change(t, step);
  })));
  static const EnvSpec* const spec = new EnvSpec(env.spec());
  *got = std::make_unique<SlotBuffers>(*spec, 1);
  EXPECT_TRUE(env.Reset({}, (*got)->BeginStep(0)).ok());
  const space::ActionWord one{.i32 = 1};
  const absl::Status status = env.Step(std::vector<const space::ActionWord*>{&one, &one}, (*got)->BeginStep(0));
  EXPECT_TRUE(status.ok()) << status;
  return got->get();
}

TEST(DictEnvTest, OldStyleDones) {
  std::unique_ptr<SlotBuffers> got;
  StepOnce([](int64_t, DictStep& s) { s.dones = {{"agent_0", true}, {"agent_1", false}, {"__all__", false}}; }, &got);
  EXPECT_TRUE(got->terminated(0, 0));
  EXPECT_FALSE(got->done(0, 1));
  EXPECT_FALSE(got->all_done(0));
  StepOnce(
      [](int64_t, DictStep& s) {
        s.dones = {{"agent_0", true}, {"agent_1", true}, {"__all__", true}};
        s.infos["agent_0"][DictStep::kTimeLimit] = 1;
        s.infos["agent_1"][DictStep::kTimeLimit] = 1;
      },
      &got);
  EXPECT_TRUE(got->truncated(0, 0));
  EXPECT_TRUE(got->all_truncated(0));
  EXPECT_FALSE(got->all_terminated(0));
  // One of them came to an end of its own: the episode did.
  StepOnce(
      [](int64_t, DictStep& s) {
        s.dones = {{"agent_0", true}, {"agent_1", true}, {"__all__", true}};
        s.infos["agent_1"][DictStep::kTimeLimit] = 1;
      },
      &got);
  EXPECT_TRUE(got->terminated(0, 0));
  EXPECT_TRUE(got->truncated(0, 1));
  EXPECT_TRUE(got->all_terminated(0));
  StepOnce([](int64_t, DictStep& s) { s.dones = {{"__all__", true}}; }, &got);
  EXPECT_TRUE(got->all_terminated(0));
  // The limit may be said of agents that `dones` does not name.
  StepOnce(
      [](int64_t, DictStep& s) {
        s.dones = {{"__all__", true}};
        s.infos["agent_0"][DictStep::kTimeLimit] = 1;
        s.infos["agent_1"][DictStep::kTimeLimit] = 1;
      },
      &got);
  EXPECT_TRUE(got->all_truncated(0));
  EXPECT_FALSE(got->all_terminated(0));
}

TEST(DictEnvTest, AbsentRewardsAndAgentsThatNeverAct) {
  // agent_1 is observed and done in the same step; nobody gets a reward.
  CheckedEnv env(MakeMultiAgentEnv(std::make_unique<Traffic>([](int64_t t, DictStep& step) {
    step.rewards.clear();
    step.terminateds = {{"agent_1", t == 1}, {"__all__", t == 2}};
    step.truncateds.clear();
    step.observations = {{"agent_0", {0, 0}}};
    if (t == 1) step.observations["agent_1"] = {0.5f, 0.5f};
  })));
  SlotBuffers got(env.spec(), 1);
  const space::ActionWord one{.i32 = 1};
  const std::vector<const space::ActionWord*> actions = {&one, nullptr};
  ASSERT_TRUE(env.Reset({}, got.BeginStep(0)).ok());
  ASSERT_TRUE(env.Step(actions, got.BeginStep(0)).ok());
  EXPECT_TRUE(got.observed(0, 1));
  EXPECT_TRUE(got.terminated(0, 1));
  EXPECT_FALSE(got.ready(0, 1));
  EXPECT_EQ(got.reward(0, 0), 0.0f);
  const absl::Status last = env.Step(actions, got.BeginStep(0));
  ASSERT_TRUE(last.ok()) << last;
  EXPECT_TRUE(got.all_terminated(0));
}

}  // namespace
}  // namespace troupe::env
