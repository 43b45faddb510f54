// What a critic reads of all agents: normalized, with its agent's observation behind it, of dead agents.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/learner/assembler.h"
#include "lib/learner/testing/naive_gather.h"
#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/training/core/moments.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/testing/random_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using learner::PolicyTrainBatch;
using policy::NetworkInput;
using policy::PolicySlot;
using policy::PolicySpec;
using Row = std::vector<float>;

const PolicySlot kSlot(0);

Row RowOf(const MatrixView& matrix, int64_t row) {
  const float* const at = matrix.data + row * matrix.stride;
  return Row(at, at + matrix.columns);
}

/// Two agents' rows by hand: a state of 2 elements, an observation of 3, an agent of slot 1 in the rows of the second
/// segment, which is dead in its last row.
struct HandBatch : learner::OwnedTrainBatch {
  HandBatch() {
    obs = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    final_obs = {10, 11, 12, 13, 14, 15};
    logp = rewards = {0, 0, 0};
    actions.resize(3);
    for (space::ActionWord& action : actions) action.i32 = 0;
    agent_mask = {1, 1, 0};
    slot = {0, 1, 1};
    final_slot = {0, 1};
    critic_state = {100, 200, 300, 400};
    critic_row = {0, 0, 1};
    final_critic_row = {1, 1};
    PolicyTrainBatch rows;
    rows.policy = kSlot;
    rows.rows = 3;
    rows.final_rows = 2;
    rows.critic_rows = 2;
    rows.segments = {{0, 1, 0, base::EnvId(0), 0, base::AgentSlot(0)},
                     {1, 2, 1, base::EnvId(0), 0, base::AgentSlot(1)}};
    Add(std::move(rows));
  }
  PolicyTrainBatch& rows() { return batch.policies[0]; }
};

PolicySpec HandSpec() {
  PolicySpec spec = policy::SmallSpecForTesting();
  spec.agent_id_size = 2;
  spec.SetCriticInput(NetworkInput::kState, 2);
  return spec;
}

TEST(PreparedStatesTest, TheAgentsObservationStandsBehindTheState) {
  HandBatch batch;
  PolicySpec spec = HandSpec();
  spec.SetCriticReadsAgentState(true);
  spec.SetCriticAgentId(true);
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  ASSERT_EQ(spec.critic_input_size(), 2 + 3 + 2);
  PreparedBatch prepared;
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok());
  const MatrixView& input = prepared.critic_input();
  EXPECT_EQ(RowOf(input, prepared.critic_index()[0]), (Row{100, 200, 1, 2, 3, 1, 0}));
  EXPECT_EQ(RowOf(input, prepared.critic_index()[1]), (Row{100, 200, 4, 5, 6, 0, 1}));
  EXPECT_EQ(RowOf(input, prepared.critic_index()[2]), (Row{300, 400, 7, 8, 9, 0, 1}));
  EXPECT_EQ(RowOf(input, prepared.final_critic_index()[0]), (Row{300, 400, 10, 11, 12, 1, 0}));
  EXPECT_EQ(RowOf(input, prepared.final_critic_index()[1]), (Row{300, 400, 13, 14, 15, 0, 1}));
  EXPECT_EQ(RowOf(prepared.actor_input(), 1), (Row{4, 5, 6, 0, 1})) << "the actor reads no state";

  // Without the one-hot, and as the actor sees it: normalized.
  spec.SetCriticAgentId(false);
  spec.normalize_observations = true;
  const policy::RunningMoments moments{5, {1, 1, 1}, {4, 4, 4}};
  ASSERT_TRUE(prepared.Prepare(spec, moments, batch.rows()).ok());
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[1]), (Row{100, 200, 1.5f, 2, 2.5f}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.final_critic_index()[0]), (Row{300, 400, 4.5f, 5, 5.5f}));
}

TEST(PreparedStatesTest, FinalObservationsAreAskedForWhereACriticReadsThem) {
  HandBatch batch;
  PolicySpec spec = HandSpec();
  batch.rows().final_obs.rows = 1;
  PreparedBatch prepared;
  EXPECT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok()) << "nobody reads them";
  spec.SetCriticReadsAgentState(true);
  EXPECT_THAT(std::string(prepared.Prepare(spec, {}, batch.rows()).message()),
              testing::HasSubstr("final_obs is [1, 3], rows 3 apart; expected [2, 3] or [2, 5]"));
}

TEST(PreparedStatesTest, StatesAreNormalizedAndObservedWhereActiveRowsReadThem) {
  HandBatch batch;
  PolicySpec spec = HandSpec();
  spec.normalize_state = true;
  const ColumnMoments moments = {{9, 9}, {100, 150}, {2500, 10000}};
  PreparedBatch prepared;
  const PrepareOptions options = {.state_moments = &moments};
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows(), nullptr, options).ok());
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[0]), (Row{0, 0.5f}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[2]), (Row{4, 2.5f}));
  EXPECT_EQ(prepared.observed_states().count, (std::vector<double>{1, 1})) << "the second one is the dead agent's";
  EXPECT_EQ(prepared.observed_states().mean, (std::vector<double>{100, 200}));
  EXPECT_EQ(batch.critic_state, (Row{100, 200, 300, 400})) << "what others read, too, stays";
  // One-hots of agents stay.
  spec.SetCriticAgentId(true);
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows(), nullptr, options).ok());
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[1]), (Row{0, 0.5f, 0, 1}));
}

TEST(PreparedStatesTest, SizesOfAJointObservationHaveToFit) {
  HandBatch batch;
  PolicySpec spec = HandSpec();
  spec.SetCriticInput(NetworkInput::kJointObservation, 2);
  PreparedBatch prepared;
  EXPECT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok()) << "nobody asks";
  spec.normalize_state = true;
  EXPECT_EQ(std::string(prepared.Prepare(spec, {}, batch.rows()).message()),
            "train batch of policy \"p\": joint_sizes are of 0 agents, 0 elements with their presence bits; expected "
            "2");
  const std::vector<int64_t> sizes = {1};
  batch.rows().joint_sizes = sizes;
  EXPECT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok());
}

TEST(PreparedStatesTest, AgentsThatACriticAttendsToHaveTheirSizes) {
  const PolicySpec spec = policy::AttendingSpecForTesting();
  RandomBatch batch(spec, {6, 5}, 3);
  PreparedBatch prepared;
  EXPECT_EQ(prepared.Prepare(spec, {}, batch.rows()), absl::OkStatus());
  const std::vector<int64_t> swapped = {5, 3, 3, 3};
  batch.rows().joint_sizes = swapped;
  EXPECT_EQ(prepared.Prepare(spec, {}, batch.rows()),
            absl::InvalidArgumentError("train batch of policy \"p\": joint_sizes[0] is 5; expected 3"));
  batch.rows().joint_sizes = {};
  EXPECT_EQ(
      prepared.Prepare(spec, {}, batch.rows()),
      absl::InvalidArgumentError("train batch of policy \"p\": joint_sizes are of 0 agents, 0 elements with their "
                                 "presence bits; expected 18"));
}

TEST(PreparedStatesTest, TheCriticReadsZerosAndTheSlotOfTheDead) {
  HandBatch batch;
  PolicySpec spec = HandSpec();
  PreparedBatch prepared;
  const PrepareOptions options = {.death_masking = true};
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows(), nullptr, options).ok());
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[1]), (Row{100, 200}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[2]), (Row{0, 0}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.final_critic_index()[0]), (Row{300, 400}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.final_critic_index()[1]), (Row{0, 0}));
  spec.SetCriticReadsAgentState(true);
  spec.SetCriticAgentId(true);
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows(), nullptr, options).ok());
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[0]), (Row{100, 200, 1, 2, 3, 1, 0}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[2]), (Row{0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.final_critic_index()[1]), (Row{0, 0, 0, 0, 0, 0, 1}));
  // A critic of the agent's own observation, which the actor reads as it is.
  spec.SetCriticInput(NetworkInput::kObservation, 0);
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows(), nullptr, options).ok());
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[1]), (Row{4, 5, 6, 0, 1}));
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[2]), (Row{0, 0, 0, 0, 1}));
  EXPECT_EQ(RowOf(prepared.actor_input(), 2), (Row{7, 8, 9, 0, 1}));
  // Who is left out is not dead.
  batch.rows().segments[1].trains = false;
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows(), nullptr, options).ok());
  EXPECT_EQ(RowOf(prepared.critic_input(), prepared.critic_index()[2]), (Row{7, 8, 9, 0, 1}));
}

/// Batches that the assembler made, of the states and joint observations that schemas have: against the sums of what
/// lies in them.
TEST(PreparedStatesTest, AssembledBatchesAreNormalizedWithoutBeingWrittenTo) {
  ThreadTeam team(3);
  int joint = 0;
  int states = 0;
  int observing = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    sample::BatchSchema schema = learner::WithAgentIds(sample::RandomSchema(seed), seed);
    for (const PolicySlot p : schema.policies.ids()) {
      PolicySpec& spec = schema.policies[p];
      spec.normalize_state = spec.critic_state_size() > 0;
      if (spec.critic_input() == NetworkInput::kState && seed % 2 == 0) spec.SetCriticReadsAgentState(true);
    }
    learner::Assembler assembler(schema, {});
    const auto fragments = learner::RandomFragments(schema, seed, 0);
    for (const PolicyTrainBatch& rows : assembler.Assemble(fragments, 0).batch.policies) {
      const PolicySpec& spec = schema.policies[rows.policy];
      if (!spec.normalize_state || rows.critic_rows == 0) continue;
      const int64_t size = spec.critic_state_size();
      const bool is_joint = spec.critic_input() == NetworkInput::kJointObservation;
      const int64_t agents = is_joint ? static_cast<int64_t>(schema.agent_ids.size()) : 0;
      ++(is_joint ? joint : states);
      observing += spec.critic_reads_agent_state() ? 1 : 0;
      ColumnMoments moments = InitialColumnMoments(size);
      for (int64_t c = 0; c < size; ++c) {
        moments.mean[static_cast<size_t>(c)] = 0.25 * static_cast<double>(c % 3);
        moments.variance[static_cast<size_t>(c)] = 0.25 * static_cast<double>(1 + c % 2);
      }
      std::vector<Row> before;
      for (int64_t r = 0; r < rows.critic_state.rows; ++r) {
        before.emplace_back(rows.critic_state.row(r), rows.critic_state.row(r) + size);
      }
      PreparedBatch prepared;
      const absl::Status status = prepared.Prepare(spec, InitialMoments(spec.observation_size()), rows,
                                                   seed % 3 == 0 ? &team : nullptr, {.state_moments = &moments});
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t r = 0; r < rows.critic_state.rows; ++r) {
        ASSERT_EQ(Row(rows.critic_state.row(r), rows.critic_state.row(r) + size), before[static_cast<size_t>(r)]);
      }
      const auto expected = [&](int32_t from) {
        Row row = before[static_cast<size_t>(from)];
        int64_t column = 0;
        for (int64_t agent = 0; agent < std::max<int64_t>(agents, 1); ++agent) {
          const int64_t end = is_joint ? column + schema.agent_observation_sizes[static_cast<size_t>(agent)] : size;
          const bool there = !is_joint || row[static_cast<size_t>(size - agents + agent)] != 0;
          for (; column < end; ++column) {
            const auto c = static_cast<size_t>(column);
            const double scaled = (row[c] - moments.mean[c]) / std::sqrt(moments.variance[c]);
            row[c] = there ? static_cast<float>(std::clamp(scaled, -10.0, 10.0)) : 0.0f;
          }
        }
        return row;
      };
      for (int64_t r = 0; r < rows.rows; ++r) {
        const Row got = RowOf(prepared.critic_input(), prepared.critic_index()[r]);
        const Row want = expected(rows.critic_row[r]);
        ASSERT_EQ(static_cast<int64_t>(got.size()), spec.critic_input_size());
        for (int64_t c = 0; c < size; ++c) ASSERT_NEAR(got[c], want[c], 1e-4) << r << " " << c;
        if (spec.critic_reads_agent_state()) {
          for (int64_t c = 0; c < spec.observation_size(); ++c) ASSERT_EQ(got[size + c], rows.obs.row(r)[c]);
        }
        if (spec.critic_agent_id()) {
          for (int32_t s = 0; s < spec.agent_id_size; ++s) {
            ASSERT_EQ(got[got.size() - spec.agent_id_size + s], rows.slot[r] == s ? 1.0f : 0.0f);
          }
        }
      }
      if (is_joint) {
        for (int64_t c = size - agents; c < size; ++c) EXPECT_EQ(prepared.observed_states().count[c], 0);
      }
    }
  }
  EXPECT_GT(joint, 10);
  EXPECT_GT(states, 10);
  EXPECT_GT(observing, 5);
}

}  // namespace
}  // namespace troupe::training
