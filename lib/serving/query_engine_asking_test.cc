// What a query may ask for beside rows: agents by id, which weights, which outputs, a seed, and whose state it brings.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/inference/actor.h"
#include "lib/policy/value_network.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

using policy::PolicySpec;
using policy::WeightVersion;
using space::Space;
using testing::ElementsAre;
using testing::HasSubstr;

PolicySpec Plain(const std::string& id) { return MakeSpec(id, *Space::Box(-1, 1, {3}), *Space::Discrete(4)); }

std::unique_ptr<QueryEngine> EngineWith(const std::vector<PolicySpec>& specs, uint64_t seed = 1) {
  auto engine = *QueryEngine::Create(specs, {.seed = seed});
  for (const PolicySpec& spec : specs) EXPECT_EQ(engine->SetWeights(MakeWeights(spec, 3)), absl::OkStatus());
  return engine;
}

absl::StatusOr<PolicyActions> AskOne(QueryEngine& engine, const OwnedRows& rows, bool deterministic = true) {
  absl::StatusOr<ActionAnswer> answer = engine.Compute(Ask({&rows}, deterministic));
  if (!answer.ok()) return answer.status();
  return std::move((*answer)[0]);
}

/// hunters play a and b and see which, prey plays c, d may be played by both.
class AgentsTest : public testing::Test {
 protected:
  AgentsTest() {
    hunters_.agent_id_size = 4;
    engine_ = EngineWith({hunters_, prey_});
    const auto table = policy::PolicyTable::Make(
        {hunters_, prey_}, {false, false},
        {{"c", {{prey_.id, 1.0}}}, {"d", {{prey_.id, 1.0}, {hunters_.id, 1.0}}}, {"*", {{hunters_.id, 1.0}}}},
        {"a", "b", "c", "d"});
    EXPECT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(engine_->SetPolicies(**table), absl::OkStatus());
  }
  OwnedRows RowsOf(const std::string& policy, const std::vector<std::string>& agents, int64_t rows) {
    OwnedRows owned = MakeRows(prey_, rows);
    owned.policy_id = policy;
    owned.agent_ids = agents;
    return owned;
  }
  void Refused(const OwnedRows& rows, const std::string& saying,
               absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = AskOne(*engine_, rows).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(saying));
  }

  PolicySpec hunters_ = Plain("hunters");
  const PolicySpec prey_ = Plain("prey");
  std::unique_ptr<QueryEngine> engine_;
};

TEST_F(AgentsTest, ArePlayedByWhomTheMappingSays) {
  OwnedRows by_slot = MakeRows(hunters_, 2);
  by_slot.agent_slots = {1, 0};
  OwnedRows by_id = by_slot;
  by_id.policy_id = "";
  by_id.agent_slots = {};
  by_id.agent_ids = {"b", "a"};
  const auto expected = AskOne(*engine_, by_slot);
  const auto got = AskOne(*engine_, by_id);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->policy_id.value(), "hunters");
  EXPECT_EQ(Values(*got), Values(*expected));

  by_id.agent_ids = {"b"};
  by_slot.agent_slots = {1, 1};
  EXPECT_EQ(Values(*AskOne(*engine_, by_id)), Values(*AskOne(*engine_, by_slot))) << "one for all rows";
  EXPECT_EQ(AskOne(*engine_, RowsOf("", {"c"}, 3))->policy_id.value(), "prey");
  EXPECT_EQ(AskOne(*engine_, RowsOf("hunters", {"d"}, 1))->policy_id.value(), "hunters");
}

TEST_F(AgentsTest, ThatDoNotFitAreRefusedInWords) {
  Refused(RowsOf("", {"e"}, 1), "there is no agent \"e\" among the 4 of the run: a, b, c, d");
  Refused(RowsOf("", {"d"}, 1), "agent \"d\" may be played by hunters, prey, expected policy_id to say which");
  Refused(RowsOf("", {"a", "c"}, 2), "policy \"hunters\" does not play agent \"c\" by the run's mapping");
  Refused(RowsOf("prey", {"a"}, 1), "policy \"prey\" does not play agent \"a\"");
  Refused(RowsOf("", {"a", "b"}, 3), "agent_ids has 2 ids, expected one for all rows, or 3");
  Refused(RowsOf("nobody", {"a"}, 1), "there is no policy \"nobody\"", absl::StatusCode::kNotFound);
  Refused(RowsOf("", {std::string(5000, 'x')}, 1), "there is no agent");
  OwnedRows both = RowsOf("hunters", {"a"}, 1);
  both.agent_slots = {0};
  Refused(both, "got agent_ids and agent_slots");
  Refused(RowsOf("", {}, 1), "");
  EXPECT_TRUE(AskOne(*engine_, RowsOf("", {"a"}, 1)).ok());
}

TEST(VersionsTest, AreAskedByLabelAndByNumber) {
  const PolicySpec spec = Plain("p");
  const auto engine = EngineWith({spec});
  OwnedRows rows = MakeRows(spec, 2);
  const auto version_of = [&](const std::string& version) -> absl::StatusOr<WeightVersion> {
    rows.version = version;
    const absl::StatusOr<PolicyActions> answer = AskOne(*engine, rows);
    if (!answer.ok()) return answer.status();
    const auto reference = *QueryEngine::Create({spec}, {});
    EXPECT_EQ(reference->SetWeights(MakeWeights(spec, answer->version.n)), absl::OkStatus());
    OwnedRows plain = rows;
    plain.version = "";
    EXPECT_EQ(Values(*answer), Values(*AskOne(*reference, plain))) << "the weights are those it says";
    return answer->version;
  };
  ASSERT_EQ(engine->SetLabel("best", {{"p", {{1, 2}, MakeWeights(spec, 2)}}}), absl::OkStatus());
  ASSERT_EQ(engine->SetLabel("canary", {{"p", {{1, 1}, MakeWeights(spec, 1)}}}), absl::OkStatus());
  EXPECT_EQ(version_of("")->n, 3);
  EXPECT_EQ(version_of("latest")->n, 3);
  EXPECT_EQ(version_of("best")->n, 2);
  EXPECT_EQ(version_of("canary")->n, 1);
  for (const int64_t n : {1, 2, 3}) EXPECT_EQ(version_of(absl::StrCat(n))->n, n);
  for (const char* const version : {"4", "-1", "beste", "1.0", "0x1", ""}) {
    if (*version == '\0') continue;
    const absl::Status status = version_of(version).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << version << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected one of latest (3), best (2), canary (1)"));
  }

  // A label moves, back as well; the newest weights never do.
  ASSERT_EQ(engine->SetLabel("best", {{"p", {{1, 1}, MakeWeights(spec, 1)}}}), absl::OkStatus());
  EXPECT_EQ(version_of("best")->n, 1);
  EXPECT_EQ(version_of("2").status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 7)), absl::OkStatus());
  EXPECT_EQ(version_of("latest")->n, 7);
  EXPECT_EQ(version_of("best")->n, 1);
  const PolicyDescription described = engine->DescribePolicies({})->policies[0];
  ASSERT_EQ(described.versions.size(), 2u);
  EXPECT_EQ(described.versions[0].label, "best");
  EXPECT_EQ(described.versions[0].version.n, 1);
  EXPECT_EQ(engine->ListPolicies().policies[0].versions[1].label, "canary");
  EXPECT_EQ(engine->ListPolicies().policies[0].version.n, 7);
  ASSERT_EQ(engine->SetLabel("best", {}), absl::OkStatus());
  EXPECT_EQ(version_of("best").status().code(), absl::StatusCode::kNotFound);
}

TEST(VersionsTest, LabelsAreChecked) {
  const PolicySpec spec = Plain("p");
  const auto engine = EngineWith({spec});
  const std::map<std::string, OfferedWeights> good = {{"p", {{1, 1}, MakeWeights(spec, 1)}}};
  for (const std::string& label : {std::string("latest"), std::string(), std::string("1a"), std::string("Best"),
                                   std::string("a b"), std::string(65, 'a')}) {
    EXPECT_EQ(engine->SetLabel(label, good).code(), absl::StatusCode::kInvalidArgument) << label;
  }
  EXPECT_EQ(engine->SetLabel("a", {{"q", {{1, 1}, MakeWeights(spec, 1)}}}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine->SetLabel("a", {{"p", {}}}).code(), absl::StatusCode::kInvalidArgument);
  auto wrong = MakeWeights(spec, 1);
  wrong->actor.pop_back();
  EXPECT_EQ(engine->SetLabel("a", {{"p", {{1, 1}, wrong}}}).code(), absl::StatusCode::kInvalidArgument);
  for (size_t i = 0; i < QueryEngine::kMaxLabels; ++i) {
    ASSERT_EQ(engine->SetLabel(absl::StrCat("label", i), good), absl::OkStatus());
  }
  EXPECT_EQ(engine->SetLabel("more", good).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine->SetLabel("label3", good), absl::OkStatus()) << "one that is there moves";
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(engine->SetLabel("label3", good), absl::OkStatus()) << "slots are freed";
}

TEST(VersionsTest, MayBeAskedToBeNewEnough) {
  const PolicySpec spec = Plain("p");
  const auto engine = EngineWith({spec});
  ASSERT_EQ(engine->SetLabel("best", {{"p", {{1, 2}, MakeWeights(spec, 2)}}}), absl::OkStatus());
  OwnedRows rows = MakeRows(spec, 1);
  rows.min_version = {1, 3};
  EXPECT_TRUE(AskOne(*engine, rows).ok());
  rows.min_version = {1, 4};
  absl::Status status = AskOne(*engine, rows).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has version 3 of learner epoch 1 here, expected at least version 4 of learner epoch 1"));
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 5)), absl::OkStatus());
  EXPECT_EQ(AskOne(*engine, rows)->version.n, 5);
  rows.version = "best";
  EXPECT_EQ(AskOne(*engine, rows).status().code(), absl::StatusCode::kFailedPrecondition);
  rows.min_version = {0, 9};
  EXPECT_TRUE(AskOne(*engine, rows).ok()) << "of an earlier learner epoch";
}

/// Counts how often weights are read.
class CountingSource final : public WeightSource {
 public:
  explicit CountingSource(int64_t n) : n_(n) {}
  absl::StatusOr<policy::WeightSnapshotPtr> Load(const PolicySpec& spec) override {
    ++loads_;
    return MakeWeights(spec, n_);
  }
  const int64_t n_;
  int loads_ = 0;
};

TEST(VersionsTest, AreReadWhenTheyAreAskedAndOnce) {
  const PolicySpec spec = Plain("p");
  const auto engine = *QueryEngine::Create({spec}, {});
  const OwnedRows rows = MakeRows(spec, 1);
  const auto first = std::make_shared<CountingSource>(1);
  const auto second = std::make_shared<CountingSource>(2);
  ASSERT_EQ(engine->SetSource(spec.id, {1, 1}, first), absl::OkStatus());
  EXPECT_EQ(engine->ListPolicies().policies[0].version.n, 1) << "known without reading it";
  EXPECT_EQ(first->loads_, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(AskOne(*engine, rows)->version.n, 1);
  EXPECT_EQ(first->loads_, 1);
  ASSERT_EQ(engine->SetSource(spec.id, {1, 2}, second), absl::OkStatus());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(AskOne(*engine, rows)->version.n, 2);
  EXPECT_EQ(second->loads_, 1);
  ASSERT_EQ(engine->SetSource(spec.id, {1, 1}, first), absl::OkStatus());
  EXPECT_EQ(AskOne(*engine, rows)->version.n, 2) << "versions only grow";
  EXPECT_EQ(engine->ListPolicies().policies[0].version.n, 2);
}

/// Has a policy's actor and, of the same version, its value network.
class SourceWithValues final : public WeightSource {
 public:
  explicit SourceWithValues(int64_t n) : n_(n) {}
  absl::StatusOr<policy::WeightSnapshotPtr> Load(const PolicySpec& spec) override { return MakeWeights(spec, n_); }
  absl::StatusOr<policy::WeightSnapshotPtr> LoadValues(const PolicySpec& spec) override {
    ++loads_;
    return MakeWeights(*policy::ValueNetworkOf(spec), n_);
  }
  const int64_t n_;
  int loads_ = 0;
};

/// The values that the network of `version` gives the rows.
std::vector<float> ValuesOf(const PolicySpec& spec, const OwnedRows& rows, int64_t version) {
  const PolicySpec network = *policy::ValueNetworkOf(spec);
  auto critic = *inference::Actor::Create(network, 1);
  EXPECT_EQ(critic->SetWeights(MakeWeights(network, version)), absl::OkStatus());
  std::vector<inference::RowKey> keys;
  for (int64_t row = 0; row < rows.rows; ++row) {
    keys.push_back(
        {.slot = base::AgentSlot(rows.agent_slots.empty() ? 0 : rows.agent_slots[static_cast<size_t>(row)])});
  }
  std::vector<float> values(static_cast<size_t>(rows.rows));
  inference::ActInput input;
  input.rows = rows.rows;
  input.obs = rows.obs.data();
  input.keys = keys.data();
  EXPECT_EQ(critic->Forward(input, absl::MakeSpan(values)), absl::OkStatus());
  return values;
}

TEST(ValuesTest, AreThoseOfTheVersionThatActs) {
  PolicySpec spec = Plain("p");
  spec.agent_id_size = 3;
  spec.normalize_observations = true;
  spec.has_action_mask = true;
  spec.SetCriticAgentId(true);
  const auto engine = *QueryEngine::Create({spec}, {.has_values = true});
  const OwnedRows rows = MakeRows(spec, 5);
  ActionQuery query = Ask({&rows}, false);
  query.outputs = {"value"};
  const auto first = std::make_shared<SourceWithValues>(1);
  const auto second = std::make_shared<SourceWithValues>(2);
  ASSERT_EQ(engine->SetSource(spec.id, {1, 1}, first), absl::OkStatus());
  EXPECT_TRUE(AskOne(*engine, rows)->values.empty()) << "not asked for";
  EXPECT_EQ(first->loads_, 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ((*engine->Compute(query))[0].values, ValuesOf(spec, rows, 1));
  EXPECT_EQ(first->loads_, 1);
  EXPECT_TRUE((*engine->Compute(query))[0].actions.empty());
  ASSERT_EQ(engine->SetSource(spec.id, {1, 2}, second, MakeWeights(spec, 2)), absl::OkStatus());
  EXPECT_EQ((*engine->Compute(query))[0].values, ValuesOf(spec, rows, 2));
  EXPECT_EQ(second->loads_, 1);
}

TEST(ValuesTest, AreRefusedWhereThereAreNone) {
  PolicySpec joint = Plain("joint");
  joint.SetCriticInput(policy::NetworkInput::kJointObservation, 8);
  for (const auto& [spec, has_values] : {std::pair(Plain("p"), false), std::pair(joint, true)}) {
    const auto engine = *QueryEngine::Create({spec}, {.has_values = has_values});
    const OwnedRows rows = MakeRows(spec, 1);
    ActionQuery query = Ask({&rows}, false);
    query.outputs = {"value"};
    const absl::Status status = engine->Compute(query).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("it has no output \"value\", expected action"));
  }
}

TEST(OutputsTest, AreThoseThatWereNamed) {
  PolicySpec spec = WithCore(
      MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Tuple({*Space::Box(-0.01, 0.01, {2}), *Space::Discrete(3)})),
      policy::CoreKind::kGru);
  const auto engine = EngineWith({spec});
  const OwnedRows rows = MakeRows(spec, 4);
  const auto ask = [&](const std::vector<std::string>& outputs, bool deterministic) {
    ActionQuery query = Ask({&rows}, deterministic);
    query.outputs = outputs;
    query.seed = 5;
    return std::move((*engine->Compute(query))[0]);
  };
  EXPECT_THAT(OutputNamesOf(spec, false),
              ElementsAre("action", "sampled_action", "log_prob", "state_out", "logits", "mean"));
  const PolicyActions usual = ask({}, false);
  EXPECT_TRUE(usual.logits.empty());
  EXPECT_TRUE(usual.mean.empty());
  const PolicyActions all = ask(OutputNamesOf(spec, false), false);
  EXPECT_EQ(Values(all), Values(usual));
  ASSERT_EQ(all.logits.size(), 12u);
  ASSERT_EQ(all.mean.size(), 8u);
  const PolicyActions mode = ask({"sampled_action", "mean", "log_prob"}, true);
  EXPECT_TRUE(mode.actions.empty());
  EXPECT_TRUE(mode.state_out.empty());
  EXPECT_EQ(mode.state_tag, 0u);
  EXPECT_EQ(mode.mean, all.mean);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t word = 0; word < 2; ++word) {
      EXPECT_EQ(mode.sampled_actions[3 * row + word].f32, mode.mean[2 * row + word]) << "before bounding";
    }
    // The most probable category has the largest logit.
    const float* const logits = &all.logits[3 * row];
    EXPECT_EQ(mode.sampled_actions[3 * row + 2].i32, std::max_element(logits, logits + 3) - logits);
  }
  EXPECT_NE(usual.sampled_actions[0].f32, mode.sampled_actions[0].f32);
}

TEST(OutputsTest, AreNoMoreThanThereAre) {
  const PolicySpec spec = Plain("p");
  const auto engine = EngineWith({spec});
  const OwnedRows rows = MakeRows(spec, 1);
  ActionQuery query = Ask({&rows}, true);
  query.outputs = {"action", "sampled_action", "log_prob", "action", "action", "action", "action"};
  EXPECT_TRUE(engine->Compute(query).ok()) << "as many as there are names";
  query.outputs.push_back("action");
  const absl::Status refused = engine->Compute(query).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(refused.message()), "outputs has 8 names, expected at most 7");
}

TEST(OutputsTest, ThatThereAreNoneOfAreRefused) {
  PolicySpec random = Plain("random");
  random.policy_class = *policy::ParsePolicyClass("random");
  const PolicySpec spec = Plain("p");
  const auto engine = *QueryEngine::Create({spec, random}, {});
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  const auto refused = [&](const PolicySpec& of, const std::string& output) {
    const OwnedRows rows = MakeRows(of, 1);
    ActionQuery query = Ask({&rows}, true);
    query.outputs = {"action", output};
    const absl::Status status = engine->Compute(query).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << output;
    return std::string(status.message());
  };
  EXPECT_EQ(refused(spec, "value"),
            "policy \"p\": it has no output \"value\", expected action, sampled_action, log_prob, logits");
  refused(spec, "mean");
  refused(spec, "state_out");
  refused(random, "logits");
  refused(spec, std::string(100000, 'x'));
}

TEST(SeedTest, TheSameSeedHasTheSameAnswerFromAnyServer) {
  PolicySpec beta = MakeSpec("beta", *Space::Box(-1, 1, {3}), *Space::Box(-1, 1, {3}));
  beta.continuous = policy::ContinuousDistribution::kBeta;
  beta.action_bound_method = policy::ActionBoundMethod::kNone;
  beta.action_scaling = true;
  PolicySpec random = Plain("random");
  random.policy_class = *policy::ParsePolicyClass("random");
  const std::vector<PolicySpec> specs = {Plain("p"), beta, random};
  std::vector<std::unique_ptr<QueryEngine>> engines;
  for (const uint64_t seed : {1, 2}) {
    engines.push_back(*QueryEngine::Create(specs, {.seed = seed}));
    for (const PolicySpec& spec : {specs[0], specs[1]}) {
      ASSERT_EQ(engines.back()->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
    }
  }
  for (const PolicySpec& spec : specs) {
    const OwnedRows rows = MakeRows(spec, 64);
    const auto ask = [&](QueryEngine& engine, std::optional<uint64_t> seed) {
      ActionQuery query = Ask({&rows}, false);
      query.seed = seed;
      const auto answer = engine.Compute(query);
      EXPECT_TRUE(answer.ok()) << answer.status();
      return Values((*answer)[0]);
    };
    const std::vector<float> seven = ask(*engines[0], 7);
    EXPECT_EQ(ask(*engines[0], 7), seven) << spec.id.value();
    EXPECT_EQ(ask(*engines[1], 7), seven) << spec.id.value();
    EXPECT_NE(ask(*engines[0], 8), seven) << spec.id.value();
    EXPECT_NE(ask(*engines[0], std::nullopt), ask(*engines[0], std::nullopt)) << spec.id.value();
    EXPECT_NE(ask(*engines[0], std::nullopt), ask(*engines[1], std::nullopt)) << spec.id.value();
  }
}

TEST(StateTagTest, AStateOfAnotherPolicyOrNetworkIsRefused) {
  const PolicySpec walker = WithCore(Plain("walker"), policy::CoreKind::kGru);
  PolicySpec twin = walker;
  twin.id = policy::PolicyId("twin");
  PolicySpec deeper = walker;
  deeper.actor.hidden_sizes = {16, 16, 16};
  const auto engine = EngineWith({walker, twin, Plain("plain")});
  OwnedRows rows = MakeRows(walker, 2);
  const PolicyActions first = *AskOne(*engine, rows);
  EXPECT_NE(first.state_tag, 0u);
  EXPECT_EQ(AskOne(*engine, MakeRows(Plain("plain"), 1))->state_tag, 0u);
  rows.state_in = first.state_out;
  rows.state_tag = first.state_tag;
  EXPECT_TRUE(AskOne(*engine, rows).ok());
  EXPECT_TRUE(AskOne(*EngineWith({walker}, 77), rows).ok()) << "any server continues";
  rows.state_tag = 0;
  EXPECT_TRUE(AskOne(*engine, rows).ok()) << "unchecked";
  rows.state_tag = first.state_tag;
  const auto refused = [&](QueryEngine& asked) {
    const absl::Status status = AskOne(asked, rows).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("state_in is of another policy or network"));
  };
  rows.policy_id = "twin";
  refused(*engine);
  rows.policy_id = "walker";
  refused(*EngineWith({deeper}));
  rows.policy_id = "plain";
  refused(*engine);
}

}  // namespace
}  // namespace troupe::serving
