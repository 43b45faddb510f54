// Policies that remember: whoever asks keeps what they remember, and brings it again.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/inference/action_bounds.h"
#include "lib/inference/actor.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/hanging_host.h"
#include "lib/serving/testing/query_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

using policy::CoreKind;
using policy::PolicySpec;
using space::Space;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kRows = 7;

PolicySpec Walker(CoreKind kind, int64_t layers = 1) {
  PolicySpec spec = WithCore(MakeSpec("walker", *Space::Box(-1, 1, {3}), *Space::Box(-9, 9, {2})), kind, layers);
  spec.actor.head_hidden_sizes = {6};
  return spec;
}

std::unique_ptr<QueryEngine> EngineOf(const std::vector<PolicySpec>& specs) {
  auto engine = *QueryEngine::Create(specs, {.seed = 9});
  for (const PolicySpec& spec : specs) EXPECT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  return engine;
}

/// Other observations at each step.
OwnedRows RowsAt(const PolicySpec& spec, int step, int64_t rows = kRows) {
  OwnedRows owned = MakeRows(spec, rows);
  for (size_t i = 0; i < owned.obs.size(); ++i) owned.obs[i] += 0.25f * static_cast<float>(step);
  return owned;
}

PolicyActions AnswerOf(QueryEngine& engine, const OwnedRows& rows, bool deterministic = true) {
  absl::StatusOr<ActionAnswer> answer = engine.Compute(Ask({&rows}, deterministic));
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? std::move((*answer)[0]) : PolicyActions();
}

/// An actor of the test's own, stepped by hand: what it remembers stays here.
class ByHand {
 public:
  ByHand(const PolicySpec& spec, int64_t rows) : spec_(spec), state_(static_cast<size_t>(rows * StateSize()), 0.0f) {
    const base::PhiloxKey key = base::PhiloxKey::Make(9, base::RandomStream::kQuery);
    auto actor = inference::Actor::Create(spec, (static_cast<uint64_t>(key.k1) << 32) | key.k0);
    EXPECT_TRUE(actor.ok()) << actor.status();
    actor_ = *std::move(actor);
    SetWeights(1);
  }
  void SetWeights(int64_t version) { EXPECT_EQ(actor_->SetWeights(MakeWeights(spec_, version)), absl::OkStatus()); }
  int64_t StateSize() const { return spec_.actor_state_size(); }
  const std::vector<float>& state() const { return state_; }

  /// As Values, of an answer to request `ordinal`.
  std::vector<float> Step(const OwnedRows& rows, bool deterministic, uint32_t ordinal) {
    std::vector<inference::RowKey> keys;
    for (int64_t row = 0; row < rows.rows; ++row) {
      keys.push_back({base::EnvId(0), deterministic ? 0 : ordinal, base::AgentSlot(0), static_cast<uint32_t>(row)});
    }
    std::vector<float> next(state_.size());
    inference::ActInput input;
    input.rows = rows.rows;
    input.obs = rows.obs.data();
    input.keys = keys.data();
    input.deterministic = deterministic;
    input.state_in = state_.data();
    input.state_out = next.data();
    PolicyActions actions;
    actions.logp.resize(static_cast<size_t>(rows.rows));
    actions.actions.resize(static_cast<size_t>(rows.rows * spec_.action_words()));
    EXPECT_EQ(actor_->Act(input, actions.actions.data(), actions.logp.data()), absl::OkStatus());
    const inference::ActionBounds bounds(spec_);
    const auto words = static_cast<size_t>(spec_.action_words());
    for (size_t row = 0; row < keys.size(); ++row) {
      const absl::Span<space::ActionWord> action = absl::MakeSpan(actions.actions).subspan(row * words, words);
      bounds.Apply(action, action);
    }
    state_ = next;
    actions.state_out = std::move(next);
    return Values(actions);
  }

 private:
  const PolicySpec spec_;
  std::unique_ptr<inference::Actor> actor_;
  std::vector<float> state_;
};

TEST(QueryEngineMemoryTest, WhatIsFedBackIsRemembered) {
  for (const PolicySpec& spec : {Walker(CoreKind::kGru), Walker(CoreKind::kLstm), Walker(CoreKind::kLstm, 2)}) {
    for (const bool deterministic : {true, false}) {
      SCOPED_TRACE(testing::Message() << policy::KindName(spec.actor) << " deterministic " << deterministic);
      const auto engine = EngineOf({spec});
      ByHand by_hand(spec, kRows);
      std::vector<float> state;
      for (uint32_t step = 0; step < 4; ++step) {
        OwnedRows rows = RowsAt(spec, static_cast<int>(step));
        rows.state_in = state;  // nothing at the first
        const PolicyActions answer = AnswerOf(*engine, rows, deterministic);
        EXPECT_EQ(Values(answer), by_hand.Step(rows, deterministic, step)) << "step " << step;
        EXPECT_EQ(answer.state_out, by_hand.state());
        EXPECT_EQ(answer.state_out.size(), static_cast<size_t>(kRows * spec.actor_state_size()));
        if (deterministic && step > 0) {
          rows.state_in.clear();
          EXPECT_NE(Values(AnswerOf(*engine, rows)), Values(answer)) << "it does remember";
        }
        state = answer.state_out;
      }
    }
  }
}

TEST(QueryEngineMemoryTest, WithoutAStateRowsBeginAtZeros) {
  const PolicySpec spec = Walker(CoreKind::kLstm);
  const auto engine = EngineOf({spec});
  const OwnedRows rows = RowsAt(spec, 0);
  OwnedRows zeros = rows;
  zeros.state_in.assign(static_cast<size_t>(kRows * spec.actor_state_size()), 0.0f);
  EXPECT_EQ(Values(AnswerOf(*engine, rows)), Values(AnswerOf(*engine, zeros)));
  // Nothing stays in the actor: the same again.
  EXPECT_EQ(Values(AnswerOf(*engine, rows)), Values(AnswerOf(*engine, zeros)));
}

TEST(QueryEngineMemoryTest, NewWeightsBetweenTwoDecisionsActOnTheSameMemory) {
  const PolicySpec spec = Walker(CoreKind::kGru);
  const auto engine = EngineOf({spec});
  ByHand by_hand(spec, kRows);
  OwnedRows rows = RowsAt(spec, 0);
  PolicyActions answer = AnswerOf(*engine, rows);
  EXPECT_EQ(Values(answer), by_hand.Step(rows, true, 0));
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 2)), absl::OkStatus());
  by_hand.SetWeights(2);
  rows = RowsAt(spec, 1);
  rows.state_in = answer.state_out;
  answer = AnswerOf(*engine, rows);
  EXPECT_EQ(answer.version.n, 2);
  EXPECT_EQ(Values(answer), by_hand.Step(rows, true, 0));
}

TEST(QueryEngineMemoryTest, AgentsOfOneQueryAndPoliciesBesideOneAnotherKeepTheirOwn) {
  const PolicySpec gru = Walker(CoreKind::kGru);
  PolicySpec lstm = Walker(CoreKind::kLstm);
  lstm.id = policy::PolicyId("lstm");
  const PolicySpec plain = MakeSpec("plain", *Space::Box(-1, 1, {3}), *Space::Discrete(4));
  const auto engine = EngineOf({gru, lstm, plain});
  OwnedRows of_gru = RowsAt(gru, 0);
  OwnedRows of_lstm = RowsAt(lstm, 0, 2);
  of_gru.state_in = AnswerOf(*engine, of_gru).state_out;
  of_lstm.state_in = AnswerOf(*engine, of_lstm).state_out;
  // The first row is of an agent that begins.
  std::fill(of_gru.state_in.begin(), of_gru.state_in.begin() + 5, 0.0f);
  const OwnedRows of_plain = MakeRows(plain, 3);
  const absl::StatusOr<ActionAnswer> answer = engine->Compute(Ask({&of_gru, &of_plain, &of_lstm}, true));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(Values((*answer)[0]), Values(AnswerOf(*engine, of_gru)));
  EXPECT_EQ(Values((*answer)[2]), Values(AnswerOf(*engine, of_lstm)));
  EXPECT_THAT((*answer)[1].state_out, IsEmpty());
  // Each row as if it had been asked alone.
  for (size_t row = 0; row < static_cast<size_t>(kRows); ++row) {
    OwnedRows one = MakeRows(gru, 1);
    one.obs.assign(of_gru.obs.begin() + static_cast<std::ptrdiff_t>(3 * row),
                   of_gru.obs.begin() + static_cast<std::ptrdiff_t>(3 * row + 3));
    if (row > 0) {
      one.state_in.assign(of_gru.state_in.begin() + static_cast<std::ptrdiff_t>(5 * row),
                          of_gru.state_in.begin() + static_cast<std::ptrdiff_t>(5 * row + 5));
    }
    const PolicyActions alone = AnswerOf(*engine, one);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(alone.state_out[i], (*answer)[0].state_out[5 * row + i]) << row;
    EXPECT_EQ(alone.logp[0], (*answer)[0].logp[row]);
  }
}

TEST(QueryEngineMemoryTest, WrongStatesAreRefused) {
  const PolicySpec spec = Walker(CoreKind::kGru);
  const PolicySpec plain = MakeSpec("plain", *Space::Box(-1, 1, {3}), *Space::Discrete(4));
  const auto engine = EngineOf({spec, plain});
  OwnedRows rows = RowsAt(spec, 0);
  const auto refused = [&](const OwnedRows& asked) {
    const absl::Status status = engine->Compute(Ask({&asked}, true)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  rows.state_in.assign(34, 0.0f);
  EXPECT_THAT(refused(rows), HasSubstr("policy \"walker\": state_in has 136 bytes, expected 140: 7 rows of 5 float32"));
  rows.state_in.assign(35, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(refused(rows), HasSubstr("state_in row 0, element 0 is nan, expected a finite number"));
  OwnedRows of_plain = MakeRows(plain, 1);
  of_plain.state_in = {0.0f};
  EXPECT_THAT(refused(of_plain), HasSubstr("state_in has 4 bytes, expected none: the policy remembers nothing"));
  rows.state_in.assign(35, 0.5f);
  EXPECT_EQ(engine->Compute(Ask({&rows}, true)).status(), absl::OkStatus());
}

TEST(QueryEngineMemoryTest, StatesCountForTheBytesOfAnAnswer) {
  PolicySpec spec = Walker(CoreKind::kLstm);
  spec.actor.core = {CoreKind::kLstm, 1024, 2};  // 16 KiB a row
  const auto engine = *QueryEngine::Create({spec}, {});
  const OwnedRows too_many = MakeRows(spec, 256);
  EXPECT_EQ(engine->Compute(Ask({&too_many}, true)).status(),
            absl::ResourceExhaustedError("the answer would have 4199424 bytes, expected at most 4194304"));
  const OwnedRows as_many_as_fit = MakeRows(spec, 255);
  EXPECT_EQ(engine->Compute(Ask({&as_many_as_fit}, true)).status().code(), absl::StatusCode::kUnavailable)
      << "no weights were given";
}

// A query that waits for a policy in another process borrows nothing: what it brought is copied.
TEST(QueryEngineMemoryTest, AQueryThatWaitsForAnotherProcessKeepsItsStates) {
  const PolicySpec spec = Walker(CoreKind::kGru);
  PolicySpec hosted = MakeSpec("hosted", *Space::Box(-1, 1, {3}), *Space::Discrete(2));
  hosted.actor = policy::DefaultActor();
  hosted.policy_class = *policy::ParsePolicyClass("python:mine:act");
  const auto engine = *QueryEngine::Create({spec, hosted}, {.actor_host = std::make_shared<HangingHost>()});
  ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  auto rows = std::make_unique<OwnedRows>(RowsAt(spec, 0));
  rows->state_in = AnswerOf(*engine, *rows).state_out;
  const std::vector<float> expected = Values(AnswerOf(*engine, *rows));
  const OwnedRows of_hosted = MakeRows(hosted, 2);
  absl::StatusOr<ActionAnswer> answer = absl::UnknownError("");
  engine->ComputeActions(Ask({&of_hosted, rows.get()}, true),
                         [&answer](absl::StatusOr<ActionAnswer> done) { answer = std::move(done); });
  std::fill(rows->state_in.begin(), rows->state_in.end(), -7.0f);
  rows = nullptr;
  engine->StepHosted();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(Values((*answer)[1]), expected);
  EXPECT_THAT((*answer)[0].state_out, IsEmpty());
}

}  // namespace
}  // namespace troupe::serving
