#include "lib/serving/query_engine.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "lib/inference/action_bounds.h"
#include "lib/inference/actor.h"
#include "lib/policy/testing.h"
#include "lib/serving/testing/query_builder.h"
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

using policy::PolicySpec;
using space::Space;

/// Every kind of policy that differs in how it is asked or answered.
std::vector<PolicySpec> AllSpecs() {
  std::vector<PolicySpec> specs;
  specs.push_back(MakeSpec("discrete", *Space::Box(-1, 1, {5}), *Space::Discrete(4, 2)));
  specs.push_back(MakeSpec("image", *Space::Box(0, 255, {2, 3}, tensor::DType::kUint8), *Space::Discrete(3)));
  specs.push_back(MakeSpec("clipped", *Space::Box(-1, 1, {3}), *Space::Box(-0.2, 0.2, {3})));
  PolicySpec scaled = MakeSpec("scaled", *Space::Box(-1, 1, {3}), *Space::Box(10, 20, {2}));
  scaled.action_bound_method = policy::ActionBoundMethod::kTanh;
  scaled.action_scaling = true;
  scaled.normalize_observations = true;
  specs.push_back(scaled);
  PolicySpec masked = MakeSpec("masked", *Space::Box(-1, 1, {4}), *Space::MultiDiscrete({3, 2}));
  masked.has_action_mask = true;
  masked.agent_id_size = 3;
  specs.push_back(masked);
  specs.push_back(MakeSpec("bits", *Space::MultiBinary(4), *Space::MultiBinary(3)));
  specs.push_back(
      MakeSpec("parts", *Space::Dict({{"where", *Space::Box(-1, 1, {3})}, {"which", *Space::Discrete(4)}}),
               *Space::Tuple({*Space::Discrete(3), *Space::Box(-1, 1, {2}), *Space::MultiDiscrete({2, 5})})));
  PolicySpec masked_parts = specs.back();
  masked_parts.id = policy::PolicyId("masked_parts");
  masked_parts.has_action_mask = true;
  specs.push_back(masked_parts);
  for (const auto& [id, distribution] : {std::pair("gaussian", policy::ContinuousDistribution::kGaussian),
                                         std::pair("squashed", policy::ContinuousDistribution::kSquashedGaussian),
                                         std::pair("beta", policy::ContinuousDistribution::kBeta)}) {
    specs.push_back(MakeSpec(id, *Space::Box(-1, 1, {3}), *Space::Box(-2, 3, {2})));
    policy::SetDistributionForTesting(distribution, &specs.back());
  }
  return specs;
}

std::unique_ptr<QueryEngine> MakeEngine(const std::vector<PolicySpec>& specs, QueryEngine::Options options = {}) {
  auto engine = QueryEngine::Create(specs, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  for (const PolicySpec& spec : specs) EXPECT_EQ((*engine)->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  return *std::move(engine);
}

void ExpectSameWords(const std::vector<space::ActionWord>& a, const std::vector<space::ActionWord>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].i32, b[i].i32) << "word " << i;
}

/// The engine's answer beside an Actor of the test's own, bit for bit.
void ExpectActorsAnswer(const PolicySpec& spec, bool deterministic) {
  SCOPED_TRACE(spec.id.value());
  const auto engine = MakeEngine({spec}, {.seed = 9, .first_request = (uint64_t{7} << 32) + 3});
  const OwnedRows rows = MakeRows(spec, 33);
  const auto answer = engine->Compute(Ask({&rows}, deterministic));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->size(), 1u);
  const PolicyActions& got = (*answer)[0];
  EXPECT_EQ(got.policy_id, spec.id);
  EXPECT_EQ(got.version, (policy::WeightVersion{1, 1}));
  EXPECT_EQ(got.rows, 33);

  const base::PhiloxKey key = base::PhiloxKey::Make(9, base::RandomStream::kQuery);
  auto actor = inference::Actor::Create(spec, (static_cast<uint64_t>(key.k1) << 32) | key.k0);
  ASSERT_TRUE(actor.ok());
  ASSERT_EQ((*actor)->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  std::vector<inference::RowKey> keys;
  for (uint32_t row = 0; row < 33; ++row) {
    keys.push_back({base::EnvId(7), 3, base::AgentSlot(spec.agent_id_size > 0 ? rows.agent_slots[row] : 0), row});
  }
  inference::ActInput input;
  input.rows = 33;
  input.obs = rows.Borrow().obs.data();
  input.action_mask = spec.mask_size() > 0 ? rows.action_mask.data() : nullptr;
  input.keys = keys.data();
  input.deterministic = deterministic;
  const auto words = static_cast<size_t>(spec.action_words());
  std::vector<space::ActionWord> sampled(33 * words);
  std::vector<float> logp(33);
  ASSERT_EQ((*actor)->Act(input, sampled.data(), logp.data()), absl::OkStatus());
  ExpectSameWords(got.sampled_actions, sampled);
  EXPECT_EQ(got.logp, logp);
  std::vector<space::ActionWord> bounded(33 * words);
  const inference::ActionBounds bounds(spec);
  for (size_t row = 0; row < 33; ++row) {
    bounds.Apply(absl::MakeSpan(sampled).subspan(row * words, words),
                 absl::MakeSpan(bounded).subspan(row * words, words));
    EXPECT_EQ(spec.action_space.ContainsAction(absl::MakeSpan(got.actions).subspan(row * words, words)),
              absl::OkStatus());
  }
  ExpectSameWords(got.actions, bounded);
}

TEST(QueryEngineTest, AnswersAsTheActor) {
  for (const PolicySpec& spec : AllSpecs()) {
    ExpectActorsAnswer(spec, /*deterministic=*/true);
    ExpectActorsAnswer(spec, /*deterministic=*/false);
  }
}

TEST(QueryEngineTest, WordsHaveTheirDTypes) {
  const PolicySpec spec =
      MakeSpec("both", *Space::Box(-1, 1, {2}),
               *Space::Tuple({*Space::Box(-1, 1, {2}), *Space::Discrete(3), *Space::MultiBinary(2)}));
  const auto engine = MakeEngine({spec});
  const OwnedRows rows = MakeRows(spec, 1);
  const auto answer = engine->Compute(Ask({&rows}, true));
  ASSERT_TRUE(answer.ok()) << answer.status();
  using tensor::DType;
  EXPECT_EQ((*answer)[0].word_dtypes,
            (std::vector<DType>{DType::kFloat32, DType::kFloat32, DType::kInt32, DType::kInt32, DType::kInt32}));
}

TEST(QueryEngineTest, PoliciesOfOneQueryAreAnsweredInItsOrder) {
  const std::vector<PolicySpec> specs = AllSpecs();
  const auto engine = MakeEngine(specs);
  std::vector<OwnedRows> rows;
  for (const PolicySpec& spec : specs) rows.push_back(MakeRows(spec, 2));
  const auto answer = engine->Compute(Ask({&rows[4], &rows[0], &rows[2], &rows[0]}, true));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->size(), 4u);
  for (const auto& [at, spec] : {std::pair(0, 4), std::pair(1, 0), std::pair(2, 2), std::pair(3, 0)}) {
    const PolicyActions& got = (*answer)[static_cast<size_t>(at)];
    EXPECT_EQ(got.policy_id, specs[static_cast<size_t>(spec)].id);
    const auto alone = engine->Compute(Ask({&rows[static_cast<size_t>(spec)]}, true));
    ExpectSameWords(got.actions, (*alone)[0].actions);
  }
}

TEST(QueryEngineTest, EverySampleIsANewOne) {
  const PolicySpec spec = MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Box(-9, 9, {1}));
  const auto engine = MakeEngine({spec});
  OwnedRows rows = MakeRows(spec, 8);
  for (size_t i = 0; i < rows.obs.size(); ++i) rows.obs[i] = 0.5f;
  std::set<float> values;
  for (int request = 0; request < 20; ++request) {
    const auto answer = engine->Compute(Ask({&rows, &rows}, false));
    ASSERT_TRUE(answer.ok()) << answer.status();
    for (const PolicyActions& actions : *answer) {
      for (const space::ActionWord word : actions.sampled_actions) values.insert(word.f32);
    }
  }
  EXPECT_GE(values.size(), 318u) << "of 320 draws of one distribution";
}

TEST(QueryEngineTest, TheSameSeedAndOrderGiveTheSameActions) {
  const PolicySpec spec = MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Box(-9, 9, {1}));
  const OwnedRows rows = MakeRows(spec, 4);
  OwnedRows bad = rows;
  bad.obs.pop_back();
  const auto first = MakeEngine({spec}, {.seed = 4});
  const auto second = MakeEngine({spec}, {.seed = 4, .first_request = 1});
  ASSERT_TRUE(first->Compute(Ask({&rows}, false)).ok());
  // Neither a deterministic query nor one that is refused takes an ordinal.
  ASSERT_TRUE(first->Compute(Ask({&rows}, true)).ok());
  ASSERT_FALSE(first->Compute(Ask({&bad}, false)).ok());
  const auto a = first->Compute(Ask({&rows}, false));
  const auto b = second->Compute(Ask({&rows}, false));
  ExpectSameWords((*a)[0].sampled_actions, (*b)[0].sampled_actions);
  const auto other = MakeEngine({spec}, {.seed = 5, .first_request = 1});
  const auto c = other->Compute(Ask({&rows}, false));
  EXPECT_NE((*b)[0].sampled_actions[0].f32, (*c)[0].sampled_actions[0].f32);
}

TEST(QueryEngineTest, SamplesFollowTheDistribution) {
  const PolicySpec spec = MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Discrete(3));
  const auto engine = MakeEngine({spec});
  const OwnedRows one = MakeRows(spec, 1);
  OwnedRows rows = one;
  rows.rows = 1000;
  for (int i = 1; i < 1000; ++i) rows.obs.insert(rows.obs.end(), one.obs.begin(), one.obs.end());
  double count[3] = {};
  double probability[3] = {};
  for (int request = 0; request < 10; ++request) {
    const auto answer = engine->Compute(Ask({&rows}, false));
    ASSERT_TRUE(answer.ok()) << answer.status();
    for (size_t row = 0; row < 1000; ++row) {
      const int action = (*answer)[0].actions[row].i32;
      ++count[action];
      probability[action] = std::exp((*answer)[0].logp[row]);
    }
  }
  for (int action = 0; action < 3; ++action) {
    const double p = probability[action];
    EXPECT_NEAR(count[action] / 1e4, p, 5 * std::sqrt(p * (1 - p) / 1e4)) << "action " << action;
  }
}

TEST(QueryEngineTest, NewWeightsServeTheNextQuery) {
  const PolicySpec spec = MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Box(-9, 9, {2}));
  const auto engine = MakeEngine({spec});
  const OwnedRows rows = MakeRows(spec, 2);
  const auto old_answer = engine->Compute(Ask({&rows}, true));
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 4)), absl::OkStatus());
  const auto new_answer = engine->Compute(Ask({&rows}, true));
  EXPECT_EQ((*old_answer)[0].version.n, 1);
  EXPECT_EQ((*new_answer)[0].version.n, 4);
  EXPECT_NE((*old_answer)[0].actions[0].f32, (*new_answer)[0].actions[0].f32);
  // An older version that comes late is ignored.
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 2)), absl::OkStatus());
  EXPECT_EQ((*engine->Compute(Ask({&rows}, true)))[0].version.n, 4);
}

TEST(QueryEngineTest, WeightsThatDoNotFitLeaveTheOldOnes) {
  const PolicySpec spec = MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  const auto engine = MakeEngine({spec});
  auto weights = MakeWeights(spec, 2);
  weights->actor.pop_back();
  EXPECT_EQ(engine->SetWeights(weights).code(), absl::StatusCode::kInvalidArgument);
  weights = MakeWeights(spec, 2);
  weights->actor[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(engine->SetWeights(weights).code(), absl::StatusCode::kInvalidArgument);
  weights = MakeWeights(spec, 2);
  weights->id = policy::PolicyId("q");
  EXPECT_EQ(engine->SetWeights(weights).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine->SetWeights(nullptr).code(), absl::StatusCode::kInvalidArgument);
  const OwnedRows rows = MakeRows(spec, 1);
  EXPECT_EQ((*engine->Compute(Ask({&rows}, true)))[0].version.n, 1);
}

TEST(QueryEngineTest, AMissingMaskAllowsEverything) {
  const PolicySpec spec = AllSpecs()[4];
  const auto engine = MakeEngine({spec});
  OwnedRows rows = MakeRows(spec, 6);
  rows.action_mask.assign(rows.action_mask.size(), 1);
  const auto with = engine->Compute(Ask({&rows}, true));
  rows.action_mask.clear();
  const auto without = engine->Compute(Ask({&rows}, true));
  ASSERT_TRUE(with.ok() && without.ok());
  ExpectSameWords((*with)[0].actions, (*without)[0].actions);
  EXPECT_EQ((*with)[0].logp, (*without)[0].logp);
}

TEST(QueryEngineTest, RefusesWholeQueries) {
  const PolicySpec spec = MakeSpec("shared", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  const PolicySpec silent = MakeSpec("silent", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  auto engine = QueryEngine::Create({spec, silent}, {});
  ASSERT_TRUE(engine.ok());
  ASSERT_EQ((*engine)->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  const OwnedRows good = MakeRows(spec, 1);
  const auto code_of = [&](const OwnedRows& second) {
    return (*engine)->Compute(Ask({&good, &second}, true)).status().code();
  };
  EXPECT_EQ((*engine)->Compute(ActionQuery{}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(MakeRows(silent, 1)), absl::StatusCode::kUnavailable);
  OwnedRows rows = good;
  rows.obs[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(code_of(rows), absl::StatusCode::kInvalidArgument);
  rows = good;
  rows.policy_id = "shraed";
  const absl::Status unknown = (*engine)->Compute(Ask({&good, &rows}, true)).status();
  EXPECT_EQ(unknown,
            absl::NotFoundError(
                "there is no policy \"shraed\" among the 2 here, did you mean \"shared\"? There are: shared, silent"));
  for (const std::string& id : {std::string(), std::string("../shared"), std::string("a\nb"), std::string(200, 'a')}) {
    rows.policy_id = id;
    EXPECT_EQ(code_of(rows), absl::StatusCode::kInvalidArgument) << id;
  }
}

TEST(QueryEngineTest, RowsAndAnswersAreBounded) {
  const PolicySpec spec = MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  const PolicySpec wide = MakeSpec("wide", *Space::Box(-1, 1, {1}), *Space::Box(-1, 1, {4096}));
  const auto engine = MakeEngine({spec, wide});
  const OwnedRows most = MakeRows(spec, kMaxQueryRows);
  EXPECT_EQ(engine->Compute(Ask({&most}, true)).status(), absl::OkStatus());
  const OwnedRows more = MakeRows(spec, kMaxQueryRows + 1);
  EXPECT_EQ(engine->Compute(Ask({&more}, true)).status(),
            absl::ResourceExhaustedError("the query has 1025 rows, expected at most 1024"));
  const OwnedRows one = MakeRows(spec, 1);
  EXPECT_EQ(engine->Compute(Ask({&most, &one}, true)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine->Compute(Ask(std::vector<const OwnedRows*>(1025, &one), true)).status().code(),
            absl::StatusCode::kResourceExhausted);
  const OwnedRows wide_rows = MakeRows(wide, 127);
  EXPECT_EQ(engine->Compute(Ask({&wide_rows}, true)).status(), absl::OkStatus());
  const OwnedRows too_wide = MakeRows(wide, 128);
  EXPECT_EQ(engine->Compute(Ask({&too_wide}, true)).status(),
            absl::ResourceExhaustedError("the answer would have 4194816 bytes, expected at most 4194304"));
}

TEST(QueryEngineTest, RefusesTwoPoliciesOfOneId) {
  const PolicySpec spec = MakeSpec("p", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  EXPECT_EQ(QueryEngine::Create({spec, spec}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  PolicySpec invalid = spec;
  invalid.id = policy::PolicyId("../x");
  EXPECT_EQ(QueryEngine::Create({invalid}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::serving
