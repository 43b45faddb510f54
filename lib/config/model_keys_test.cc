// What the keys of `model` make of a policy's networks.

#include <algorithm>
#include <string>
#include <vector>

#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_spec.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::CoreKind;
using policy::CoreSpec;
using Sizes = std::vector<int64_t>;

using ModelKeysTest = ResolveFixture;

TEST_F(ModelKeysTest, NetworksHaveNoCoreByDefault) {
  const ResolvedRun run = Resolve("env: {name: team}\nmodel: {core_size: 7, core_layers: 3, max_seq_len: 5}");
  const policy::PolicySpec& spec = run.policies[0];
  EXPECT_EQ(spec.actor.core, CoreSpec());
  EXPECT_EQ(spec.critic().core, CoreSpec());
  EXPECT_FALSE(spec.remembers());
  EXPECT_EQ(spec.sequence_length, 0) << "which nothing reads";
  EXPECT_EQ(spec.ToString(), Resolve("env: {name: team}").policies[0].ToString()) << "checkpoints of before go on";
}

TEST_F(ModelKeysTest, ACoreStandsBetweenEncoderAndHead) {
  const ResolvedRun run = Resolve(R"(
env: {name: team}
model:
  {actor_core: gru, critic_core: lstm, core_size: 12, core_layers: 2, actor_hidden_sizes: [9], critic_hidden_sizes: [],
   actor_head_hidden_sizes: [6, 5], max_seq_len: 11}
)");
  const policy::PolicySpec& spec = run.policies[0];
  EXPECT_EQ(spec.actor.hidden_sizes, Sizes{9});
  EXPECT_EQ(spec.actor.core, (CoreSpec{CoreKind::kGru, 12, 2}));
  EXPECT_EQ(spec.actor.head_hidden_sizes, (Sizes{6, 5}));
  EXPECT_EQ(spec.critic().hidden_sizes, Sizes());
  EXPECT_EQ(spec.critic().core, (CoreSpec{CoreKind::kLstm, 12, 2}));
  EXPECT_EQ(spec.critic().head_hidden_sizes, Sizes());
  EXPECT_EQ(spec.sequence_length, 11);
  EXPECT_EQ(spec.actor_state_size(), 24);
  EXPECT_EQ(spec.critic_input(), policy::NetworkInput::kJointObservation);
}

TEST_F(ModelKeysTest, OneOfTheTwoMayRemember) {
  const ResolvedRun actor = Resolve("env: {name: team}\nmodel: {actor_core: lstm}");
  EXPECT_EQ(actor.policies[0].actor.core, (CoreSpec{CoreKind::kLstm, 64, 1}));
  EXPECT_FALSE(actor.policies[0].critic().core.remembers());
  EXPECT_EQ(actor.policies[0].sequence_length, 20);
  const ResolvedRun critic = Resolve("env: {name: team}\nmodel: {critic_core: gru}");
  EXPECT_EQ(critic.policies[0].actor_state_size(), 0);
  EXPECT_TRUE(critic.policies[0].remembers());
  EXPECT_EQ(critic.policies[0].sequence_length, 20);
}

TEST_F(ModelKeysTest, PoliciesAndAgentsMayDiffer) {
  const ResolvedRun run = Resolve(R"(
env: {name: mixed}
model: {actor_core: gru, actor_head_hidden_sizes: [8], core_size: 16, max_seq_len: 10}
multi_agent:
  policies:
    wolves: {model: {actor_core: none, actor_head_hidden_sizes: []}}
    sheep: {model: {core_size: 24, actor_hidden_sizes: []}}
  policy_mapping: {"wolf_*": wolves, "*": sheep}
  agents: {sheep: {model: {actor_core: lstm, max_seq_len: 5}}, "*": {}}
)");
  EXPECT_FALSE(run.policies[0].remembers());
  EXPECT_EQ(run.policies[0].actor.head_hidden_sizes, Sizes());
  EXPECT_EQ(run.policies[0].sequence_length, 0);
  EXPECT_EQ(run.policies[1].actor.core, (CoreSpec{CoreKind::kLstm, 24, 1}));
  EXPECT_EQ(run.policies[1].actor.hidden_sizes, Sizes());
  EXPECT_EQ(run.policies[1].actor.head_hidden_sizes, Sizes{8});
  EXPECT_EQ(run.policies[1].sequence_length, 5);
  // A worker makes the same networks of what it is told.
  const auto told = RunConfig::FromYaml(WelcomeYaml(run.config), "welcome");
  ASSERT_TRUE(told.ok()) << told.status();
  const auto worker = ResolveRun(*told, registry_);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->schema.WorkerHash(), run.schema.WorkerHash());
  for (const size_t slot : {0, 1}) EXPECT_EQ(worker->policies[slot].ToString(), run.policies[slot].ToString());
}

TEST_F(ModelKeysTest, LayersThatNeedACoreAreErrorsAtTheirKey) {
  const std::string env = "env: {name: mixed}\n";
  EXPECT_EQ(
      ErrorOf(env + "model: {actor_head_hidden_sizes: [32, 16]}\nalgorithm: {use_parameter_sharing: false}"),
      "run.yaml:2:34: model.actor_head_hidden_sizes: got [32, 16], but the actor of policy \"wolf_0\" has no core "
      "that they could stand behind; expected [], or model.actor_core: gru or lstm");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmodel: {actor_core: gru, critic_hidden_sizes: []}"),
            "run.yaml:2:47: model.critic_hidden_sizes: got [], but the critic of policy \"default_policy\" has no core "
            "that could read its inputs; expected 1 to 8 layers, or model.critic_core: gru or lstm");
  const std::string mapped =
      env + "multi_agent:\n  policy_mapping: {\"wolf_*\": wolves, \"*\": sheep}\n  policies: {wolves: {}, sheep: ";
  EXPECT_EQ(ErrorOf(mapped + "{model: {critic_head_hidden_sizes: [4]}}}"),
            "run.yaml:4:68: multi_agent.policies.sheep.model.critic_head_hidden_sizes: got [4], but the critic of "
            "policy \"sheep\" has no core that they could stand behind; expected [], or model.critic_core: gru or "
            "lstm");
  EXPECT_EQ(ErrorOf(mapped + "{}}\n  agents: {sheep: {model: {actor_hidden_sizes: []}}, \"*\": {}}"),
            "run.yaml:5:48: multi_agent.agents.sheep.model.actor_hidden_sizes: got [], but the actor of policy "
            "\"sheep\" has no core that could read its inputs; expected 1 to 8 layers, or model.actor_core: gru or "
            "lstm");
  // Where the run's layers stand before a core of the run's, and a policy has none.
  EXPECT_EQ(ErrorOf(mapped + "{model: {actor_core: none}}}\nmodel: {actor_core: gru, actor_head_hidden_sizes: [8]}"),
            "run.yaml:5:51: model.actor_head_hidden_sizes: got [8], but the actor of policy \"sheep\" has no core that "
            "they could stand behind; expected [], or model.actor_core: gru or lstm");
}

TEST_F(ModelKeysTest, APolicyWithoutNetworksTakesNoneOfIt) {
  const ResolvedRun run = Resolve(R"(
env: {name: team}
model: {actor_core: gru, critic_core: gru, actor_hidden_sizes: [], critic_head_hidden_sizes: [4]}
multi_agent:
  policies: {main: {}, dice: {class: random}, same: {class: "scripted:always_same"}}
  policy_mapping: {agent_0: main, agent_1: dice, "*": same}
)");
  EXPECT_TRUE(run.policies[0].remembers());
  for (const size_t slot : {1, 2}) {
    EXPECT_FALSE(run.policies[slot].remembers()) << slot;
    EXPECT_EQ(run.policies[slot].sequence_length, 0);
  }
  // Nor is what would not fit refused for its sake.
  EXPECT_EQ(
      ErrorOf("env: {name: team}\nmodel: {actor_hidden_sizes: []}\nmulti_agent: {policies: {p: {class: random}}}"),
      "OK");
}

TEST_F(ModelKeysTest, AResumedRunKeepsItsNetworks) {
  const RunConfig old = *RunConfig::FromYaml("env: {name: team}\nmodel: {actor_core: gru}", "old.yaml");
  const auto refused = [&old](const std::string& model) {
    const auto resumed = ResumeConfig(old, *RunConfig::FromYaml("env: {name: team}\nmodel: " + model, "new.yaml"));
    return resumed.ok() ? "OK" : std::string(resumed.status().message());
  };
  EXPECT_EQ(refused("{actor_core: gru, critic_core: none}"), "OK");
  EXPECT_EQ(refused("{actor_core: gru, critic_encoder: mlp}"), "OK") << "what auto was once; the checkpoint decides";
  EXPECT_EQ(refused("{actor_core: gru, critic_encoder: attention}")
                .find(": model.critic_encoder: got attention, but the run was started with auto"),
            13u);
  EXPECT_EQ(refused("{activation: tanh}")
                .find("new.yaml:2:8: model.actor_core: got none, but the run was started with "
                      "gru; a resumed run may change "),
            0u);
  EXPECT_EQ(refused("{actor_core: gru, max_seq_len: 10}")
                .find("new.yaml:2:39: model.max_seq_len: got 10, but the run was started with 20; "),
            0u);
}

}  // namespace
}  // namespace troupe::config
