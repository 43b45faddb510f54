#include "lib/run/learner/policy_changes.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/envs/register_all.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using policy::AddPolicy;
using policy::PolicyId;
using policy::PolicySlot;
using policy::PolicyTablePtr;
using testing::HasSubstr;

constexpr char kRun[] = R"(
env: {name: rock_paper_scissors}
algorithm: {name: ippo}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
multi_agent: {policies: {main: {}, dice: {class: random}}, policy_mapping: {player_0: main, player_1: dice}}
)";

void ExpectSameButId(policy::PolicyState a, const policy::PolicyState& b) {
  a.id = b.id;
  policy::ExpectSameBits(a, b);
}

/// Other parameters for another id or seed.
policy::PolicyState Draw(const policy::PolicySpec& spec, const policy::AlgorithmSpec& /*algorithm*/, uint64_t seed) {
  policy::PolicyState state;
  state.id = spec.id;
  std::vector<float> parameters(static_cast<size_t>(policy::ParameterLayout::For(spec).size()));
  uint64_t random = seed ^ std::hash<std::string>()(spec.id.value());
  for (float& parameter : parameters) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    parameter = static_cast<float>(random >> 40) * 0x1p-24f;
  }
  state.Set(policy::kParameters, std::move(parameters));
  return state;
}

class PolicyChangesTest : public testing::Test {
 protected:
  PolicyChangesTest() {
    envs::RegisterAllEnvs(registry_);
    run_ = Resolve(kRun);
    table_ = *policy::PolicyTable::Make(run_.policies, {true, false}, run_.mapping_rules, run_.agent_ids());
    trainer_ = std::make_unique<learner::FakeTrainer>(run_.schema.policies);
  }
  config::ResolvedRun Resolve(const std::string& yaml) {
    const auto config = config::RunConfig::FromYaml(yaml, "run.yaml", {});
    EXPECT_TRUE(config.ok()) << config.status();
    const auto run = config::ResolveRun(*config, registry_);
    EXPECT_TRUE(run.ok()) << run.status();
    return *run;
  }
  absl::StatusOr<ResolvedChange> Try(const policy::PolicyChange& change) {
    PolicySources sources = {&Draw, &run_, trainer_.get(), [](PolicySlot) { return size_t{0}; }};
    TROUPE_ASSIGN_OR_RETURN(const PolicyPlan plan, PlanPolicyChange(change, *table_, sources));
    const std::optional<PolicyImport>& import = plan.import;
    if (!import.has_value()) return ResolvePolicyChange(change, *table_, sources);
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state,
                            config::LoadPolicy(import->path, import->source, import->spec, import->part));
    sources.imported = &state;
    return ResolvePolicyChange(change, *table_, sources);
  }
  /// Makes the change; what it added.
  std::vector<learner::NewPolicy> Do(const policy::PolicyChange& change) {
    absl::StatusOr<ResolvedChange> resolved = Try(change);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    if (!resolved.ok()) return {};
    table_ = resolved->table;
    for (const learner::NewPolicy& added : resolved->change.added) {
      EXPECT_TRUE(trainer_->AddPolicy(added.slot, table_->Find(added.slot)->spec, added.state, added.like).ok());
    }
    return resolved->change.added;
  }
  void ExpectError(const policy::PolicyChange& change, absl::StatusCode code, const std::string& text) {
    const auto resolved = Try(change);
    EXPECT_EQ(resolved.status().code(), code) << resolved.status();
    EXPECT_THAT(std::string(resolved.status().message()), HasSubstr(text));
  }
  policy::PolicyState Trained(const policy::PolicySpec& spec, int64_t steps) {
    return storage::StateForTesting(spec, steps).policies[0];
  }

  env::EnvRegistry registry_;
  config::ResolvedRun run_;
  PolicyTablePtr table_;
  std::unique_ptr<learner::FakeTrainer> trainer_;
  storage::ScratchDirectory scratch_;
};

TEST_F(PolicyChangesTest, AFreshPolicyIsLikeTheOthersAndDrawnFromItsIdAndRevision) {
  const auto added = Do(AddPolicy{.id = PolicyId("next")});
  ASSERT_EQ(added.size(), 1u);
  EXPECT_EQ(added[0].slot, PolicySlot(2));
  EXPECT_EQ(added[0].like, PolicySlot(0)) << "the one with networks";
  EXPECT_EQ(policy::FirstDifference(table_->Find(PolicySlot(2))->spec, run_.policies[0]), "");
  EXPECT_TRUE(table_->Find(PolicySlot(2))->trains);
  const auto other = Do(AddPolicy{.id = PolicyId("other"), .trains = false});
  EXPECT_FALSE(table_->Find(PolicySlot(3))->trains);
  EXPECT_NE(added[0].state.parameters(), other[0].state.parameters());
  // Another of the same id begins with other weights.
  const auto again = Do(AddPolicy{.id = PolicyId("next"), .replace = true});
  EXPECT_NE(added[0].state.parameters(), again[0].state.parameters());
  EXPECT_TRUE(table_->Find(PolicySlot(2))->replaced);
}

TEST_F(PolicyChangesTest, AmongPoliciesOfTwoAlgorithmsANewOneSaysWhichItIsLike) {
  run_ = Resolve(R"(
env: {name: rock_paper_scissors}
algorithm: {name: ippo}
multi_agent: {policies: {left: {}, right: {algorithm: {name: a2c}}}}
)");
  table_ = *policy::PolicyTable::Make(run_.policies, {true, true}, run_.mapping_rules, run_.agent_ids());
  trainer_ = std::make_unique<learner::FakeTrainer>(run_.schema.policies);
  ExpectError(
      AddPolicy{.id = PolicyId("next")}, absl::StatusCode::kInvalidArgument,
      "policies \"left\" and \"right\" are not of one form (they are trained by ppo and a2c); say which one the "
      "new policy is like");
  EXPECT_EQ(Do(AddPolicy{.id = PolicyId("next"), .like = PolicyId("right")})[0].like, PolicySlot(1));
  EXPECT_EQ(Do(AddPolicy{.id = PolicyId("dice"), .policy_class = "random"}).size(), 1u) << "nobody trains it";
}

TEST_F(PolicyChangesTest, ACopyHasTheWholeState) {
  ASSERT_TRUE(trainer_->ImportState(Trained(run_.policies[0], 5000), PolicySlot(0)).ok());
  const auto added = Do(AddPolicy{.id = PolicyId("main_v1"), .copy_of = PolicyId("main"), .trains = false});
  ExpectSameButId(added[0].state, *trainer_->ExportState(PolicySlot(0)));
  EXPECT_EQ(added[0].state.id, PolicyId("main_v1"));
  EXPECT_FALSE(table_->Find(added[0].slot)->trains);
}

TEST_F(PolicyChangesTest, ClassesWithoutNetworksHaveNoWeights) {
  for (const char* policy_class : {"random", "scripted:always_same"}) {
    const auto added = Do(AddPolicy{.id = PolicyId(policy_class[0] == 'r' ? "r" : "s"), .policy_class = policy_class});
    ASSERT_EQ(added.size(), 1u);
    EXPECT_TRUE(added[0].state.parameters().empty());
    EXPECT_FALSE(table_->Find(added[0].slot)->trains);
  }
  ExpectError(AddPolicy{.id = PolicyId("x"), .policy_class = "scripted:nobody"}, absl::StatusCode::kNotFound, "nobody");
  ExpectError(AddPolicy{.id = PolicyId("x"), .policy_class = "randon"}, absl::StatusCode::kInvalidArgument, "random");
  ExpectError(AddPolicy{.id = PolicyId("x"), .policy_class = "random", .copy_of = PolicyId("main")},
              absl::StatusCode::kInvalidArgument, "expected none, or class trained");
  ExpectError(AddPolicy{.id = PolicyId("x"), .like = PolicyId("dice")}, absl::StatusCode::kInvalidArgument,
              "which has no networks");
}

TEST_F(PolicyChangesTest, SettingsGoToTheTrainerAndToPoliciesThatAreLikeIt) {
  const auto set = Try(policy::SetPolicy{PolicyId("main"), {"algorithm.lr=0.5"}});
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_TRUE(set->change.algorithm.has_value());
  EXPECT_EQ(set->change.algorithm->slot, PolicySlot(0));
  EXPECT_EQ(std::get<double>(set->change.algorithm->algorithm.options.at("lr")), 0.5);
  table_ = set->table;
  // Earlier settings hold on.
  const auto more = Try(policy::SetPolicy{PolicyId("main"), {"algorithm.gamma=0.5"}});
  EXPECT_EQ(std::get<double>(more->change.algorithm->algorithm.options.at("lr")), 0.5);
  Do(AddPolicy{.id = PolicyId("copy"), .copy_of = PolicyId("main")});
  EXPECT_EQ(table_->Find(PolicySlot(2))->settings, std::vector<std::string>{"algorithm.lr=0.5"});
  Do(AddPolicy{.id = PolicyId("main"), .replace = true});
  EXPECT_EQ(table_->Find(*table_->FindSlot(PolicyId("main")))->settings, std::vector<std::string>{"algorithm.lr=0.5"});
  Do(AddPolicy{.id = PolicyId("more_dice"), .policy_class = "random"});
  EXPECT_TRUE(table_->Find(*table_->FindSlot(PolicyId("more_dice")))->settings.empty());

  ExpectError(policy::SetPolicy{PolicyId("main"), {}}, absl::StatusCode::kInvalidArgument, "got no setting");
  ExpectError(policy::SetPolicy{PolicyId("dice"), {"algorithm.lr=1"}}, absl::StatusCode::kInvalidArgument, "random");
  ExpectError(policy::SetPolicy{PolicyId("main"), {"algorithm.lr=x"}}, absl::StatusCode::kInvalidArgument, "got");
}

TEST_F(PolicyChangesTest, BadIdsAreRefused) {
  for (const std::string& id : {std::string(), std::string("../x"), std::string(200, 'a'), std::string("a\nb")}) {
    ExpectError(AddPolicy{.id = PolicyId(id)}, absl::StatusCode::kInvalidArgument, "policy id");
    ExpectError(policy::RemovePolicy{PolicyId(id)}, absl::StatusCode::kNotFound, "");
  }
  ExpectError(AddPolicy{.id = PolicyId("main")}, absl::StatusCode::kAlreadyExists, "\"main\"");
  ExpectError(AddPolicy{.id = PolicyId("mian"), .replace = true}, absl::StatusCode::kNotFound, "nearest is \"main\"");
  ExpectError(AddPolicy{.id = PolicyId("x"), .copy_of = PolicyId("mian")}, absl::StatusCode::kNotFound,
              "nearest is \"main\"");
  ExpectError(policy::SetPoliciesTrain{{PolicyId("mian")}, true}, absl::StatusCode::kNotFound, "nearest is \"main\"");
  ExpectError(policy::SetPoliciesTrain{{}, true}, absl::StatusCode::kInvalidArgument, "at least one");
  ExpectError(policy::SetPoliciesTrain{{PolicyId("dice")}, true}, absl::StatusCode::kInvalidArgument, "never trained");
  ExpectError(policy::SetTrainable{{PolicyId("nobody")}}, absl::StatusCode::kNotFound, "nobody");
  ExpectError(policy::SetMapping{{{"*", {{PolicyId("nobody")}}}}}, absl::StatusCode::kNotFound, "nobody");
}

TEST_F(PolicyChangesTest, OneThatPlaysIsNotRemovedAndTheLastThatTrainsMayBe) {
  ExpectError(policy::RemovePolicy{PolicyId("main")}, absl::StatusCode::kFailedPrecondition, "policy_mapping gives it");
  Do(policy::SetMapping{{{"*", {{PolicyId("dice")}}}}});
  Do(policy::RemovePolicy{PolicyId("main")});
  EXPECT_FALSE(table_->FindSlot(PolicyId("main")).has_value());
  Do(policy::SetTrainable{{}});
}

TEST_F(PolicyChangesTest, SpacesMustBeTheAgents) {
  policy::PolicySpec other = run_.policies[0];
  other.id = PolicyId("other");
  other.action_space = *space::Space::Discrete(7);
  table_ = *table_->Add(other, true);
  ExpectError(policy::SetMapping{{{"*", {{PolicyId("other")}}}}}, absl::StatusCode::kInvalidArgument,
              "policy \"other\" cannot play agent \"player_0\": its action space is Discrete(7)");
  ExpectError(AddPolicy{.id = PolicyId("main"), .like = PolicyId("other"), .replace = true},
              absl::StatusCode::kInvalidArgument, "cannot play agent");
  ExpectError(AddPolicy{.id = PolicyId("x")}, absl::StatusCode::kInvalidArgument, "say which one");
  ExpectError(AddPolicy{.id = PolicyId("x"), .like = PolicyId("other"), .copy_of = PolicyId("main")},
              absl::StatusCode::kFailedPrecondition, "cannot be copied: the action space is");
}

TEST_F(PolicyChangesTest, ThereAreAtMost1024) {
  for (int i = 2; i < 1024; ++i)
    table_ = *table_->Add(
        [&] {
          policy::PolicySpec spec = run_.policies[1];
          spec.id = PolicyId("p" + std::to_string(i));
          return spec;
        }(),
        false);
  ExpectError(AddPolicy{.id = PolicyId("x"), .policy_class = "random"}, absl::StatusCode::kResourceExhausted, "1024");
}

/// Run folders to import from.
class ImportTest : public PolicyChangesTest {
 protected:
  /// A run that began with main and dice, and has got "late" at its checkpoint, in the place of dice.
  std::string MakeRun(const std::string& yaml, bool separately) {
    const config::ResolvedRun source = Resolve(yaml);
    storage::RunFolder::Options options;
    options.directory = scratch_.path() + "/run" + std::to_string(++runs_);
    options.checkpoint.spec_hash = source.schema.Hash();
    options.checkpoint.config_yaml = source.config.ToYaml();
    options.checkpoint.store_separately = separately;
    options.specs = source.policies;
    const auto folder = storage::RunFolder::Open(options);
    EXPECT_TRUE(folder.ok()) << folder.status();
    PolicyTablePtr table =
        *policy::PolicyTable::Make(source.policies, {true, false}, source.mapping_rules, source.agent_ids());
    table = *table->SetMapping({{"*", {{PolicyId("main")}}}});
    table = *(*table->Remove(PolicyId("dice")))->Release({PolicySlot(1)});
    policy::PolicySpec late = source.policies[0];
    late.id = PolicyId("gap");
    table = *table->Add(late, true);
    late.id = PolicyId("late");
    table = *table->Add(late, true);
    table = *(*table->Remove(PolicyId("gap")))->Release({PolicySlot(1)});
    learner::LearnerState state = storage::StateForTesting(source.policies[0], 1000);
    state.table = table;
    state.policies.resize(2);  // the second slot is free
    state.policies.push_back(Trained(late, 2000));
    state.trained_as = {PolicyId("main"), PolicyId(), PolicyId("main")};
    EXPECT_TRUE((*folder)->Save(state, true).ok());
    std::vector<std::string> damaged;
    const auto back = (*folder)->LoadLatest(&damaged);
    EXPECT_TRUE(back.ok()) << back.status();
    if (back.ok()) {
      EXPECT_EQ(policy::ToJson(*back->table), policy::ToJson(*table));
      EXPECT_EQ(back->trained_as, state.trained_as);
      EXPECT_TRUE(back->policies[1].parameters().empty());
      policy::ExpectSameBits(back->policies[2], state.policies[2]);
    }
    return options.directory;
  }
  int runs_ = 0;
};

TEST_F(ImportTest, APolicyAloneComesWithItsWholeState) {
  for (const bool separately : {false, true}) {
    const std::string folder = MakeRun(kRun, separately);
    const PolicyId id(separately ? "guest_s" : "guest");
    const auto added = Do(AddPolicy{.id = id, .import_from = folder + "#late"});
    ASSERT_EQ(added.size(), 1u);
    policy::PolicySpec late = run_.policies[0];
    late.id = PolicyId("late");
    ExpectSameButId(added[0].state, Trained(late, 2000));
    // Without a name, the one of its own.
    policy::ExpectSameBits(Do(AddPolicy{.id = PolicyId("main"), .import_from = folder, .replace = true})[0].state,
                           Trained(run_.policies[0], 1000));
    // Frozen for ever, without the optimizer.
    const auto frozen =
        Do(AddPolicy{.id = PolicyId(separately ? "old_s" : "old"), .policy_class = "checkpoint:" + folder + "#late"});
    EXPECT_EQ(frozen[0].state.parameters(), added[0].state.parameters());
    EXPECT_TRUE(frozen[0].state.Floats("adam.exp_avg").empty());
  }
}

TEST_F(ImportTest, WhatCannotBeImportedIsSaid) {
  const std::string folder = MakeRun(kRun, false);
  const auto import = [](const std::string& from) { return AddPolicy{.id = PolicyId("x"), .import_from = from}; };
  ExpectError(import(scratch_.path() + "/none#main"), absl::StatusCode::kNotFound, "neither a checkpoint nor a run");
  ExpectError(import(folder + "#dice"), absl::StatusCode::kNotFound, "expected one of main, late");
  AddPolicy both = import(folder + "#late");
  both.copy_of = PolicyId("main");
  ExpectError(both, absl::StatusCode::kInvalidArgument, "expected one of them");
  std::string wide = kRun;
  wide.replace(wide.find("actor_hidden_sizes: [8]"), 23, "actor_hidden_sizes: [9]");
  ExpectError(import(MakeRun(wide, false) + "#late"), absl::StatusCode::kFailedPrecondition, "does not fit");
  const std::string file = folder + "/checkpoints/latest/policies.safetensors";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-2, std::ios::end).put('x');
  ExpectError(import(folder + "#late"), absl::StatusCode::kDataLoss, "checksum");
}

}  // namespace
}  // namespace troupe::run
