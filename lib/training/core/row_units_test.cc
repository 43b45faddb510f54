#include "lib/training/core/row_units.h"

#include <string>
#include <vector>

#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include "lib/training/core/epoch_rows.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/fused/fused_critic_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::ElementsAre;
using Rows = std::vector<int32_t>;
using Units = std::vector<Rows>;

Rows All(absl::Span<const int32_t> rows) { return Rows(rows.begin(), rows.end()); }

Units All(const RowUnits& units) {
  Units all;
  for (int64_t unit = 0; unit < units.size(); ++unit) all.push_back(All(units.RowsOf(unit)));
  return all;
}

TEST(RowUnitsTest, RowsThatReadOneInputAreAUnit) {
  RowUnits units;
  EXPECT_TRUE(units.empty());
  // Rows 3 and 6 do not count.
  units.Take({0, 1, 2, 4, 5, 7}, Rows{4, 0, 2, 4, 0, 3, 2, 2}, 5);
  EXPECT_FALSE(units.empty());
  EXPECT_EQ(All(units), (Units{{0}, {1, 4}, {2, 7}, {5}}));
  units.Take({1, 3, 5}, Rows{4, 0, 2, 4, 0, 4}, 5);
  EXPECT_EQ(All(units), (Units{{1}, {3, 5}})) << "used again";
}

TEST(RowUnitsTest, ThereAreNoneWhereEachRowHasAnInputOfItsOwn) {
  RowUnits units;
  units.Take({0, 1, 2}, Rows{1, 1, 1}, 2);
  EXPECT_EQ(units.size(), 1);
  units.Take({0, 2}, Rows{2, 1, 0}, 3);
  EXPECT_TRUE(units.empty());
  EXPECT_EQ(units.size(), 0);
  units.Take({}, {}, 0);
  EXPECT_TRUE(units.empty());
}

TEST(CriticRunsTest, ARunEndsWhereAnotherInputIsRead) {
  fused::CriticRuns runs;
  EXPECT_TRUE(runs.empty());
  const Rows rows = {2, 0, 1, 4, 3};
  runs.Take(rows, Rows{7, 7, 7, 5, 6});
  EXPECT_THAT(All(runs.heads()), ElementsAre(2, 4, 3));
  EXPECT_THAT(All(runs.RowsOf(0, 1)), ElementsAre(2, 0, 1));
  EXPECT_THAT(All(runs.RowsOf(1, 2)), ElementsAre(4, 3));
  runs.Take({}, {});
  EXPECT_TRUE(runs.empty());
}

/// Two agents over three env steps, then a third step of the first alone: rows 0 to 3 and 4 to 6. The second is dead in
/// its last two.
struct TwoAgents : learner::OwnedTrainBatch {
  TwoAgents() {
    obs.assign(7 * 3, 0.5f);
    logp = rewards = std::vector<float>(7, 0.0f);
    actions.assign(7, {});
    for (space::ActionWord& action : actions) action.i32 = 0;
    agent_mask = {1, 1, 1, 1, 1, 0, 0};
    critic_state.assign(4 * 2, 1.0f);
    critic_row = {3, 1, 0, 2, 3, 1, 0};
    learner::PolicyTrainBatch rows;
    rows.rows = 7;
    rows.critic_rows = 4;
    rows.segments = {{0, 4}, {4, 3}};
    Add(std::move(rows));
  }
};

policy::PolicySpec SpecOfState() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.SetCriticInput(policy::NetworkInput::kState, 2);
  return spec;
}

TEST(PreparedUnitsTest, AreOfRowsThatCountAndOnlyWhereAskedFor) {
  const TwoAgents batch;
  PreparedBatch prepared;
  ASSERT_TRUE(prepared.Prepare(SpecOfState(), {}, batch.batch.policies[0]).ok());
  EXPECT_TRUE(prepared.units().empty());
  PrepareOptions options{.minibatch_by = MinibatchBy::kEnvSteps};
  ASSERT_TRUE(prepared.Prepare(SpecOfState(), {}, batch.batch.policies[0], nullptr, options).ok());
  EXPECT_EQ(All(prepared.units()), (Units{{0, 4}, {1}, {2}, {3}}));
  options.use_value_active_masks = false;
  ASSERT_TRUE(prepared.Prepare(SpecOfState(), {}, batch.batch.policies[0], nullptr, options).ok());
  EXPECT_EQ(All(prepared.units()), (Units{{0, 4}, {1, 5}, {2, 6}, {3}}));
}

TEST(PreparedUnitsTest, TheDeadStayWithTheirEnvStepWhereTheirInputIsMasked) {
  const TwoAgents batch;
  PreparedBatch prepared;
  const PrepareOptions options{
      .use_value_active_masks = false, .death_masking = true, .minibatch_by = MinibatchBy::kEnvSteps};
  ASSERT_TRUE(prepared.Prepare(SpecOfState(), {}, batch.batch.policies[0], nullptr, options).ok());
  EXPECT_EQ(prepared.critic_index()[5], prepared.critic_index()[6]) << "the input of zeros";
  EXPECT_EQ(All(prepared.units()), (Units{{0, 4}, {1, 5}, {2, 6}, {3}}));
}

TEST(PreparedUnitsTest, AreNoneWhereTheCriticReadsSomethingOfTheAgent) {
  const TwoAgents batch;
  policy::PolicySpec spec = SpecOfState();
  spec.SetCriticReadsAgentState(true);
  PreparedBatch prepared;
  ASSERT_TRUE(
      prepared
          .Prepare(spec, {}, batch.batch.policies[0], nullptr, PrepareOptions{.minibatch_by = MinibatchBy::kEnvSteps})
          .ok());
  EXPECT_TRUE(prepared.units().empty());
}

TEST(PreparedUnitsTest, APolicyWithACoreHasSequences) {
  const policy::PolicySpec spec = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kNone);
  EXPECT_TRUE(CheckMinibatchBy(spec, MinibatchBy::kRows).ok());
  EXPECT_TRUE(CheckMinibatchBy(SpecOfState(), MinibatchBy::kEnvSteps).ok());
  const std::string refused =
      "algorithm.minibatch_by is env_steps; expected rows: policy \"p\" remembers (model.actor_core, critic_core, a "
      "TorchScript module's state_size), and its minibatches are made of whole sequences";
  EXPECT_EQ(CheckMinibatchBy(spec, MinibatchBy::kEnvSteps), absl::InvalidArgumentError(refused));
  const TwoAgents batch;
  EXPECT_EQ(PreparedBatch().Prepare(spec, {}, batch.batch.policies[0], nullptr,
                                    PrepareOptions{.minibatch_by = MinibatchBy::kEnvSteps}),
            absl::InvalidArgumentError(refused));
}

TEST(EpochRowsTest, UnitsInTheirOrderAndInputsOnce) {
  const TwoAgents batch;
  PreparedBatch prepared;
  PrepareOptions options{.use_value_active_masks = false, .minibatch_by = MinibatchBy::kEnvSteps};
  ASSERT_TRUE(prepared.Prepare(SpecOfState(), {}, batch.batch.policies[0], nullptr, options).ok());
  const Rows order = {2, 3, 0, 1};
  EpochRows epoch = RowsOfEpoch(prepared, order, &RowUses::IsInValue);
  EXPECT_THAT(epoch.rows, ElementsAre(2, 6, 3, 0, 4, 1, 5));
  EXPECT_THAT(epoch.inputs, ElementsAre(0, 2, 3, 1));
  EXPECT_THAT(epoch.first_row, ElementsAre(0, 2, 3, 5, 7));
  EXPECT_THAT(epoch.first_input, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(epoch.width, 2);
  EXPECT_THAT(epoch.places, ElementsAre(0, 1, 2, 4, 5, 6, 7));
  // Those that count for the policy: nobody's of the second agent after its first row.
  epoch = RowsOfEpoch(prepared, order, &RowUses::IsInPolicy);
  EXPECT_THAT(epoch.rows, ElementsAre(2, 3, 0, 4, 1));
  EXPECT_THAT(epoch.first_row, ElementsAre(0, 1, 2, 4, 5));
  EXPECT_THAT(epoch.places, ElementsAre(0, 2, 4, 5, 6));
  // With the dead one's input masked, the unit reads two.
  options.death_masking = true;
  ASSERT_TRUE(prepared.Prepare(SpecOfState(), {}, batch.batch.policies[0], nullptr, options).ok());
  epoch = RowsOfEpoch(prepared, order, &RowUses::IsInValue);
  EXPECT_THAT(epoch.rows, ElementsAre(2, 6, 3, 0, 4, 1, 5));
  EXPECT_THAT(epoch.inputs, ElementsAre(0, 4, 2, 3, 1, 4));
  EXPECT_THAT(epoch.first_input, ElementsAre(0, 2, 3, 4, 6));
  EXPECT_THAT(epoch.places, ElementsAre(0, 2, 4, 6, 7, 8, 10));
}

}  // namespace
}  // namespace troupe::training
