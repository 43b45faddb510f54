#include "absl/strings/str_cat.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

using policy::PolicyId;
using policy::PolicySpec;
using policy::PolicyTable;
using policy::PolicyTablePtr;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PolicySpec Hunters() {
  PolicySpec spec = MakeSpec("hunters", *space::Space::Box(-1, 1, {3}), *space::Space::MultiDiscrete({3, 2}));
  spec.has_action_mask = true;
  spec.agent_id_size = 3;
  return spec;
}
PolicySpec Prey() {
  return MakeSpec("prey", *space::Space::Box(0, 255, {2, 2}, tensor::DType::kUint8), *space::Space::Discrete(4));
}

PolicyTablePtr Tag() {
  return *PolicyTable::Make({Prey(), Hunters()}, {true, true},
                            {{"hunter_*", {{PolicyId("hunters")}}}, {"*", {{PolicyId("prey")}}}},
                            {"hunter_0", "hunter_1", "prey"});
}

std::string Error(const absl::StatusOr<ActionAnswer>& answer) { return std::string(answer.status().message()); }

TEST(DescribePoliciesTest, SaysWhatOneMustKnowToAsk) {
  const auto engine = *QueryEngine::Create({Prey(), Hunters()}, {});
  ASSERT_EQ(engine->SetPolicies(*Tag()), absl::OkStatus());
  ASSERT_EQ(engine->SetWeights(MakeWeights(Prey(), 7)), absl::OkStatus());
  const PolicyDescriptions all = *engine->DescribePolicies({});
  EXPECT_THAT(all.agent_ids, ElementsAre("hunter_0", "hunter_1", "prey"));
  ASSERT_EQ(all.policies.size(), 2u);
  const PolicyDescription& hunters = all.policies[0];
  EXPECT_EQ(hunters.policy_id.value(), "hunters");
  EXPECT_EQ(hunters.version, policy::WeightVersion()) << "none yet";
  EXPECT_EQ(hunters.observation_space, Hunters().observation_space.ToString());
  EXPECT_EQ(hunters.action_space, Hunters().action_space.ToString());
  EXPECT_EQ(hunters.obs_dtype, tensor::DType::kFloat32);
  EXPECT_EQ(hunters.observation_size, 3);
  EXPECT_EQ(hunters.mask_size, 5);
  EXPECT_THAT(hunters.word_dtypes, ElementsAre(tensor::DType::kInt32, tensor::DType::kInt32));
  EXPECT_TRUE(hunters.needs_agent_slots);
  EXPECT_THAT(hunters.agent_slots, ElementsAre(0, 1));
  const PolicyDescription& prey = all.policies[1];
  EXPECT_EQ(prey.version, (policy::WeightVersion{1, 7}));
  EXPECT_EQ(prey.obs_dtype, tensor::DType::kUint8);
  EXPECT_FALSE(prey.needs_agent_slots);
  EXPECT_THAT(prey.agent_slots, ElementsAre(2));

  const PolicyDescriptions some = *engine->DescribePolicies({PolicyId("prey")});
  ASSERT_EQ(some.policies.size(), 1u);
  EXPECT_EQ(some.policies[0].policy_id.value(), "prey");
}

TEST(DescribePoliciesTest, SaysHowMuchAPolicyRemembers) {
  const PolicySpec lstm = WithCore(Hunters(), policy::CoreKind::kLstm, /*layers=*/2);
  const auto engine = *QueryEngine::Create({lstm, Prey()}, {});
  const PolicyDescriptions all = *engine->DescribePolicies({});
  EXPECT_EQ(all.policies[0].state_size, 2 * 2 * 5);
  EXPECT_EQ(all.policies[1].state_size, 0);
}

TEST(DescribePoliciesTest, FollowsTheMapping) {
  const auto engine = *QueryEngine::Create({Prey(), Hunters()}, {});
  EXPECT_THAT(engine->DescribePolicies({})->policies[1].agent_slots, IsEmpty()) << "nobody told who plays them";
  ASSERT_EQ(engine->SetPolicies(*Tag()), absl::OkStatus());
  const auto all_to_prey = *Tag()->SetMapping({{"*", {{PolicyId("prey")}}}});
  ASSERT_EQ(engine->SetPolicies(*all_to_prey), absl::OkStatus());
  EXPECT_THAT(engine->DescribePolicies({})->policies[0].agent_slots, IsEmpty());
  EXPECT_THAT(engine->DescribePolicies({})->policies[1].agent_slots, ElementsAre(0, 1, 2));
}

TEST(DescribePoliciesTest, AnswersAreBounded) {
  const auto engine = *QueryEngine::Create({Prey(), Hunters()}, {});
  EXPECT_EQ(engine->DescribePolicies({PolicyId("pray")}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine->DescribePolicies({PolicyId("../prey")}).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<PolicyId> most(static_cast<size_t>(kMaxQueryRows), PolicyId("prey"));
  EXPECT_EQ(engine->DescribePolicies(most)->policies.size(), most.size());
  std::vector<PolicyId> more = most;
  more.emplace_back("prey");
  EXPECT_EQ(engine->DescribePolicies(more).status().code(), absl::StatusCode::kResourceExhausted);

  // A policy of 300 agents takes some 1.6 kB: 1024 times that is more than an answer holds.
  std::vector<std::string> agents;
  for (int i = 0; i < 300; ++i) agents.push_back(absl::StrCat("agent_", i));
  const PolicyTablePtr wide = *PolicyTable::Make({Prey()}, {true}, {{"*", {{PolicyId("prey")}}}}, agents);
  ASSERT_EQ(engine->SetPolicies(*wide), absl::OkStatus());
  EXPECT_EQ(engine->DescribePolicies({})->policies[0].agent_slots.size(), 300u);
  const absl::Status refused = engine->DescribePolicies(most).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at most 1048576; ask for fewer policies, by id"));
}

TEST(DescribePoliciesTest, ErrorsOfQueriesNameAgentsAndPolicies) {
  const auto engine = *QueryEngine::Create({Prey(), Hunters()}, {});
  ASSERT_EQ(engine->SetPolicies(*Tag()), absl::OkStatus());
  OwnedRows rows = MakeRows(Hunters(), 1);
  rows.agent_slots = {9};
  EXPECT_THAT(
      Error(engine->Compute(Ask({&rows}, true))),
      HasSubstr("agent slot of row 0 is 9, expected 0 to 2; its agents are hunter_0 (slot 0), hunter_1 (slot 1)"));
  rows.agent_slots.clear();
  EXPECT_THAT(Error(engine->Compute(Ask({&rows}, true))),
              HasSubstr("0 agent slots, expected 1: one a row, for the agent-id one-hot in the policy's input; its "
                        "agents are hunter_0 (slot 0), hunter_1 (slot 1)"));
  rows.policy_id = "pray";
  EXPECT_THAT(
      Error(engine->Compute(Ask({&rows}, true))),
      HasSubstr("there is no policy \"pray\" among the 2 here, did you mean \"prey\"? There are: prey, hunters"));
  rows.policy_id = "default_policy";
  EXPECT_THAT(Error(engine->Compute(Ask({&rows}, true))),
              HasSubstr("there is no policy \"default_policy\" among the 2 here: hunters, prey"));
}

}  // namespace
}  // namespace troupe::serving
