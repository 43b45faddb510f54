// What kernels are given, against a reference that knows nothing of how it is laid out.

#include "lib/training/core/prepared_batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/processor.h"
#include "lib/learner/assembler.h"
#include "lib/learner/testing/naive_gather.h"
#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/training/core/moments.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using learner::PolicyTrainBatch;
using learner::RowMatrix;
using policy::NetworkInput;
using policy::PolicySpec;

/// Knows the most that it was asked for.
class WatchedAllocator final : public tensor::TensorAllocator {
 public:
  void* Allocate(size_t bytes) override {
    largest = std::max(largest, bytes);
    return Pageable().Allocate(bytes);
  }
  void Deallocate(void* memory, size_t bytes) override { Pageable().Deallocate(memory, bytes); }

  size_t largest = 0;
};

/// A policy's batch as it came, with nothing but vectors; and the same for a trainer, dense and without leave to write.
struct Copied : learner::OwnedTrainBatch {
  Copied(const PolicyTrainBatch& from, const PolicySpec& spec) {
    const auto all = [](const RowMatrix& matrix, int64_t columns, std::vector<float>* to) {
      for (int64_t r = 0; r < matrix.rows; ++r) to->insert(to->end(), matrix.row(r), matrix.row(r) + columns);
    };
    all(from.obs, spec.observation_size(), &obs);
    all(from.final_obs, spec.observation_size(), &final_obs);
    if (spec.critic_input() != NetworkInput::kObservation)
      all(from.critic_state, spec.critic_state_size(), &critic_state);
    actions.assign(from.actions.begin(), from.actions.end());
    logp.assign(from.action_logp.begin(), from.action_logp.end());
    rewards.assign(from.rewards.begin(), from.rewards.end());
    action_mask.assign(from.action_mask.begin(), from.action_mask.end());
    agent_mask.assign(from.agent_mask.begin(), from.agent_mask.end());
    slot.assign(from.slot.begin(), from.slot.end());
    final_slot.assign(from.final_slot.begin(), from.final_slot.end());
    critic_row.assign(from.critic_row.begin(), from.critic_row.end());
    final_critic_row.assign(from.final_critic_row.begin(), from.final_critic_row.end());
    PolicyTrainBatch rows;
    rows.policy = from.policy;
    rows.rows = from.rows;
    rows.final_rows = from.final_rows;
    rows.critic_rows = from.critic_rows;
    rows.segments = from.segments;
    Add(std::move(rows));
  }
  const PolicyTrainBatch& rows() const { return batch.policies[0]; }
};

/// What networks should read.
struct Reference {
  Reference(const Copied& batch, const PolicySpec& spec, const policy::RunningMoments& moments) {
    const auto observation = [&](const std::vector<float>& from, int64_t row) {
      std::vector<float> values;
      for (int64_t c = 0; c < spec.observation_size(); ++c) {
        float value = from[static_cast<size_t>(row * spec.observation_size() + c)];
        if (spec.normalize_observations) {
          const auto mean = static_cast<float>(moments.mean[c]);
          const auto inverse = static_cast<float>(1.0 / StandardDeviation(moments.variance[c]));
          value = std::clamp((value - mean) * inverse, -10.0f, 10.0f);
        }
        values.push_back(value);
      }
      return values;
    };
    const auto add_slot = [&](std::vector<float> values, int32_t slot) {
      for (int64_t s = 0; s < spec.agent_id_size; ++s) values.push_back(s == slot ? 1.0f : 0.0f);
      return values;
    };
    const auto critic_of = [&](const std::vector<float>& from, const std::vector<int32_t>& critic_row,
                               const std::vector<int32_t>& slot, int64_t row) {
      std::vector<float> values;
      if (spec.critic_input() == NetworkInput::kObservation) {
        values = observation(from, row);
      } else {
        const auto begin = batch.critic_state.begin() + critic_row[row] * spec.critic_state_size();
        values.assign(begin, begin + spec.critic_state_size());
      }
      return spec.critic_agent_id() ? add_slot(std::move(values), slot[row]) : values;
    };
    for (int64_t r = 0; r < batch.rows().rows; ++r) {
      actor.push_back(add_slot(observation(batch.obs, r), batch.slot[r]));
      critic.push_back(critic_of(batch.obs, batch.critic_row, batch.slot, r));
      if (batch.agent_mask.empty() || batch.agent_mask[r] != 0) active.push_back(static_cast<int32_t>(r));
    }
    for (int64_t f = 0; f < batch.rows().final_rows; ++f) {
      final_critic.push_back(critic_of(batch.final_obs, batch.final_critic_row, batch.final_slot, f));
    }
    observed = MomentsOf(batch.obs, spec.observation_size(), active);
  }
  std::vector<std::vector<float>> actor, critic, final_critic;
  std::vector<int32_t> active;
  policy::RunningMoments observed;
};

/// The same bits.
void ExpectRow(const MatrixView& matrix, int64_t row, const std::vector<float>& expected) {
  ASSERT_EQ(matrix.columns, static_cast<int64_t>(expected.size()));
  ASSERT_LT(row, matrix.rows);
  const float* const got = matrix.data + row * matrix.stride;
  ASSERT_EQ(reinterpret_cast<uintptr_t>(got) % 64, 0u);
  ASSERT_EQ(std::memcmp(got, expected.data(), expected.size() * sizeof(float)), 0) << "row " << row;
}

void ExpectEqual(const PreparedBatch& got, const Reference& expected, bool normalizes) {
  ASSERT_EQ(got.rows(), static_cast<int64_t>(expected.actor.size()));
  ASSERT_EQ(got.critic_index().size(), expected.critic.size());
  ASSERT_EQ(got.final_critic_index().size(), expected.final_critic.size());
  for (size_t r = 0; r < expected.actor.size(); ++r) {
    ExpectRow(got.actor_input(), static_cast<int64_t>(r), expected.actor[r]);
    ExpectRow(got.critic_input(), got.critic_index()[r], expected.critic[r]);
  }
  for (size_t f = 0; f < expected.final_critic.size(); ++f) {
    ExpectRow(got.critic_input(), got.final_critic_index()[f], expected.final_critic[f]);
  }
  EXPECT_EQ(std::vector<int32_t>(got.active().begin(), got.active().end()), expected.active);
  if (!normalizes) return;
  EXPECT_EQ(got.observed().count, expected.observed.count);
  EXPECT_EQ(got.observed().mean, expected.observed.mean);
  EXPECT_EQ(got.observed().variance, expected.observed.variance);
}

policy::RunningMoments SomeMoments(int64_t columns, double shift) {
  policy::RunningMoments moments{100, {}, {}};
  for (int64_t c = 0; c < columns; ++c) {
    moments.mean.push_back(0.1 * static_cast<double>(c) + shift);
    moments.variance.push_back(c % 5 == 4 ? 1e-6 : 0.3 + static_cast<double>(c));  // some are clipped
  }
  return moments;
}

/// Everything that RandomSchema has, with one-hots and normalizers of the seed's choice.
sample::BatchSchema Schema(uint64_t seed) {
  sample::BatchSchema schema = learner::WithAgentIds(sample::RandomSchema(seed), seed);
  for (const policy::PolicySlot p : schema.policies.ids()) {
    schema.policies[p].normalize_observations = (seed >> p.value()) % 2 == 0;
  }
  return schema;
}

/// Which paths were taken.
struct Seen {
  int shared = 0;         ///< actor and critic read one matrix
  int fewer_columns = 0;  ///< and the critic stops before the one-hot
  int own_states = 0;     ///< the one-hot lies behind a state of the agent's own
  int shared_states = 0;  ///< a copy for the one-hot
  int normalized = 0;
};

/// What of it was copied, and what was not.
void ExpectInPlace(const PreparedBatch& prepared, const PolicyTrainBatch& batch, const PolicySpec& spec,
                   const WatchedAllocator& allocator, Seen* seen) {
  EXPECT_EQ(prepared.actor_input().data, batch.obs.data);
  const bool copies = spec.critic_input() != NetworkInput::kObservation && spec.critic_agent_id() &&
                      batch.critic_state.columns == spec.critic_state_size();
  // 64 bytes are what a PreparedBatch begins with.
  EXPECT_TRUE(copies || allocator.largest <= 64) << allocator.largest;
  seen->shared_states += copies ? 1 : 0;
  seen->normalized += spec.normalize_observations ? 1 : 0;
  if (copies) return;
  if (spec.critic_input() == NetworkInput::kObservation) {
    EXPECT_EQ(prepared.critic_input().data, batch.obs.data);
    ++seen->shared;
    seen->fewer_columns += spec.agent_id_size > 0 && !spec.critic_agent_id() ? 1 : 0;
  } else {
    EXPECT_EQ(prepared.critic_input().data, batch.critic_state.data);
    seen->own_states += spec.critic_agent_id() ? 1 : 0;
  }
}

TEST(PreparedBatchTest, KernelsAreGivenTheReferencesNumbers) {
  Seen seen;
  ThreadTeam team(3);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const sample::BatchSchema schema = Schema(seed);
    learner::Assembler assembler(schema, {.max_policy_lag = 1});
    for (int64_t iteration = 1; iteration < 3; ++iteration) {
      const auto fragments = learner::RandomFragments(schema, seed, iteration);
      const learner::TrainBatch& batch = assembler.Assemble(fragments, iteration).batch;
      std::vector<std::unique_ptr<Copied>> copies;
      for (const PolicyTrainBatch& rows : batch.policies) {
        copies.push_back(std::make_unique<Copied>(rows, schema.policies[rows.policy]));
      }
      // One after another, twice: what one policy's trainer does to its observations, others do not see, and neither
      // does it itself when it is called again.
      for (const int round : {0, 1}) {
        for (size_t i = 0; i < copies.size(); ++i) {
          const PolicyTrainBatch& rows = batch.policies[i];
          const PolicySpec& spec = schema.policies[rows.policy];
          SCOPED_TRACE(absl::StrCat("policy ", spec.id.value(), " round ", round));
          const policy::RunningMoments moments = SomeMoments(spec.observation_size(), 0.25);
          const Reference expected(*copies[i], spec, moments);
          WatchedAllocator allocator;
          PreparedBatch prepared(allocator);
          const absl::Status status = prepared.Prepare(spec, moments, rows, seed % 2 == 0 ? &team : nullptr);
          ASSERT_TRUE(status.ok()) << status;
          ExpectEqual(prepared, expected, spec.normalize_observations);
          ExpectInPlace(prepared, rows, spec, allocator, &seen);
          // By hand, without leave: any number of times, with any moments.
          for (const double shift : {0.25, -3.0}) {
            const policy::RunningMoments others = SomeMoments(spec.observation_size(), shift);
            // Dead rows that count in losses count in no moments of observations.
            const PrepareOptions options = {.use_policy_active_masks = seed % 3 != 0,
                                            .use_value_active_masks = seed % 3 != 0};
            ASSERT_TRUE(
                prepared.Prepare(spec, others, copies[i]->rows(), seed % 2 == 0 ? &team : nullptr, options).ok());
            ExpectEqual(prepared, Reference(*copies[i], spec, others), spec.normalize_observations);
          }
        }
      }
    }
  }
  EXPECT_GT(seen.shared, 10);
  EXPECT_GT(seen.fewer_columns, 5);
  EXPECT_GT(seen.own_states, 5);
  EXPECT_GT(seen.shared_states, 5);
  EXPECT_GT(seen.normalized, 10);
}

/// Separate policies that all see every step read one joint matrix: each trainer normalizes its own observations, and
/// all find the joint ones as they came.
TEST(PreparedBatchTest, PoliciesThatShareJointRowsReadThemAsObserved) {
  sample::BatchSchema schema = sample::SimpleSchema(2, 4);
  schema.policies[policy::PolicySlot(0)].normalize_observations = true;
  schema.policies.push_back(schema.policies[policy::PolicySlot(0)]);
  schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("other");
  sample::FakeRolloutOptions options;
  options.terminated_probability = 0;
  options.policies_of_slot = {{0}, {1}};
  learner::Assembler assembler(schema, {});
  const learner::TrainBatch& batch = assembler.Assemble({sample::MakeBatch(schema, options, 2, 30)}, 0).batch;
  ASSERT_EQ(batch.policies.size(), 2u);
  ASSERT_EQ(batch.policies[0].critic_state.data, batch.policies[1].critic_state.data);
  const Copied copies[] = {{batch.policies[0], schema.policies[policy::PolicySlot(0)]},
                           {batch.policies[1], schema.policies[policy::PolicySlot(1)]}};
  for (const size_t p : {0, 1, 0}) {
    const policy::RunningMoments moments = SomeMoments(4, 0.5 + static_cast<double>(p));
    PreparedBatch prepared;
    const PolicySpec& spec = schema.policies[batch.policies[p].policy];
    ASSERT_TRUE(prepared.Prepare(spec, moments, batch.policies[p]).ok());
    EXPECT_EQ(prepared.critic_input().data, batch.policies[0].critic_state.data);
    ExpectEqual(prepared, Reference(copies[p], spec, moments), true);
  }
}

TEST(PreparedBatchTest, WhatWasNormalizedIsNotNormalizedWithOtherMoments) {
  sample::BatchSchema schema = sample::SimpleSchema(2, 5);
  schema.policies[policy::PolicySlot(0)].normalize_observations = true;
  learner::Assembler assembler(schema, {});
  const std::vector<sample::MultiAgentBatchPtr> fragments = {sample::MakeBatch(schema, {}, 2, 10)};
  const PolicyTrainBatch& rows = assembler.Assemble(fragments, 0).batch.policies[0];
  const Copied copy(rows, schema.policies[policy::PolicySlot(0)]);
  PreparedBatch prepared;
  const policy::RunningMoments moments = SomeMoments(5, 0);
  ASSERT_TRUE(prepared.Prepare(schema.policies[policy::PolicySlot(0)], moments, rows).ok());
  const absl::Status refused = prepared.Prepare(schema.policies[policy::PolicySlot(0)], SomeMoments(5, 1), rows);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("other moments"));
  ASSERT_TRUE(prepared.Prepare(schema.policies[policy::PolicySlot(0)], moments, rows).ok());
  ExpectEqual(prepared, Reference(copy, schema.policies[policy::PolicySlot(0)], moments), true);
  // The next batch lies in the same memory.
  const PolicyTrainBatch& again = assembler.Assemble(fragments, 0).batch.policies[0];
  EXPECT_EQ(again.obs.data, copy.rows().rows > 0 ? rows.obs.data : nullptr);
  ASSERT_TRUE(prepared.Prepare(schema.policies[policy::PolicySlot(0)], SomeMoments(5, 1), again).ok());
  ExpectEqual(prepared, Reference(copy, schema.policies[policy::PolicySlot(0)], SomeMoments(5, 1)), true);
}

TEST(PreparedBatchTest, ABatchThatIsRefusedStaysAsItWas) {
  sample::BatchSchema schema = sample::SimpleSchema(2, 5);
  schema.policies[policy::PolicySlot(0)].normalize_observations = true;
  learner::Assembler assembler(schema, {});
  learner::TrainBatch batch = assembler.Assemble({sample::MakeBatch(schema, {}, 2, 10)}, 0).batch;
  PolicyTrainBatch& rows = batch.policies[0];
  const Copied before(rows, schema.policies[policy::PolicySlot(0)]);
  std::vector<space::ActionWord> actions(rows.actions.begin(), rows.actions.end());
  actions[7].i32 = 99;
  rows.actions = actions;
  PreparedBatch prepared;
  EXPECT_EQ(prepared.Prepare(schema.policies[policy::PolicySlot(0)], SomeMoments(5, 0), rows).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(rows.in_place->normalized);
  EXPECT_EQ(Copied(rows, schema.policies[policy::PolicySlot(0)]).obs, before.obs);
}

/// Sequences that do not cover their segments would leave rows out, or run over an episode's end.
TEST(PreparedBatchTest, RefusesSequencesThatDoNotCoverTheirSegments) {
  PolicySpec spec = policy::SmallSpecForTesting();
  spec.actor.core = {policy::CoreKind::kLstm, 3, 1};
  spec.sequence_length = 4;
  using Sequences = std::vector<learner::TrainSequence>;
  struct Bad {
    const char* what;
    void (*spoil)(Sequences& sequences);
    const char* says;
  };
  // Segments of 5 and 3 rows, of which the second goes on from decision 7: sequences {0..3}, {4}, {5}, {6, 7}.
  const std::vector<Bad> bad = {
      {"a row left out", [](Sequences& s) { s[0].rows = 3; }, "sequence 1 of 4 does not go on at row 3"},
      {"over a segment's end", [](Sequences& s) { s[1].rows = 2; }, "sequence 1 of 4 does not go on at row 4"},
      {"empty", [](Sequences& s) { s[1].rows = 0; }, "sequence 1 of 4 does not go on at row 4"},
      {"too few", [](Sequences& s) { s.pop_back(); }, "memory is [4, 6]"},
      {"longer than they may be",
       [](Sequences& s) {
         s = {{0, 5, 0}, {5, 1, 7}, {6, 1, 8}, {7, 1, 9}};
       },
       "sequence 0 has 5 rows; expected at most 4"},
      {"before the episode", [](Sequences& s) { s[0].decision = -1; }, "sequence 0 of 4 does not go on at row 0"},
  };
  RandomBatch good(spec, {5, 3}, 1);
  ASSERT_EQ(good.rows().sequences.size(), 4u);
  PreparedBatch prepared;
  ASSERT_EQ(prepared.Prepare(spec, {}, good.rows()), absl::OkStatus());
  EXPECT_EQ(prepared.sequences().size(), 4u);
  EXPECT_EQ(prepared.actor_memory().columns, 6);
  for (const Bad& test : bad) {
    RandomBatch batch(spec, {5, 3}, 1);
    test.spoil(batch.rows().sequences);
    const absl::Status status = prepared.Prepare(spec, {}, batch.rows());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.what;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(test.says)) << test.what;
  }
  RandomBatch plain(policy::SmallSpecForTesting(), {5, 3}, 1);
  plain.rows().sequences = good.rows().sequences;
  EXPECT_THAT(std::string(prepared.Prepare(policy::SmallSpecForTesting(), {}, plain.rows()).message()),
              testing::HasSubstr("sequences has 4 elements; expected 0"));
}

/// Fails the first minibatch step that it is asked for.
class FailsOnce final : public NetworkBackend {
 public:
  FailsOnce(std::unique_ptr<NetworkBackend> inner, bool* failed) : inner_(std::move(inner)), failed_(failed) {}
  absl::Status Begin(const PreparedBatch& batch, FlatParameters* parameters, int thread) override {
    return inner_->Begin(batch, parameters, thread);
  }
  absl::StatusOr<std::vector<float>> Values() override { return inner_->Values(); }
  absl::Status BeginEpoch(absl::Span<const int32_t> order) override { return inner_->BeginEpoch(order); }
  absl::Status Step(int64_t first, int64_t count, const StepSettings& settings) override {
    if (!std::exchange(*failed_, true)) return absl::InternalError("out of memory");
    return inner_->Step(first, count, settings);
  }
  absl::StatusOr<StepTotals> TakeTotals() override { return inner_->TakeTotals(); }
  absl::Status End() override { return inner_->End(); }
  absl::Status Serves(BackendLevel level) const override { return inner_->Serves(level); }
  std::string_view name() const override { return "fails once"; }

 private:
  std::unique_ptr<NetworkBackend> inner_;
  bool* const failed_;
};

TEST(PreparedBatchTest, AnUpdateThatFailedIsTriedAgainOnTheSameBatch) {
  if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  sample::BatchSchema schema = sample::SimpleSchema(3, 7);
  PolicySpec& spec = schema.policies[policy::PolicySlot(0)];
  spec.normalize_observations = true;
  spec.agent_id_size = 3;
  spec.SetCriticInput(NetworkInput::kObservation, 0);
  spec.actor.hidden_sizes = spec.mutable_critic()->hidden_sizes = {8};
  PpoOptions options;
  options.minibatch_size = 50;
  options.num_epochs = 2;
  const std::vector<sample::MultiAgentBatchPtr> fragments = {sample::MakeBatch(schema, {}, 3, 30)};
  std::vector<policy::PolicyState> states;
  for (const bool fails : {false, true}) {
    bool failed = !fails;
    const auto team = std::make_shared<ThreadTeam>(1);
    const auto trainer = *MakePpoHost(
        {spec}, {options}, 1,
        [&](const PolicySpec& of_policy) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
          return std::unique_ptr<NetworkBackend>(
              std::make_unique<FailsOnce>(*MakeFusedBackend(of_policy, team), &failed));
        },
        team);
    learner::Assembler assembler(schema, {});
    for (int64_t iteration = 0; iteration < 2; ++iteration) {
      const learner::TrainBatch& batch = assembler.Assemble(fragments, 0).batch;
      const learner::UpdateContext context{.iteration = iteration, .next_version = {1, iteration + 1}};
      if (!failed) {
        EXPECT_EQ(trainer->Update(batch, context).status().code(), absl::StatusCode::kInternal);
        EXPECT_TRUE(batch.policies[0].in_place->normalized);
      }
      const auto reports = trainer->Update(batch, context);
      ASSERT_TRUE(reports.ok()) << reports.status();
    }
    states.push_back(*trainer->ExportState(policy::PolicySlot(0)));
  }
  EXPECT_EQ(states[0].parameters(), states[1].parameters());
  const policy::RunningMoments moments = states[0].Moments(policy::kObservationMoments);
  const policy::RunningMoments again = states[1].Moments(policy::kObservationMoments);
  EXPECT_EQ(moments.mean, again.mean);
  EXPECT_EQ(moments.variance, again.variance);
  EXPECT_EQ(moments.count, 2.0 * 3 * 3 * 30);
}

}  // namespace
}  // namespace troupe::training
