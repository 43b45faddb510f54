#include "lib/training/core/critic_values.h"

#include <memory>
#include <vector>

#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::ElementsAre;

/// A critic whose memory is the sum of all first inputs that it has seen, and whose value is that memory.
class SummingBackend final : public NetworkBackend {
 public:
  absl::Status Begin(const PreparedBatch& batch, FlatParameters* /*parameters*/, int /*thread*/) override {
    batch_ = &batch;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<float>> Values() override {
    std::vector<float> values;
    for (int64_t row = 0; row < batch_->critic_input().rows; ++row) values.push_back(Input(row));
    return values;
  }
  absl::StatusOr<SequenceOutputs> SequenceValues(const SequenceCall& call) override {
    if (fails) return absl::InternalError("as told");
    calls.emplace_back(call.lengths.begin(), call.lengths.end());
    SequenceOutputs outputs;
    size_t row = 0;
    for (size_t i = 0; i < call.lengths.size(); ++i) {
      float sum = call.states[i];
      for (int32_t step = 0; step < call.lengths[i]; ++step) outputs.values.push_back(sum += Input(call.rows[row++]));
      outputs.states.push_back(sum);
    }
    return outputs;
  }
  absl::Status BeginEpoch(absl::Span<const int32_t> /*order*/) override { return absl::OkStatus(); }
  absl::Status Step(int64_t, int64_t, const StepSettings&) override { return absl::OkStatus(); }
  absl::StatusOr<StepTotals> TakeTotals() override { return StepTotals(); }
  absl::Status End() override { return absl::OkStatus(); }
  absl::Status Serves(BackendLevel /*level*/) const override { return absl::OkStatus(); }
  std::string_view name() const override { return "summing"; }

  std::vector<std::vector<int32_t>> calls;  ///< lengths of the sequences of each
  bool fails = false;

 private:
  float Input(int64_t row) const { return batch_->critic_input().data[row * batch_->critic_input().stride]; }

  const PreparedBatch* batch_ = nullptr;
};

policy::PolicySpec Spec(bool with_core) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  if (!with_core) return spec;
  spec.mutable_critic()->core = {policy::CoreKind::kGru, 1, 1};
  spec.sequence_length = 3;
  return spec;
}

/// Segments of given lengths whose rows have the first observation 1, 2, 4, 8, ...; final rows have 100.
struct Batch : learner::OwnedTrainBatch {
  struct Piece {
    int64_t rows;
    int64_t decision;  ///< of its first row
    bool has_final;
    uint32_t episode = 0;
    int32_t slot = 0;
  };

  Batch(const policy::PolicySpec& spec, const std::vector<Piece>& pieces) {
    learner::PolicyTrainBatch rows;
    rows.policy = policy::PolicySlot(0);
    for (const Piece& piece : pieces) {
      rows.segments.push_back({rows.rows, piece.rows, piece.has_final ? rows.final_rows : -1, base::EnvId(7),
                               piece.episode, base::AgentSlot(piece.slot)});
      for (int64_t row = 0; row < piece.rows; ++row) {
        const int64_t decision = piece.decision + row;
        if (spec.remembers() && (row == 0 || decision % spec.sequence_length == 0)) {
          rows.sequences.push_back({rows.rows + row, 0, decision});
        }
        if (spec.remembers()) ++rows.sequences.back().rows;
      }
      rows.rows += piece.rows;
      rows.final_rows += piece.has_final ? 1 : 0;
    }
    const auto size = static_cast<size_t>(spec.observation_size());
    obs.resize(static_cast<size_t>(rows.rows) * size);
    for (int64_t row = 0; row < rows.rows; ++row) obs[static_cast<size_t>(row) * size] = static_cast<float>(1 << row);
    final_obs.resize(static_cast<size_t>(rows.final_rows) * size);
    for (int64_t row = 0; row < rows.final_rows; ++row) final_obs[static_cast<size_t>(row) * size] = 100;
    actions.resize(static_cast<size_t>(rows.rows * spec.action_words()));
    for (space::ActionWord& action : actions) action.i32 = 0;
    logp.resize(static_cast<size_t>(rows.rows));
    rewards.resize(static_cast<size_t>(rows.rows));
    slot.resize(static_cast<size_t>(rows.rows));
    final_slot.resize(static_cast<size_t>(rows.final_rows));
    action_mask.assign(static_cast<size_t>(rows.rows * spec.mask_size()), 1);
    Add(std::move(rows));
  }
  const learner::PolicyTrainBatch& rows() const { return batch.policies[0]; }
};

class CriticValuesTest : public testing::Test {
 protected:
  absl::StatusOr<CriticValues> Values(const std::vector<Batch::Piece>& pieces, bool with_core = true) {
    const policy::PolicySpec spec = Spec(with_core);
    const Batch batch(spec, pieces);
    EXPECT_EQ(prepared_.Prepare(spec, {}, batch.rows()), absl::OkStatus());
    EXPECT_EQ(backend_.Begin(prepared_, nullptr, NetworkBackend::kWholeTeam), absl::OkStatus());
    return ValuesOf(spec, batch.rows(), &backend_, &prepared_, &carry_);
  }

  SummingBackend backend_;
  PreparedBatch prepared_;
  CriticCarry carry_;
};

TEST_F(CriticValuesTest, OfACriticWithoutACoreIsEachRowsOwn) {
  const auto values = Values({{2, 0, true}, {1, 0, false}}, /*with_core=*/false);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->rows, ElementsAre(1, 2, 4));
  EXPECT_THAT(values->finals, ElementsAre(100));
  EXPECT_EQ(values->broken_streams, 0);
  EXPECT_TRUE(backend_.calls.empty());
}

TEST_F(CriticValuesTest, RunsThroughEachTrajectoryAndAStepMoreForItsFinalRow) {
  const auto values = Values({{5, 0, true}, {2, 0, false, 0, 1}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->rows, ElementsAre(1, 3, 7, 15, 31, 32, 96));
  EXPECT_THAT(values->finals, ElementsAre(131));
  EXPECT_EQ(values->broken_streams, 0);
  // Side by side, as far as each goes: the first sequences of both, the second of the longer one, the final row.
  EXPECT_THAT(backend_.calls, ElementsAre(ElementsAre(3, 2), ElementsAre(2), ElementsAre(1)));
  // What it remembered before each sequence of the batch: {0, 1, 2}, {3, 4}, {5, 6}.
  EXPECT_THAT(prepared_.targets.critic_memory, ElementsAre(0, 7, 0));
}

TEST_F(CriticValuesTest, ATrajectoryThatGoesOnRemembersTheBatchBefore) {
  ASSERT_TRUE(Values({{2, 0, true}}).ok());
  carry_.Commit();
  const auto values = Values({{3, 2, false}});
  ASSERT_TRUE(values.ok()) << values.status();
  // 1 + 2, and the final row's 100 is not remembered.
  EXPECT_THAT(values->rows, ElementsAre(4, 6, 10));
  EXPECT_EQ(values->broken_streams, 0);
  EXPECT_THAT(prepared_.targets.critic_memory, ElementsAre(3, 4));
}

TEST_F(CriticValuesTest, AnUpdateThatFailedLeavesWhatWasRemembered) {
  ASSERT_TRUE(Values({{2, 0, true}}).ok());
  carry_.Commit();
  ASSERT_TRUE(Values({{1, 2, true}}).ok());
  carry_.Rollback();
  carry_.Commit();
  // The same batch is tried again.
  const auto values = Values({{1, 2, true}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->rows, ElementsAre(4));
  EXPECT_EQ(values->broken_streams, 0);
}

TEST_F(CriticValuesTest, WhatIsNotKnownBeginsAtZeroAndIsCounted) {
  ASSERT_TRUE(Values({{2, 0, true}, {2, 0, true, 0, 1}}).ok());
  carry_.Commit();
  EXPECT_EQ(carry_.size(), 2u);
  // Of another episode, of an agent that nothing is known of, and one that begins.
  const auto values = Values({{1, 2, true, 5}, {1, 2, true, 0, 2}, {1, 0, true, 6, 1}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->rows, ElementsAre(1, 2, 4));
  EXPECT_EQ(values->broken_streams, 2);
  carry_.Commit();
  // An entry an agent: episodes that are over leave nothing behind.
  EXPECT_EQ(carry_.size(), 3u);
}

TEST_F(CriticValuesTest, AGapIsCountedAndWhatWasBeforeItStays) {
  ASSERT_TRUE(Values({{2, 0, true}}).ok());
  carry_.Commit();
  const auto values = Values({{1, 3, true}});  // decision 2 was too old to be trained on
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->rows, ElementsAre(4));
  EXPECT_EQ(values->broken_streams, 1);
  carry_.Commit();
  // Time does not go back.
  const auto earlier = Values({{1, 1, true}});
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  EXPECT_THAT(earlier->rows, ElementsAre(1));
  EXPECT_EQ(earlier->broken_streams, 1);
}

TEST_F(CriticValuesTest, AnotherTrajectoryOfTheAgentRemembersNothingOfTheOneThatEnded) {
  ASSERT_TRUE(Values({{2, 0, false}}).ok());
  carry_.Commit();
  // It returned; its first two decisions were too old to be trained on.
  const auto values = Values({{1, 2, true}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->rows, ElementsAre(1));
  EXPECT_EQ(values->broken_streams, 1);
}

/// The actor remembers a number, and the critic shares that.
policy::PolicySpec SharedSpec() {
  policy::PolicySpec spec = policy::SharedSpecForTesting();
  spec.actor.core = {policy::CoreKind::kGru, 1, 1};
  spec.sequence_length = 3;
  return spec;
}

TEST_F(CriticValuesTest, BehindTheActorsCoreASequenceBeginsWithWhatTheActorRemembered) {
  Batch batch(SharedSpec(), {{5, 0, true}, {2, 4, false, 0, 1}, {1, 0, true, 0, 2}});
  const std::vector<float> memory = {0, 1000, 2000, 3000};  // before {0, 1, 2}, {3, 4}, {5, 6}, {7}
  batch.batch.policies[0].memory = {memory.data(), 4, 1, 1};
  ASSERT_EQ(prepared_.Prepare(SharedSpec(), {}, batch.rows()), absl::OkStatus());
  ASSERT_EQ(backend_.Begin(prepared_, nullptr, NetworkBackend::kWholeTeam), absl::OkStatus());
  const auto values = ValuesOf(SharedSpec(), batch.rows(), &backend_, &prepared_, &carry_);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(values->rows, ElementsAre(1, 3, 7, 1008, 1024, 2032, 2096, 3128));
  // A step more from where the segment's last sequence ended.
  EXPECT_THAT(values->finals, ElementsAre(1124, 3228));
  // All sequences at once, then all final rows.
  EXPECT_THAT(backend_.calls, ElementsAre(ElementsAre(3, 2, 2, 1), ElementsAre(1, 1)));
  EXPECT_EQ(values->broken_streams, 0);
  carry_.Commit();
  EXPECT_EQ(carry_.size(), 0u) << "the worker remembers";
}

TEST_F(CriticValuesTest, SaysWhatTheBackEndSays) {
  backend_.fails = true;
  EXPECT_EQ(Values({{2, 0, true}}).status(), absl::InternalError("as told"));
}

}  // namespace
}  // namespace troupe::training
