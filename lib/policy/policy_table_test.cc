#include "lib/policy/policy_table.h"

#include <array>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/process_memory.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/slots.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

PolicySpec Spec(const std::string& id, const std::string& policy_class = "trained") {
  PolicySpec spec = SmallSpecForTesting();
  spec.id = PolicyId(id);
  spec.policy_class = *ParsePolicyClass(policy_class);
  return spec;
}

std::vector<MappingRule> AllTo(const std::vector<std::string>& ids) {
  MappingRule rule{"*", {}};
  for (const std::string& id : ids) rule.policies.push_back({PolicyId(id)});
  return {rule};
}

/// Policies a, b and c in slots 0, 1 and 2; a and b play and train, c does neither.
PolicyTablePtr ThreePolicies() {
  return *PolicyTable::Make({Spec("a"), Spec("b"), Spec("c", "random")}, {true, true, false}, AllTo({"a", "b"}),
                            {"agent_0", "agent_1"});
}

/// Who plays the agent of that name and slot.
absl::StatusOr<PolicySlot> MapAgent(const PolicyTable& table, int32_t agent, const EpisodeInfo& episode = {}) {
  return table.mapping().Map(base::AgentId(absl::StrCat("agent_", agent)), base::AgentSlot(agent), episode);
}

int32_t SlotIn(const PolicyTable& table, const std::string& id) {
  const std::optional<PolicySlot> slot = table.FindSlot(PolicyId(id));
  return slot.has_value() ? slot->value() : -1;
}

void ExpectError(const absl::StatusOr<PolicyTablePtr>& result, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(result.status().code(), code) << result.status();
  EXPECT_NE(std::string(result.status().message()).find(text), std::string::npos) << result.status();
}

TEST(PolicyTableTest, BeginsWithRevisionZeroInTheOrderGiven) {
  const PolicyTablePtr table = ThreePolicies();
  EXPECT_EQ(table->revision(), 0);
  EXPECT_EQ(table->num_slots(), 3u);
  EXPECT_EQ(SlotIn(*table, "c"), 2);
  EXPECT_TRUE(table->Find(PolicySlot(0))->trains);
  EXPECT_FALSE(table->Find(PolicySlot(2))->trains);
  EXPECT_TRUE(table->IsMapped(PolicySlot(1)));
  EXPECT_FALSE(table->IsMapped(PolicySlot(2)));
  EXPECT_EQ(table->Find(PolicySlot(3)), nullptr);
  EXPECT_EQ(table->Find(PolicySlot(-1)), nullptr);
}

TEST(PolicyTableTest, AgentsOfAPolicyFollowFromTheMapping) {
  using Slots = std::map<std::string, std::vector<int32_t>>;
  const std::vector<std::string> agents = {"red_0", "red_1", "blue"};
  const auto table = [&](std::vector<MappingRule> rules) {
    return *PolicyTable::Make({Spec("a"), Spec("b"), Spec("c", "random")}, {true, true, false}, std::move(rules),
                              agents);
  };
  const MappingRule reds = {"red_*", {{PolicyId("a")}, {PolicyId("b")}, {PolicyId("a"), 2}}};
  EXPECT_EQ(AgentSlotsByPolicy(*table({reds, {"*", {{PolicyId("c")}}}})),
            (Slots{{"a", {0, 1}}, {"b", {0, 1}}, {"c", {2}}}))
      << "the first rule that matches decides";
  EXPECT_EQ(AgentSlotsByPolicy(*table({{"*", {{PolicyId("c")}}}})), (Slots{{"a", {}}, {"b", {}}, {"c", {0, 1, 2}}}));
  EXPECT_EQ(AgentSlotsByPolicy(*table({{"blue", {}, "python:mine:choose"}, {"*", {{PolicyId("a")}}}})),
            (Slots{{"a", {0, 1, 2}}, {"b", {2}}, {"c", {2}}}))
      << "a function may choose any";
  const PolicyTablePtr without = *table({reds, {"*", {{PolicyId("a")}}}})->Remove(PolicyId("c"));
  EXPECT_EQ(AgentSlotsByPolicy(*without).count("c"), 0u);
}

TEST(PolicyTableTest, RefusesAFirstTableThatIsNone) {
  ExpectError(PolicyTable::Make({}, {}, AllTo({"a"}), {"x"}), absl::StatusCode::kInvalidArgument, "at least one");
  ExpectError(PolicyTable::Make({Spec("a")}, {}, AllTo({"a"}), {"x"}), absl::StatusCode::kInvalidArgument, "got 0");
  ExpectError(PolicyTable::Make({Spec("a"), Spec("a")}, {true, true}, AllTo({"a"}), {"x"}),
              absl::StatusCode::kAlreadyExists, "\"a\"");
  ExpectError(PolicyTable::Make({Spec("a", "random")}, {true}, AllTo({"a"}), {"x"}), absl::StatusCode::kInvalidArgument,
              "never trained");
  ExpectError(PolicyTable::Make({Spec("a")}, {true}, AllTo({"b"}), {"x"}), absl::StatusCode::kNotFound, "\"b\"");
  ExpectError(PolicyTable::Make({Spec("a")}, {true}, {}, {"x"}), absl::StatusCode::kInvalidArgument, "no rule");
}

TEST(PolicyTableTest, AnAddedPolicyTakesTheLowestFreeSlotAndPlaysOnceItIsMapped) {
  const PolicyTablePtr before = ThreePolicies();
  const PolicyTablePtr added = *before->Add(Spec("d"), true);
  EXPECT_EQ(added->revision(), 1);
  EXPECT_EQ(SlotIn(*added, "d"), 3);
  EXPECT_EQ(added->Find(PolicySlot(3))->since, 1);
  EXPECT_FALSE(added->IsMapped(PolicySlot(3)));
  EXPECT_EQ(SlotIn(*before, "d"), -1);  // whoever holds the older table keeps it

  const PolicyTablePtr mapped = *added->SetMapping(AllTo({"d"}));
  EXPECT_EQ(*MapAgent(*mapped, 0), PolicySlot(3));
  EXPECT_EQ(MapAgent(*added, 0)->value() < 2, true);
}

TEST(PolicyTableTest, ARemovedPolicyKeepsItsSlotUntilItIsReleased) {
  PolicyTablePtr table = *ThreePolicies()->SetMapping(AllTo({"a"}));
  table = *table->Remove(PolicyId("b"));
  EXPECT_EQ(SlotIn(*table, "b"), -1);
  ASSERT_NE(table->Find(PolicySlot(1)), nullptr);
  EXPECT_EQ(table->Find(PolicySlot(1))->removed, 2);
  EXPECT_FALSE(table->Find(PolicySlot(1))->replaced);
  // Its id is free at once, its slot is not.
  table = *table->Add(Spec("b"), true);
  EXPECT_EQ(SlotIn(*table, "b"), 3);

  table = *table->Release({PolicySlot(1)});
  EXPECT_EQ(table->Find(PolicySlot(1)), nullptr);
  EXPECT_EQ(table->Specs()[PolicySlot(1)].id.value(), "");
  table = *table->Add(Spec("e"), false);
  EXPECT_EQ(SlotIn(*table, "e"), 1);
  EXPECT_EQ(table->Find(PolicySlot(1))->since, 5);
}

TEST(PolicyTableTest, AReleasedLastSlotIsCutOff) {
  PolicyTablePtr table = *ThreePolicies()->Remove(PolicyId("c"));
  table = *table->Release({PolicySlot(2)});
  EXPECT_EQ(table->num_slots(), 2u);
}

TEST(PolicyTableTest, ReplaceGivesTheIdAnotherSlotAndKeepsItsPlace) {
  const PolicyTablePtr table = *ThreePolicies()->Replace(Spec("b"));
  EXPECT_EQ(SlotIn(*table, "b"), 3);
  EXPECT_TRUE(table->Find(PolicySlot(3))->trains);
  EXPECT_TRUE(table->IsMapped(PolicySlot(3)));
  EXPECT_FALSE(table->IsMapped(PolicySlot(1)));
  EXPECT_TRUE(table->Find(PolicySlot(1))->replaced);
  EXPECT_EQ(table->Find(PolicySlot(1))->removed, 1);
  for (uint32_t episode = 0; episode < 50; ++episode) {
    const PolicySlot slot = *MapAgent(*table, 0, {1, base::EnvId(0), episode});
    EXPECT_TRUE(slot == PolicySlot(0) || slot == PolicySlot(3)) << slot.value();
  }
  // One of a class that never trains ends the training of its id.
  EXPECT_FALSE((*table->Replace(Spec("b", "random")))->Find(PolicySlot(4))->trains);
}

TEST(PolicyTableTest, FreezesAndNamesWhoTrains) {
  const PolicyTablePtr frozen = *ThreePolicies()->SetTrains(PolicyId("a"), false);
  EXPECT_FALSE(frozen->Find(PolicySlot(0))->trains);
  EXPECT_TRUE(frozen->Find(PolicySlot(1))->trains);
  const PolicyTablePtr chosen = *frozen->SetTrainable({PolicyId("a")});
  EXPECT_TRUE(chosen->Find(PolicySlot(0))->trains);
  EXPECT_FALSE(chosen->Find(PolicySlot(1))->trains);
  EXPECT_EQ(chosen->revision(), 2);
  ExpectError(chosen->SetTrains(PolicyId("c"), true), absl::StatusCode::kInvalidArgument, "class random");
  ExpectError(chosen->SetTrainable({PolicyId("a"), PolicyId("c")}), absl::StatusCode::kInvalidArgument, "random");
  ExpectError(chosen->SetTrains(PolicyId("d"), true), absl::StatusCode::kNotFound, "not one of this run's 3");
}

TEST(PolicyTableTest, SettingsAreKeptByKey) {
  const std::vector<std::string> first = {"algorithm.lr=1e-3", "algorithm.gamma=0.9"};
  PolicyTablePtr table = *ThreePolicies()->Set(PolicyId("a"), first);
  EXPECT_EQ(table->revision(), 1);
  EXPECT_EQ(table->Find(PolicySlot(0))->settings, first);
  table = *table->Set(PolicyId("a"), {"algorithm.lr=1e-4"});
  EXPECT_EQ(table->Find(PolicySlot(0))->settings,
            (std::vector<std::string>{"algorithm.gamma=0.9", "algorithm.lr=1e-4"}));
  EXPECT_TRUE(table->Find(PolicySlot(1))->settings.empty());
  const PolicyTablePtr back = *PolicyTableFromJson(ToJson(*table));
  EXPECT_EQ(back->Find(PolicySlot(0))->settings, table->Find(PolicySlot(0))->settings);
  EXPECT_EQ(ToJson(*table, TableReader::kWorker).find("settings"), std::string::npos);
}

TEST(PolicyTableTest, SettingsHaveBounds) {
  const PolicyTablePtr table = ThreePolicies();
  ExpectError(table->Set(PolicyId("zz"), {"algorithm.lr=1"}), absl::StatusCode::kNotFound, "\"zz\"");
  ExpectError(table->Set(PolicyId("c"), {"algorithm.lr=1"}), absl::StatusCode::kInvalidArgument, "random");
  for (const char* const none : {"algorithm.lr", "=1", ""}) {
    ExpectError(table->Set(PolicyId("a"), {none}), absl::StatusCode::kInvalidArgument, "expected KEY=VALUE");
  }
  const std::string longest(PolicyTable::kMaxSettingBytes - 2, 'v');
  EXPECT_TRUE(table->Set(PolicyId("a"), {"k=" + longest}).ok());
  ExpectError(table->Set(PolicyId("a"), {"k=v" + longest}), absl::StatusCode::kInvalidArgument, "1025 bytes, \"k=vvv");
  std::vector<std::string> many;
  for (size_t i = 0; i < PolicyTable::kMaxSettings; ++i) many.push_back(absl::StrCat("k", i, "=1"));
  const PolicyTablePtr full = *table->Set(PolicyId("a"), many);
  EXPECT_TRUE(full->Set(PolicyId("a"), {"k0=2"}).ok());
  ExpectError(full->Set(PolicyId("a"), {"more=2"}), absl::StatusCode::kInvalidArgument,
              "got 65 settings of a policy, expected at most 64");
}

TEST(PolicyTableTest, RefusesWhatCannotBeDone) {
  const PolicyTablePtr table = ThreePolicies();
  ExpectError(table->Add(Spec("a"), true), absl::StatusCode::kAlreadyExists, "already");
  ExpectError(table->Remove(PolicyId("a")), absl::StatusCode::kFailedPrecondition, "policy_mapping gives it to \"*\"");
  ExpectError(table->Remove(PolicyId("zz")), absl::StatusCode::kNotFound, "\"zz\"");
  ExpectError(table->Replace(Spec("zz")), absl::StatusCode::kNotFound, "\"zz\"");
  ExpectError(table->SetMapping(AllTo({"a", "zz"})), absl::StatusCode::kNotFound, "\"zz\"");
  ExpectError(table->SetMapping(AllTo({""})), absl::StatusCode::kNotFound, "\"\"");
  ExpectError(table->SetMapping({}), absl::StatusCode::kInvalidArgument, "no rule");
  ExpectError(table->Release({PolicySlot(0)}), absl::StatusCode::kFailedPrecondition, "not removed");
  ExpectError(table->Release({PolicySlot(7)}), absl::StatusCode::kNotFound, "slot 7");
}

TEST(PolicyTableTest, RefusesIdsThatAreNone) {
  const PolicyTablePtr table = ThreePolicies();
  for (const std::string& id : {std::string("../x"), std::string(), std::string(200, 'p'), std::string("a\nb")}) {
    EXPECT_EQ(table->Add(Spec(id), true).status().code(), absl::StatusCode::kInvalidArgument) << id;
  }
}

TEST(PolicyTableTest, HoldsSoManyPoliciesAndNotOneMore) {
  std::vector<PolicySpec> specs;
  for (size_t i = 0; i < PolicyTable::kMaxPolicies; ++i) specs.push_back(Spec(absl::StrCat("p", i)));
  const PolicyTablePtr table =
      *PolicyTable::Make(std::move(specs), std::vector<bool>(PolicyTable::kMaxPolicies, true), AllTo({"p0"}), {"x"});
  ExpectError(table->Add(Spec("more"), true), absl::StatusCode::kResourceExhausted, "1024");
  const PolicyTablePtr draining = *table->Remove(PolicyId("p7"));
  ExpectError(draining->Add(Spec("more"), true), absl::StatusCode::kResourceExhausted, "1024");
  EXPECT_TRUE((*draining->Release({PolicySlot(7)}))->Add(Spec("more"), true).ok());
}

TEST(PolicyTableJsonTest, ComesBackAsItWas) {
  PolicySpec rich = Spec("rich");
  rich.action_space = *space::Space::Box({-1, -2}, {1, 2}, {2});
  rich.SetActivation(Activation::kGelu);
  rich.initial_log_std = -0.1;
  rich.SetCriticInput(NetworkInput::kState, 9);
  rich.agent_id_size = 2;
  rich.SetCriticAgentId(true);
  rich.normalize_observations = true;
  rich.action_bound_method = ActionBoundMethod::kTanh;
  rich.action_scaling = true;
  rich.reward_discount = 0.97;
  PolicyTablePtr table = *ThreePolicies()->Add(rich, true);
  table = *table->Replace(Spec("b"));
  table = *table->Remove(PolicyId("c"));
  table = *table->Release({PolicySlot(2)});
  std::vector<MappingRule> rules = AllTo({"a", "b"});
  rules[0].policies[1].weight = 0.1;
  table = *table->SetMapping(rules);

  const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(ToJson(*table));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(**back), ToJson(*table));
  EXPECT_EQ((*back)->revision(), 5);
  ASSERT_EQ((*back)->num_slots(), table->num_slots());
  for (const PolicySlot slot : table->entries().ids()) {
    ASSERT_EQ((*back)->Find(slot) == nullptr, table->Find(slot) == nullptr);
    if (table->Find(slot) == nullptr) continue;
    EXPECT_EQ((*back)->Find(slot)->spec.ToString(), table->Find(slot)->spec.ToString());
    EXPECT_EQ((*back)->Find(slot)->since, table->Find(slot)->since);
    EXPECT_EQ((*back)->Find(slot)->removed, table->Find(slot)->removed);
    EXPECT_EQ((*back)->Find(slot)->replaced, table->Find(slot)->replaced);
    EXPECT_EQ((*back)->Find(slot)->trains, table->Find(slot)->trains);
  }
  for (uint32_t episode = 0; episode < 100; ++episode) {
    EXPECT_EQ(*MapAgent(**back, 1, {3, base::EnvId(1), episode}), *MapAgent(*table, 1, {3, base::EnvId(1), episode}));
  }
}

PolicyTablePtr ReadTable(const std::string& text) {
  absl::StatusOr<PolicyTablePtr> table = PolicyTableFromJson(text);
  EXPECT_TRUE(table.ok()) << table.status() << text;
  return table.ok() ? *table : nullptr;
}

// A table says where bytes are scaled by their bounds; those of before there was that say nothing, and were divided.
TEST(PolicyTableJsonTest, ATableOfBeforeHasItsBytesDividedBy255) {
  PolicySpec spec = Spec("flags");
  spec.observation_space = *space::Space::Box(0, 1, {4}, tensor::DType::kUint8);
  const std::string text = ToJson(**PolicyTable::Make({spec}, {true}, AllTo({"flags"}), {"a"}));
  EXPECT_EQ(ReadTable(text)->Find(PolicySlot(0))->spec.ToString(), spec.ToString());
  std::string before = text;
  const std::string said = R"("observation_scaling":"bounds",)";
  ASSERT_NE(before.find(said), std::string::npos) << text;
  before.erase(before.find(said), said.size());
  const PolicySpec old = ReadTable(before)->Find(PolicySlot(0))->spec;
  EXPECT_TRUE(old.bytes_by_255);
  EXPECT_EQ(old.observation_scaling(), (space::RowScaling{{0}, {1.0f / 255.0f}}));
  EXPECT_EQ(ToJson(*ReadTable(before)), before) << "it stays what it was";
  before.insert(text.find(said), R"("observation_scaling":"moments",)");
  EXPECT_NE(PolicyTableFromJson(before).status().message().find("observation_scaling is \"moments\", which is unknown"),
            absl::string_view::npos);
  spec.observation_space = *space::Space::Box(0, 255, {4}, tensor::DType::kUint8);
  EXPECT_EQ(ToJson(**PolicyTable::Make({spec}, {true}, AllTo({"flags"}), {"a"})).find("observation_scaling"),
            std::string::npos)
      << "the text of every version";
}

// Checkpoints of before have it.
TEST(PolicyTableJsonTest, Format1IsRead) {
  const std::string rest =
      R"j(,"normalize_observations":true,"observation_space":"Box(0, 1, [7])","removed":0,"replaced":false,"since":0)j"
      R"j(,"trains":true,"action_bound_method":"clip","action_scaling":false,"action_space":"Discrete(3)","class":"ppo")j"
      R"j(,"has_action_mask":false,"model":{"activation":"relu","actor_hidden_sizes":[4,5],"actor_output_gain":0.5,)j"
      R"j("critic_hidden_sizes":[6],"initial_log_std":-0.5}})j";
  const auto text = [&rest](const std::string& critic) {
    return R"j({"agents":["a"],"mapping":[{"agents":"*","policies":[{"policy":"main","weight":1.0}]}],"revision":0,)j"
           R"j("policies":[{"slot":0,"id":"main","agent_id_size":3,)j" +
           critic + rest + "]}";
  };
  const PolicyTablePtr table =
      ReadTable(text(R"j("critic_input":"global_state","critic_state_size":9,"critic_agent_id":true)j"));
  ASSERT_NE(table, nullptr);
  const PolicySpec& spec = table->Find(PolicySlot(0))->spec;
  EXPECT_EQ(spec.ToString(),
            "policy main obs=Box(0, 1, [7]) act=Discrete(3) actor=[4,5] critic=[6] activation=relu gain=0.5 "
            "log_std=-0.5 critic_input=3 critic_state=9 agent_id=3 critic_agent_id=1 normalize=1 mask=0 bound=2 "
            "scaling=0");
  EXPECT_EQ(ReadTable(ToJson(*table))->Find(PolicySlot(0))->spec.ToString(), spec.ToString())
      << "and written as format 2";
  EXPECT_EQ(ReadTable(text(R"j("critic_input":"joint_observation","critic_state_size":9,"critic_agent_id":false)j"))
                ->Find(PolicySlot(0))
                ->spec.critic_input(),
            NetworkInput::kJointObservation);
  const std::string bad = text(R"j("critic_input":"observation","critic_state_size":9,"critic_agent_id":false)j");
  ExpectError(PolicyTableFromJson(bad), absl::StatusCode::kInvalidArgument, "critic_state_size is 9");
  const std::string unknown = text(R"j("critic_input":"all","critic_state_size":9,"critic_agent_id":false)j");
  ExpectError(PolicyTableFromJson(unknown), absl::StatusCode::kInvalidArgument,
              "is \"all\", which is unknown; expected one of observation, joint_observation, global_state");
}

TEST(PolicyTableJsonTest, NetworksOfTheirOwnComeBack) {
  PolicySpec apart = Spec("apart");
  apart.mutable_critic()->activation = Activation::kRelu;
  apart.mutable_critic()->output_gain = 0.1;
  PolicySpec none = Spec("none");
  none.learner_networks.clear();
  const PolicyTablePtr table = *(*ThreePolicies()->Add(apart, true))->Add(none, true);
  const PolicyTablePtr back = ReadTable(ToJson(*table, TableReader::kWorker));
  ASSERT_NE(back, nullptr);
  for (const PolicySlot slot : SlotsForTesting({3, 4})) {
    EXPECT_EQ(back->Find(slot)->spec.ToString(), table->Find(slot)->spec.ToString());
  }
  EXPECT_TRUE(back->Find(PolicySlot(4))->spec.learner_networks.empty());
}

PolicyTablePtr WithCores() {
  PolicySpec spec = SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kLstm);
  spec.id = PolicyId("d");
  return *ThreePolicies()->Add(spec, true);
}

TEST(PolicyTableJsonTest, CoresComeBack) {
  const PolicyTablePtr table = WithCores();
  const std::string text = ToJson(*table, TableReader::kWorker);
  const PolicyTablePtr back = ReadTable(text);
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(ToJson(*back, TableReader::kWorker), text);
  const PolicySpec& got = back->entries()[policy::PolicySlot(3)]->spec;
  const PolicySpec& sent = table->entries()[policy::PolicySlot(3)]->spec;
  EXPECT_EQ(got.actor, sent.actor);
  EXPECT_EQ(got.critic(), sent.critic());
  EXPECT_EQ(got.sequence_length, 7);
  EXPECT_EQ(got.ToString(), sent.ToString());
  // Who has no core is written as by versions that knew none.
  EXPECT_EQ(back->entries()[policy::PolicySlot(0)]->spec.sequence_length, 0);
  for (const char* key : {"core_size", "core_layers", "head_hidden_sizes", "sequence_length"}) {
    EXPECT_NE(text.find(absl::StrCat("\"", key, "\":")), std::string::npos) << key;
    EXPECT_EQ(ToJson(*ThreePolicies()).find(key), std::string::npos) << key;
  }
}

TEST(PolicyTableJsonTest, CoresThatAreNone) {
  const std::string good = ToJson(*WithCores());
  const auto error = [&good](const std::string& from, const std::string& to) {
    const size_t place = good.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    std::string text = good;
    const absl::StatusOr<PolicyTablePtr> table = PolicyTableFromJson(text.replace(place, from.size(), to));
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << to;
    return std::string(table.status().message());
  };
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"core\":\"gru\"", "\"core\":\"tree\"",
       "policies[].actor.core is \"tree\", which is unknown; expected one of none, gru, lstm"},
      {"\"core\":\"gru\"", "\"core\":3", "policies[].actor.core is number, expected a text"},
      {"\"core_size\":5,", "", "policies[].actor.core_size is missing, expected an integer in [0, 2147483647]"},
      {"\"core_layers\":1,", "", "policies[].actor.core_layers is missing"},
      {"\"core_layers\":2,", "", "policies[].learner_networks[].core_layers is missing"},
      {"\"head_hidden_sizes\":[6],", "", "policies[].actor.head_hidden_sizes is missing, expected a list"},
      {"\"sequence_length\":7,", "", "policies[].sequence_length is missing"},
      {"\"core_size\":5", "\"core_size\":\"5\"", "core_size is string, expected an integer"},
      {"\"core_size\":5", "\"core_size\":5.5", "core_size is number, expected an integer"},
      {"\"core_size\":5", "\"core_size\":-5", "core_size is number, expected an integer"},
      {"\"core_layers\":1", "\"core_layers\":null", "core_layers is null, expected an integer"},
      {"\"head_hidden_sizes\":[6]", "\"head_hidden_sizes\":6", "head_hidden_sizes is number, expected a list"},
      {"\"head_hidden_sizes\":[6]", "\"head_hidden_sizes\":[\"6\"]", "is string, expected sizes of layers"},
      {"\"sequence_length\":7", "\"sequence_length\":[7]", "sequence_length is array, expected an integer"},
      // Of the right type, but no spec.
      {"\"core_size\":5", "\"core_size\":2147483647", "actor has a core of 1 layers of 2147483647 units; expected"},
      {"\"core_layers\":2", "\"core_layers\":5", "critic has a core of 5 layers of 3 units"},
      {"\"sequence_length\":7", "\"sequence_length\":0", "sequence_length is 0; expected 1 to 65536"},
      {"\"core\":\"lstm\"", "\"core\":\"none\"", "critic_hidden_sizes has 0 layers; expected 1 to 8"},
  };
  for (const auto& [from, to, expected] : cases) {
    EXPECT_NE(error(from, to).find(expected), std::string::npos) << error(from, to) << "\nexpected " << expected;
  }
}

std::string Many(const std::string& piece, size_t count) {
  std::string many = piece;
  for (size_t i = 1; i < count; ++i) absl::StrAppend(&many, ",", piece);
  return many;
}

TEST(PolicyTableJsonTest, AWorkerIsNotToldWhereTheLearnerHasACheckpoint) {
  PolicySpec frozen = Spec("frozen");
  frozen.policy_class = *ParsePolicyClass("checkpoint:/home/mara/runs/a#main");
  const PolicyTablePtr table = *ThreePolicies()->Add(frozen, false);
  EXPECT_NE(ToJson(*table).find("/home/mara/runs/a#main"), std::string::npos);
  const std::string told = ToJson(*table, TableReader::kWorker);
  EXPECT_EQ(told.find("mara"), std::string::npos) << told;
  const absl::StatusOr<PolicyTablePtr> read = PolicyTableFromJson(told);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->entries().back()->spec.policy_class.kind, PolicyClass::Kind::kCheckpoint);
}

TEST(PolicyTableJsonTest, RefusesEveryTextThatIsNoTable) {
  const std::string kChoice = R"({"policy":"a","weight":1.0})";
  const std::string kEmptyRule = R"({"agents":"*","policies":[],"function":"self_play"})";
  const std::string good = ToJson(*ThreePolicies());
  const auto with = [&good](const std::string& from, const std::string& to) {
    const size_t place = good.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    std::string text = good;
    return text.replace(place, from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not JSON"},
      {"[]", "expected an object"},
      {"{}", "revision is missing"},
      {good.substr(0, good.size() / 2), "not JSON"},
      {with("\"revision\":0", "\"revision\":-1"), "revision is number"},
      {with("\"since\":0", "\"since\":9"), "since is number"},
      {with("\"slot\":1", "\"slot\":0"), "ascending slots"},
      {with("\"slot\":2", "\"slot\":1024"), "an integer in [0, 1023]"},
      {with("\"id\":\"b\"", "\"id\":\"a\""), "two policies \"a\""},
      {with("\"id\":\"b\"", "\"id\":\"../b\""), "../b"},
      {with("\"class\":\"random\"", "\"class\":\"rand\""), "rand"},
      {with("\"inputs\":[\"observation\"]", "\"inputs\":[\"all\"]"), "the network input \"all\", which is unknown"},
      {with("\"inputs\":[\"observation\"]", "\"inputs\":[7]"), "what is no text"},
      {with("\"encoder\":\"mlp\"", "\"encoder\":\"vit\""),
       "encoder is \"vit\", which is unknown; expected one of mlp, cnn, attention, leaves, torchscript, shared"},
      {with("\"encoder\":\"mlp\"", "\"encoder\":\"cnn\""), "conv_layers is missing, expected a list"},
      {with("\"core\":\"none\"", "\"core\":\"tree\""), "core is \"tree\", which is unknown; expected one of none"},
      {with("\"core\":\"none\"", "\"core\":\"lstm\""), "core_size is missing"},
      {with("\"role\":\"critic\"", "\"role\":\"a mixer\""), "role \"a mixer\"; expected 1 to 32 letters"},
      {with("\"format\":2", "\"format\":3"), "got format 3, expected 1 or 2: written by a newer troupe"},
      {with("\"format\":2", "\"format\":\"2\""), "format is string"},
      {with("\"format\":2", "\"format\":1"), "model is missing"},
      {with("\"observation_space\":\"Box", "\"observation_space\":\"Sphere"), "Sphere"},
      {with("\"hidden_sizes\":[4,4]", "\"hidden_sizes\":[4,-4]"), "sizes of layers"},
      {with("\"hidden_sizes\":[4,4]", "\"hidden_sizes\":[]"), "layers"},
      {with("\"policy\":\"b\"", "\"policy\":\"z\""), "\"z\""},
      {with("\"replaced\":false", "\"replaced\":true"), "not removed"},
      {with("\"trains\":false", "\"trains\":true"), "never trains"},
      {with("\"agents\":[\"agent_0\"", "\"agents\":[7"), "expected texts"},
      {with("\"agent_0\"", absl::StrCat("\"", std::string(PolicyTable::kMaxTableAgentIdBytes + 1, 'a'), "\"")),
       "a text of 385 bytes, expected at most 384"},
      {with("\"agent_0\"", Many("\"a\"", PolicyTable::kMaxAgents + 1)), "more than 1024 texts"},
      {with("\"mapping\":[", absl::StrCat("\"mapping\":[", Many(kEmptyRule, kMaxMappingRules), ",")),
       "got 1025 rules, expected at most 1024"},
      {with("\"agents\":\"*\"", absl::StrCat("\"agents\":\"", std::string(kMaxAgentGlobBytes + 1, '*'), "\"")),
       "agents with 257 characters, expected at most 256"},
      {with("\"policies\":[{\"policy\"",
            absl::StrCat("\"policies\":[", Many(kChoice, kMaxPoliciesOfRule), ",{\"policy\"")),
       "policies, expected at most 1024"},
  };
  for (const auto& [text, expected] : cases) {
    const absl::StatusOr<PolicyTablePtr> table = PolicyTableFromJson(text);
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_NE(std::string(table.status().message()).find(expected), std::string::npos)
        << table.status() << "\nexpected " << expected;
  }
  EXPECT_FALSE(PolicyTableFromJson(std::string(kMaxPolicyTableBytes + 1, ' ')).ok());
}

TEST(PolicyTableTest, ALaterRevisionHasTheSamePolicies) {
  const PolicyTablePtr table = ThreePolicies();
  const PolicyTablePtr later = table->AtLeast(int64_t{5} << 32);
  EXPECT_EQ(later->revision(), int64_t{5} << 32);
  EXPECT_EQ(later->ActiveIds().values(), table->ActiveIds().values());
  EXPECT_EQ(later->Find(PolicySlot(1))->since, 0);
  EXPECT_EQ(later->AtLeast(7)->revision(), int64_t{5} << 32);
  EXPECT_EQ((*later->SetTrains(PolicyId("a"), false))->revision(), (int64_t{5} << 32) + 1);
  EXPECT_TRUE(PolicyTableFromJson(ToJson(*later)).ok());
}

// Each of these rules lists every policy of the run: 1024 times 1024 ids, were they not of one list.
TEST(PolicyTableJsonTest, RulesThatMayChooseAnyPolicyShareTheirList) {
  std::vector<PolicySpec> specs;
  for (size_t i = 0; i < PolicyTable::kMaxPolicies; ++i) specs.push_back(Spec(absl::StrCat(std::string(60, 'p'), i)));
  const std::vector<MappingRule> rules(kMaxMappingRules, MappingRule{"*", {}, "self_play"});
  const int64_t before = base::ProcessMemory::Now().heap_bytes;
  const absl::StatusOr<PolicyTablePtr> table =
      PolicyTable::Make(specs, std::vector<bool>(specs.size(), true), rules, {"agent_0"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_LT(base::ProcessMemory::Now().heap_bytes - before, int64_t{32} << 20);
}

TEST(PolicyTableJsonTest, SaysWhenATableIsTooLarge) {
  EXPECT_TRUE(CheckSize(*ThreePolicies()).ok());
  const MappingRule large = {"*", std::vector<WeightedPolicy>(kMaxPoliciesOfRule, {PolicyId("a")})};
  std::vector<MappingRule> rules(140, large);
  const absl::Status status = CheckSize(**ThreePolicies()->SetMapping(rules));
  EXPECT_TRUE(status.ok()) << status;
  rules.insert(rules.begin(), 10, large);
  EXPECT_EQ(CheckSize(**ThreePolicies()->SetMapping(rules)).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace troupe::policy
