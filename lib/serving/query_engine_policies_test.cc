// More policies than actors in memory, weights that are loaded when they are asked for, and policies that come and go.

#include <atomic>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

using policy::PolicySpec;
using policy::PolicyTablePtr;
using testing::HasSubstr;

PolicySpec NamedSpec(const std::string& id) {
  return MakeSpec(id, *space::Space::Box(-1, 1, {3}), *space::Space::Box(-9, 9, {2}));
}

std::vector<PolicySpec> ManySpecs(int policies) {
  std::vector<PolicySpec> specs;
  for (int p = 0; p < policies; ++p) specs.push_back(NamedSpec(absl::StrCat("p", p)));
  return specs;
}

PolicyTablePtr MakeTable(std::vector<PolicySpec> specs) {
  const std::vector<policy::MappingRule> all_to_first = {{"*", {{specs[0].id, 1.0}}}};
  const std::vector<bool> trains(specs.size(), true);
  auto table = policy::PolicyTable::Make(std::move(specs), trains, all_to_first, {"agent"});
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

absl::StatusOr<PolicyActions> AskOne(QueryEngine& engine, const PolicySpec& spec) {
  const OwnedRows rows = MakeRows(spec, 2);
  absl::StatusOr<ActionAnswer> answer = engine.Compute(Ask({&rows}, true));
  if (!answer.ok()) return answer.status();
  return (*answer)[0];
}

/// What an engine with that policy alone answers.
std::vector<float> Expected(const PolicySpec& spec, int64_t version) {
  auto engine = *QueryEngine::Create({spec}, {});
  EXPECT_EQ(engine->SetWeights(MakeWeights(spec, version)), absl::OkStatus());
  return Values(*AskOne(*engine, spec));
}

/// Weights whose numbers are of a version; fails for the policies it is told to. Counts.
class FakeSource final : public WeightSource {
 public:
  absl::StatusOr<policy::WeightSnapshotPtr> Load(const PolicySpec& spec) override {
    ++loads;
    if (spec.id.value() == damaged) return absl::DataLossError("it is damaged");
    while (blocked) std::this_thread::yield();
    return MakeWeights(spec, version);
  }

  std::atomic<int> loads{0};
  std::atomic<bool> blocked{false};
  std::string damaged;
  int64_t version = 1;
};

TEST(QueryEnginePoliciesTest, FewActorsAnswerAsManyDo) {
  const std::vector<PolicySpec> specs = ManySpecs(7);
  auto engine = *QueryEngine::Create(specs, {.policy_map_capacity = 2});
  std::vector<int64_t> versions(specs.size(), 1);
  for (const PolicySpec& spec : specs) ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  base::PhiloxSequence random(base::PhiloxKey::Make(3, base::RandomStream::kTest), {});
  for (int i = 0; i < 300; ++i) {
    const size_t p = random.Below(7);
    if (random.Below(4) == 0) {
      ASSERT_EQ(engine->SetWeights(MakeWeights(specs[p], ++versions[p])), absl::OkStatus());
    }
    const auto got = AskOne(*engine, specs[p]);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->version.n, versions[p]);
    EXPECT_EQ(Values(*got), Expected(specs[p], versions[p]));
    EXPECT_LE(engine->MapStats().resident, 2);
  }
  const policy::PolicyMapStats stats = engine->MapStats();
  EXPECT_GT(stats.hits, 20);
  EXPECT_GT(stats.evictions, 100);
  EXPECT_EQ(stats.writes + stats.write_failures, 0) << "an actor holds nothing that must be kept";
}

TEST(QueryEnginePoliciesTest, OneQueryMayAskMorePoliciesThanFit) {
  const std::vector<PolicySpec> specs = ManySpecs(5);
  auto engine = *QueryEngine::Create(specs, {.policy_map_capacity = 1});
  std::vector<OwnedRows> rows;
  for (const PolicySpec& spec : specs) {
    ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
    rows.push_back(MakeRows(spec, 2));
  }
  const auto answer = engine->Compute(Ask({&rows[0], &rows[1], &rows[2], &rows[3], &rows[4], &rows[0]}, true));
  ASSERT_TRUE(answer.ok()) << answer.status();
  for (size_t p = 0; p < 5; ++p) EXPECT_EQ(Values((*answer)[p]), Expected(specs[p], 1));
  EXPECT_EQ(Values((*answer)[5]), Values((*answer)[0]));
}

TEST(QueryEnginePoliciesTest, RefusesACapacityBelowOne) {
  const std::vector<PolicySpec> specs = ManySpecs(1);
  const absl::Status status = QueryEngine::Create(specs, {.policy_map_capacity = 0}).status();
  EXPECT_EQ(status, absl::InvalidArgumentError("policy_map_capacity is 0, expected at least 1"));
}

TEST(QueryEnginePoliciesTest, AClassWithoutWeightsComesAndGoesLikeOthers) {
  std::vector<PolicySpec> specs = ManySpecs(2);
  specs[0].policy_class = *policy::ParsePolicyClass("random");
  FakeSource source;
  auto engine = *QueryEngine::Create(specs, {.policy_map_capacity = 1, .source = &source});
  for (int round = 0; round < 3; ++round) {
    const auto dice = AskOne(*engine, specs[0]);
    ASSERT_TRUE(dice.ok()) << dice.status();
    EXPECT_EQ(dice->version, policy::WeightVersion());
    EXPECT_EQ(AskOne(*engine, specs[1])->version.n, 1);
  }
  EXPECT_EQ(source.loads, 3) << "of the other one";
}

TEST(QueryEnginePoliciesTest, WeightsAreLoadedWhenTheirPolicyIsAsked) {
  const std::vector<PolicySpec> specs = ManySpecs(3);
  FakeSource source;
  auto engine = *QueryEngine::Create(specs, {.policy_map_capacity = 2, .source = &source});
  EXPECT_EQ(source.loads, 0);
  for (const int p : {0, 0, 1, 0, 1, 2, 1, 0}) {
    EXPECT_EQ(Values(*AskOne(*engine, specs[static_cast<size_t>(p)])), Expected(specs[static_cast<size_t>(p)], 1));
  }
  EXPECT_EQ(source.loads, 4) << "0, 1, 2 and, after it left for 2, 0";
  // What is handed in is newer than what lies there.
  ASSERT_EQ(engine->SetWeights(MakeWeights(specs[1], 8)), absl::OkStatus());
  EXPECT_EQ(AskOne(*engine, specs[1])->version.n, 8);
}

TEST(QueryEnginePoliciesTest, APolicyWhoseWeightsAreDamagedFailsAlone) {
  const std::vector<PolicySpec> specs = ManySpecs(3);
  FakeSource source;
  source.damaged = "p1";
  auto engine = *QueryEngine::Create(specs, {.policy_map_capacity = 2, .source = &source});
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(AskOne(*engine, specs[0]).ok());
    EXPECT_EQ(AskOne(*engine, specs[1]).status(), absl::DataLossError("it is damaged"));
    EXPECT_TRUE(AskOne(*engine, specs[2]).ok());
  }
  source.damaged.clear();
  EXPECT_TRUE(AskOne(*engine, specs[1]).ok()) << "it is tried again";
}

TEST(QueryEnginePoliciesTest, OneOfManyQueriesLoadsAndOthersAreAnsweredMeanwhile) {
  const std::vector<PolicySpec> specs = ManySpecs(2);
  FakeSource source;
  auto engine = *QueryEngine::Create(specs, {.source = &source});
  ASSERT_TRUE(AskOne(*engine, specs[1]).ok());
  source.blocked = true;
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] { answered += AskOne(*engine, specs[0]).ok() ? 1 : 0; });
  }
  while (source.loads < 2) std::this_thread::yield();
  EXPECT_TRUE(AskOne(*engine, specs[1]).ok());
  EXPECT_EQ(answered, 0);
  source.blocked = false;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(source.loads, 2);
}

TEST(QueryEnginePoliciesTest, FollowsTheTable) {
  const std::vector<PolicySpec> specs = ManySpecs(2);
  auto engine = *QueryEngine::Create(specs, {});
  for (const PolicySpec& spec : specs) ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 3)), absl::OkStatus());
  PolicyTablePtr table = MakeTable(specs);
  ASSERT_EQ(engine->SetPolicies(*table), absl::OkStatus());
  EXPECT_EQ(AskOne(*engine, specs[1])->version.n, 3) << "what stays keeps its weights";

  const PolicySpec added = NamedSpec("added");
  EXPECT_EQ(engine->SetWeights(MakeWeights(added, 1)).code(), absl::StatusCode::kNotFound);
  table = *table->Add(added, true);
  ASSERT_EQ(engine->SetPolicies(*table), absl::OkStatus());
  EXPECT_EQ(AskOne(*engine, added).status(), absl::UnavailableError("policy \"added\" has no weights yet"));
  ASSERT_EQ(engine->SetWeights(MakeWeights(added, 4)), absl::OkStatus());
  EXPECT_EQ(Values(*AskOne(*engine, added)), Expected(added, 4));

  table = *table->Remove(policy::PolicyId("p1"));
  ASSERT_EQ(engine->SetPolicies(*table), absl::OkStatus());
  EXPECT_EQ(
      AskOne(*engine, specs[1]).status(),
      absl::NotFoundError("there is no policy \"p1\" among the 2 here, did you mean \"p0\"? There are: p0, added"));
  EXPECT_EQ(AskOne(*engine, specs[0])->version.n, 3);
  EXPECT_EQ(engine->MapStats().resident, 2) << "its actor is gone";

  // Another policy of the same id, with other spaces, whose versions begin anew.
  const PolicySpec replacement = MakeSpec("p0", *space::Space::Box(-1, 1, {4}), *space::Space::Box(-9, 9, {1}));
  table = *table->Replace(replacement);
  ASSERT_EQ(engine->SetPolicies(*table), absl::OkStatus());
  EXPECT_EQ(AskOne(*engine, specs[0]).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AskOne(*engine, replacement).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(engine->SetWeights(MakeWeights(replacement, 1)), absl::OkStatus());
  EXPECT_EQ(Values(*AskOne(*engine, replacement)), Expected(replacement, 1));
  // What else changes in a table asks for nothing here.
  table = *(*table->SetTrains(replacement.id, false))->Release({policy::PolicySlot(0), policy::PolicySlot(1)});
  ASSERT_EQ(engine->SetPolicies(*table), absl::OkStatus());
  EXPECT_EQ(AskOne(*engine, replacement)->version.n, 1);
}

TEST(QueryEnginePoliciesTest, PoliciesThatComeAndGoLeaveNothing) {
  const PolicySpec stays = NamedSpec("stays");
  auto engine = *QueryEngine::Create({stays}, {.policy_map_capacity = 5});
  ASSERT_EQ(engine->SetWeights(MakeWeights(stays, 1)), absl::OkStatus());
  PolicyTablePtr table = MakeTable({stays});
  for (int i = 0; i < 5000; ++i) {
    const PolicySpec spec = NamedSpec(absl::StrCat("guest_", i % 7));
    table = *table->Add(spec, true);
    ASSERT_EQ(engine->SetPolicies(*table), absl::OkStatus()) << i;
    ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
    if (i % 50 == 0) {
      EXPECT_EQ(Values(*AskOne(*engine, spec)), Expected(spec, 1));
    }
    const auto slot = *table->FindSlot(spec.id);
    table = *(*table->Remove(spec.id))->Release({slot});
    ASSERT_EQ(engine->SetPolicies(*table), absl::OkStatus());
  }
  EXPECT_TRUE(AskOne(*engine, stays).ok());
  EXPECT_EQ(engine->MapStats().resident, 1);
}

TEST(QueryEnginePoliciesTest, QueriesFromThreadsWhilePoliciesChange) {
  const std::vector<PolicySpec> specs = ManySpecs(3);
  const PolicySpec guest = NamedSpec("guest");
  // By version; "guest" is removed and comes back with the next one.
  constexpr int64_t kGuests = 60;
  std::map<int64_t, std::vector<float>> of_guest;
  for (int64_t n = 1; n <= kGuests; ++n) of_guest[n] = Expected(guest, n);
  std::vector<std::vector<float>> of_spec;
  for (const PolicySpec& spec : specs) of_spec.push_back(Expected(spec, 1));
  auto engine = *QueryEngine::Create(specs, {.policy_map_capacity = 2});
  for (const PolicySpec& spec : specs) ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());

  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<int> guests_seen{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = static_cast<size_t>(t); !stop; ++i) {
        const auto known = AskOne(*engine, specs[i % 3]);
        if (!known.ok() || Values(*known) != of_spec[i % 3]) ++wrong;
        const auto got = AskOne(*engine, guest);
        const bool gone = absl::IsNotFound(got.status()) || absl::IsUnavailable(got.status());
        if (!got.ok() && !gone) ++wrong;
        if (got.ok()) {
          ++guests_seen;
          if (Values(*got) != of_guest[got->version.n]) ++wrong;
        }
      }
    });
  }
  PolicyTablePtr table = MakeTable(specs);
  for (int64_t n = 1; n <= kGuests; ++n) {
    table = *table->Add(guest, true);
    EXPECT_EQ(engine->SetPolicies(*table), absl::OkStatus());
    EXPECT_EQ(engine->SetWeights(MakeWeights(guest, n)), absl::OkStatus());
    const int seen = guests_seen;
    while (guests_seen < seen + 4) std::this_thread::yield();
    const auto slot = *table->FindSlot(guest.id);
    table = *(*table->Remove(guest.id))->Release({slot});
    EXPECT_EQ(engine->SetPolicies(*table), absl::OkStatus());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(AskOne(*engine, specs[0]).ok());
  EXPECT_LE(engine->MapStats().resident, 2);
}

}  // namespace
}  // namespace troupe::serving
