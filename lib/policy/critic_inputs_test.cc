// A critic that reads the global state with its agent's observation behind it, and normalized states: spec, text,
// table.

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

PolicySpec WithState() {
  PolicySpec spec = SmallSpecForTesting();
  spec.agent_id_size = 2;
  spec.SetCriticInput(NetworkInput::kState, 7);
  return spec;
}

TEST(CriticInputsTest, TheAgentsObservationStandsBetweenStateAndSlot) {
  PolicySpec spec = WithState();
  EXPECT_FALSE(spec.critic_reads_agent_state());
  EXPECT_EQ(spec.critic_input_size(), 7);
  spec.SetCriticAgentId(true);
  spec.SetCriticReadsAgentState(true);
  EXPECT_EQ(spec.critic().inputs,
            (std::vector<NetworkInput>{NetworkInput::kState, NetworkInput::kObservation, NetworkInput::kAgentId}));
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_TRUE(spec.critic_reads_agent_state());
  EXPECT_EQ(spec.critic_input(), NetworkInput::kState);
  EXPECT_EQ(spec.critic_state_size(), 7);
  EXPECT_EQ(spec.critic_input_size(), 7 + 3 + 2);
  EXPECT_EQ(ParameterLayout::For(spec).Find("critic.0.weight")->shape, (std::vector<int64_t>{4, 12}));
  spec.SetCriticAgentId(false);
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(spec.critic_input_size(), 7 + 3);
  spec.SetCriticReadsAgentState(true);
  EXPECT_EQ(spec.critic().inputs.size(), 2u) << "once";
  spec.SetCriticReadsAgentState(false);
  EXPECT_EQ(spec.critic().inputs, std::vector<NetworkInput>{NetworkInput::kState});
}

TEST(CriticInputsTest, OtherOrdersAndPartnersAreRefused) {
  using Inputs = std::vector<NetworkInput>;
  for (const Inputs& inputs :
       {Inputs{NetworkInput::kObservation, NetworkInput::kState}, Inputs{NetworkInput::kState, NetworkInput::kState},
        Inputs{NetworkInput::kState, NetworkInput::kAgentId, NetworkInput::kObservation},
        Inputs{NetworkInput::kState, NetworkInput::kObservation, NetworkInput::kObservation},
        Inputs{NetworkInput::kJointObservation, NetworkInput::kObservation}}) {
    PolicySpec spec = WithState();
    spec.mutable_critic()->inputs = inputs;
    EXPECT_NE(
        std::string(spec.Validate().message())
            .find("expected observation, joint_observation, state or state and observation, then perhaps agent_id, "
                  "then perhaps action or joint_action"),
        std::string::npos)
        << spec.Validate();
  }
}

TEST(CriticInputsTest, StatesAreNormalizedWhereACriticReadsThem) {
  PolicySpec spec = WithState();
  spec.normalize_state = true;
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  spec.SetCriticInput(NetworkInput::kJointObservation, 9);
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  spec.SetCriticInput(NetworkInput::kObservation, 0);
  EXPECT_EQ(std::string(spec.Validate().message()),
            "policy \"p\": normalize_state: true is of a critic that reads all observations or the global state; this "
            "one reads its agent's observation alone");
  DropNetworks(&spec);
  EXPECT_FALSE(spec.normalize_state);
}

TEST(CriticInputsTest, TextAndTableHaveBoth) {
  const PolicySpec plain = WithState();
  EXPECT_EQ(plain.ToString().find("agent_state"), std::string::npos);
  EXPECT_EQ(plain.ToString().find("normalize_state"), std::string::npos);
  PolicySpec with_both = plain;
  with_both.SetCriticReadsAgentState(true);
  with_both.normalize_state = true;
  EXPECT_EQ(with_both.ToString(), plain.ToString() + " normalize_state=1 agent_state=1");
  EXPECT_NE(ShapeOf(with_both), ShapeOf(plain));
  EXPECT_EQ(FirstDifference(with_both, plain),
            "the critic's input is the global state and the observation, expected the global state; set "
            "algorithm.use_agent_specific_state alike");
  PolicySpec normalized = plain;
  normalized.normalize_state = true;
  EXPECT_EQ(FirstDifference(normalized, plain),
            "normalize_state is true, expected false; set algorithm.normalize_state alike");
  const PolicyTablePtr table = *PolicyTable::Make({with_both}, {true}, {{"*", {{PolicyId("p")}}}}, {"a", "b"});
  const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(ToJson(*table));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.ToString(), with_both.ToString());
}

}  // namespace
}  // namespace troupe::policy
