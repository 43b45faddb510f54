// Mapping functions where they are asked: what they are told, and what their errors cost.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/evaluator.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

/// Two agents, two policies of one shape; who plays whom is said by a function.
RolloutConfig WithFunction(const std::string& function) {
  const ScriptedOptions options = {.agents = 2};
  RolloutConfig config = ScriptedConfig(
      options, [options] { return MakeRandomEnv(options, nullptr); }, 2);
  const std::vector<policy::MappingRule> rules = {{"*", {}, function}};
  const policy::BySlot<policy::PolicyId> ids = {config.policies[policy::PolicySlot(0)].id,
                                                config.policies[policy::PolicySlot(1)].id};
  auto mapping = policy::MakeRuleMapping(rules, {"agent_0", "agent_1"}, ids);
  EXPECT_TRUE(mapping.ok()) << mapping.status();
  config.mapping = *std::move(mapping);
  return config;
}

TEST(MappingFunctionRolloutTest, AFailureCostsItsEpisodeAndNothingElse) {
  for (const std::string function : {"testing/raises", "testing/unknown_policy"}) {
    SCOPED_TRACE(function);
    Rig rig(WithFunction(function));
    ASSERT_TRUE(rig.Run(ScriptedGrant(3, 40)).ok());
    int64_t steps = 0;
    std::set<std::pair<base::EnvId, uint32_t>> episodes;
    for (const auto& fragment : rig.sink.fragments) {
      steps += fragment->num_env_steps;
      for (const sample::FinishedEpisode& episode : fragment->finished)
        episodes.insert({episode.env_id, episode.episode});
    }
    EXPECT_EQ(steps, 3 * 40) << "the grant is full";
    EXPECT_GT(episodes.size(), 3u);
    for (const auto& [env_id, episode] : episodes) {
      EXPECT_EQ((env_id.value() + episode) % 2, 0u) << "the function fails in the others";
    }
    EXPECT_GT(rig.collector->stats().env_errors, 3) << "counted as episodes that failed";
  }
}

/// Gives every agent one slot, whatever it is.
class BadMapping final : public policy::PolicyMapping {
 public:
  explicit BadMapping(int32_t slot) : slot_(slot) {}
  absl::StatusOr<policy::PolicySlot> Map(const base::AgentId&, base::AgentSlot,
                                         const policy::EpisodeInfo&) const override {
    return policy::PolicySlot(slot_);
  }

 private:
  const int32_t slot_;
};

TEST(MappingFunctionRolloutTest, OneThatAlwaysFailsEndsTheGrantWithItsError) {
  const ScriptedOptions options = {.agents = 2};
  const std::vector<std::pair<int32_t, std::string>> cases = {
      {-1, "got policy slot -1, expected 0 to 1"},
      {2, "got policy slot 2, expected 0 to 1"},
      {1, "got policy \"policy_1\", which has another observation or action space"},
  };
  for (const auto& [slot, text] : cases) {
    RolloutConfig config = ScriptedConfig(
        options, [options] { return MakeRandomEnv(options, nullptr); }, 2);
    config.policies[policy::PolicySlot(1)].action_space = *space::Space::Discrete(4);
    config.mapping = std::make_shared<BadMapping>(slot);
    Rig rig(config);
    const absl::Status status = rig.Run(ScriptedGrant(1, 1000));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("100 times in a row: policy_mapping of agent \"agent_"),
              std::string::npos)
        << status;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
  }
}

/// Keeps what it is told.
class Recorder final : public policy::PolicyMapping {
 public:
  absl::StatusOr<policy::PolicySlot> Map(const base::AgentId& agent, base::AgentSlot slot,
                                         const policy::EpisodeInfo& episode) const override {
    if (slot == base::AgentSlot(1) && !episode.agents.empty()) {
      told_.insert(absl::StrCat(agent.value(), " seed ", episode.seed, " worker ", episode.worker, " ",
                                episode.env_args[0].name, "=", episode.env_args[0].value, " after agent ",
                                episode.agents[0].slot.value(), " with policy ", episode.agents[0].policy.value()));
    }
    return policy::PolicySlot(1 - slot.value());
  }
  const std::set<std::string>& told() const { return told_; }

 private:
  mutable std::set<std::string> told_;
};

TEST(MappingFunctionRolloutTest, IsToldOfTheEpisodeAndTheWorker) {
  const ScriptedOptions options = {.agents = 2};
  RolloutConfig config = ScriptedConfig(
      options, [options] { return MakeRandomEnv(options, nullptr); }, 2);
  config.options.worker = 3;
  config.options.env_args = {{"N", "5"}};
  const auto recorder = std::make_shared<Recorder>();
  config.mapping = recorder;
  Rig rig(config);
  ASSERT_TRUE(rig.Run(ScriptedGrant(2, 100)).ok());
  EXPECT_EQ(recorder->told(), (std::set<std::string>{"agent_1 seed 42 worker 3 N=5 after agent 0 with policy 1"}));
}

TEST(MappingFunctionRolloutTest, AnEvaluationSaysWhy) {
  const RolloutConfig config = WithFunction("testing/raises");
  auto evaluator = Evaluator::Create(config, 2);
  ASSERT_TRUE(evaluator.ok());
  EvaluationRequest request;
  request.episodes = 4;
  EXPECT_EQ((*evaluator)->Run(request, ScriptedWeights(config, 1)).status(),
            absl::InternalError("mapping function \"testing/raises\": there is nobody to play"));
}

}  // namespace
}  // namespace troupe::rollout
