// minibatch_by: env_steps beside rows: the same gradient, in minibatches of whole env steps.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/small_update.h"
#include "lib/training/testing/team_batch.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::NetworkInput;

const policy::PolicySlot kSlot(0);

policy::PolicySpec TeamSpec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.agent_id_size = 3;
  spec.SetCriticInput(NetworkInput::kState, 6);
  spec.actor.hidden_sizes = {8};
  spec.mutable_critic()->hidden_sizes = {9, 5};
  return spec;
}

PpoOptions By(MinibatchBy minibatch_by, PpoOptions options = SmallUpdateOptions()) {
  options.minibatch_by = minibatch_by;
  return options;
}

/// A fused back end of which is kept what each step did: its rows, and its gradient times as many.
struct Steps {
  std::vector<std::vector<int32_t>> rows;  ///< of each step
  std::vector<double> gradient;            ///< the sum
};
class WatchedBackend final : public NetworkBackend {
 public:
  WatchedBackend(std::unique_ptr<NetworkBackend> fused, Steps* steps) : fused_(std::move(fused)), steps_(*steps) {}

  absl::Status Begin(const PreparedBatch& batch, FlatParameters* parameters, int thread) override {
    batch_ = &batch;
    parameters_ = parameters;
    return fused_->Begin(batch, parameters, thread);
  }
  absl::StatusOr<std::vector<float>> Values() override { return fused_->Values(); }
  absl::Status ParametersChanged() override { return fused_->ParametersChanged(); }
  absl::Status BeginEpoch(absl::Span<const int32_t> order) override {
    order_ = order;
    return fused_->BeginEpoch(order);
  }
  absl::Status Step(int64_t first, int64_t count, const StepSettings& settings) override {
    std::vector<int32_t>& rows = steps_.rows.emplace_back();
    for (const int32_t unit : order_.subspan(static_cast<size_t>(first), static_cast<size_t>(count))) {
      if (batch_->units().empty()) {
        rows.push_back(unit);
        continue;
      }
      const absl::Span<const int32_t> of_unit = batch_->units().RowsOf(unit);
      rows.insert(rows.end(), of_unit.begin(), of_unit.end());
    }
    const absl::Status status = fused_->Step(first, count, settings);
    steps_.gradient.resize(static_cast<size_t>(parameters_->size()));
    for (size_t i = 0; i < steps_.gradient.size(); ++i) {
      steps_.gradient[i] += static_cast<double>(parameters_->gradients()[i]) * static_cast<double>(rows.size());
    }
    return status;
  }
  absl::StatusOr<StepTotals> TakeTotals() override { return fused_->TakeTotals(); }
  absl::Status End() override { return fused_->End(); }
  absl::Status Serves(BackendLevel level) const override { return fused_->Serves(level); }
  std::string_view name() const override { return fused_->name(); }

 private:
  const std::unique_ptr<NetworkBackend> fused_;
  Steps& steps_;
  const PreparedBatch* batch_ = nullptr;
  FlatParameters* parameters_ = nullptr;
  absl::Span<const int32_t> order_;
};

struct Trained {
  learner::PolicyUpdateReport report;
  policy::PolicyState state;
  Steps steps;
};

Trained Train(const policy::PolicySpec& spec, const PpoOptions& options, const learner::TrainBatch& batch,
              int threads = 2, VectorUnit unit = VectorUnit::kBest) {
  Trained trained;
  const auto team = std::make_shared<ThreadTeam>(threads);
  const auto make = [&](const policy::PolicySpec& of) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
    auto fused = MakeFusedBackend(of, team, unit);
    if (!fused.ok()) return fused.status();
    return std::make_unique<WatchedBackend>(*std::move(fused), &trained.steps);
  };
  const auto trainer = MakePpoHost({spec}, {options}, 1, make, team);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  const auto reports = (*trainer)->Update(batch, SmallUpdateContext(0));
  EXPECT_TRUE(reports.ok()) << reports.status();
  trained.report = reports->at(0);
  trained.state = *(*trainer)->ExportState(kSlot);
  return trained;
}

std::vector<double> Doubles(const std::vector<float>& numbers) {
  return std::vector<double>(numbers.begin(), numbers.end());
}

/// The largest difference of the actor's numbers and of the critic's, relative to the largest number of each.
double Difference(const policy::PolicySpec& spec, const std::vector<double>& got, const std::vector<double>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  const auto split = static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size());
  double worst = 0;
  for (const auto& [first, end] : {std::pair<size_t, size_t>(0, split), {split, expected.size()}}) {
    double largest = 0;
    double difference = 0;
    for (size_t i = first; i < end; ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      difference = std::max(difference, std::abs(got[i] - expected[i]));
    }
    EXPECT_GT(largest, 1e-4) << "a gradient of nothing proves nothing";
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

class EnvStepMinibatchesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }
};

TEST_F(EnvStepMinibatchesTest, AnEpochIsAsManyMinibatchesOfWholeEnvSteps) {
  const TeamBatch batch(TeamSpec(), /*envs=*/5, /*agents=*/3, /*env_steps=*/8, 1);
  struct Case {
    int64_t minibatch_size;
    std::vector<size_t> rows;
  };
  for (const Case& one : {Case{120, {120}}, Case{60, {60, 60}}, Case{50, {51, 51, 18}}, Case{40, {42, 39, 39}},
                          Case{25, {27, 24, 24, 27, 18}}, Case{2, std::vector<size_t>(40, 3)}}) {
    PpoOptions options = By(MinibatchBy::kEnvSteps);
    options.minibatch_size = one.minibatch_size;
    options.num_epochs = 2;
    const Trained trained = Train(TeamSpec(), options, batch.batch);
    ASSERT_EQ(trained.steps.rows.size(), 2 * one.rows.size()) << one.minibatch_size;
    EXPECT_EQ(trained.report.minibatch_steps, static_cast<int64_t>(2 * one.rows.size()));
    std::vector<int32_t> seen;
    for (size_t i = 0; i < trained.steps.rows.size(); ++i) {
      const std::vector<int32_t>& rows = trained.steps.rows[i];
      EXPECT_EQ(rows.size(), one.rows[i % one.rows.size()]) << one.minibatch_size;
      seen.insert(seen.end(), rows.begin(), rows.end());
      for (const int32_t row : rows) {
        // Agents' rows of one env step lie 8 apart.
        const int32_t first = row / 24 * 24 + row % 8;
        for (const int32_t mate : {first, first + 8, first + 16}) {
          EXPECT_EQ(std::count(rows.begin(), rows.end(), mate), 1) << row;
        }
      }
    }
    std::sort(seen.begin(), seen.end());
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int32_t>(i / 2));
    EXPECT_NE(trained.steps.rows.front(), trained.steps.rows[one.rows.size()]) << "each epoch shuffles anew";
  }
}

TEST_F(EnvStepMinibatchesTest, OverAnEpochTheGradientIsThatOfRows) {
  for (const bool popart : {false, true}) {
    PpoOptions options = SmallUpdateOptions();
    options.learning_rate = 0;
    options.num_epochs = 1;
    options.max_grad_norm = 0;
    options.minibatch_size = 13;
    options.use_value_active_masks = true;  // so that the rows of both losses are the same
    options.use_popart = popart;
    options.use_value_norm = !popart;
    const TeamBatch batch(TeamSpec(), 5, 3, 8, 1, /*leaves_earlier=*/2, /*inactive_rows=*/true);
    const Trained by_rows = Train(TeamSpec(), By(MinibatchBy::kRows, options), batch.batch);
    const Trained by_steps = Train(TeamSpec(), By(MinibatchBy::kEnvSteps, options), batch.batch);
    EXPECT_EQ(by_steps.report.minibatch_steps, by_rows.report.minibatch_steps);
    EXPECT_GT(by_steps.report.minibatch_steps, 4);
    EXPECT_LT(Difference(TeamSpec(), by_steps.steps.gradient, by_rows.steps.gradient), 2e-6);
  }
}

/// What the whole batch in one minibatch is computed for: a spec, options, a batch.
struct WholeBatch {
  std::string name;
  policy::PolicySpec spec;
  PpoOptions options = {};
  int64_t envs = 5, agents = 3, env_steps = 8, leaves_earlier = 0;
  bool inactive_rows = false;
};

std::vector<WholeBatch> WholeBatches() {
  std::vector<WholeBatch> all;
  const auto add = [&all](const std::string& name) -> WholeBatch& {
    all.push_back({name, TeamSpec()});
    all.back().options.use_value_clip = true;
    return all.back();
  };
  add("Plain");
  add("HuberWithoutAClip").options.use_value_clip = false;
  all.back().options.huber_delta = 0.5;
  add("LateStepsHaveFewerAgents").leaves_earlier = 2;
  add("SomeAreNotActive").inactive_rows = true;
  for (const bool of_policy : {false, true}) {
    add(of_policy ? "DeadInThePolicysLoss" : "DeadInTheCriticsLoss").inactive_rows = true;
    all.back().options.use_policy_active_masks = !of_policy;
    all.back().options.use_value_active_masks = of_policy;
  }
  add("DeadInBothWithMaskedInputs").inactive_rows = true;
  all.back().options.use_policy_active_masks = all.back().options.use_value_active_masks = false;
  all.back().options.death_masking = true;
  // A unit is longer than a panel, and no multiple of one.
  add("AHundredAgents").agents = 101;
  all.back().envs = 2;
  all.back().env_steps = 3;
  add("ManyPanels").envs = 120;
  add("PopArt").options.use_popart = true;
  all.back().options.use_value_norm = false;
  add("NormedSilu").spec.mutable_critic()->layer_norm = true;
  all.back().spec.mutable_critic()->activation = policy::Activation::kSilu;
  return all;
}

class WholeBatchTest : public testing::TestWithParam<std::tuple<size_t, VectorUnit, int>> {};

TEST_P(WholeBatchTest, AnUpdateIsThatOfRows) {
  const WholeBatch one = WholeBatches()[std::get<0>(GetParam())];
  const VectorUnit unit = std::get<1>(GetParam());
  if (unit == VectorUnit::kAvx2 && !base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  if (unit == VectorUnit::kAvx512 && !base::ProcessorHasAvx512()) GTEST_SKIP() << base::kNoAvx512;
  PpoOptions options = one.options;
  options.minibatch_size = 1 << 20;
  options.num_epochs = 3;
  options.learning_rate = 1e-3;
  const TeamBatch batch(one.spec, one.envs, one.agents, one.env_steps, 1, one.leaves_earlier, one.inactive_rows);
  const Trained by_rows = Train(one.spec, By(MinibatchBy::kRows, options), batch.batch, std::get<2>(GetParam()), unit);
  const Trained by_steps =
      Train(one.spec, By(MinibatchBy::kEnvSteps, options), batch.batch, std::get<2>(GetParam()), unit);
  EXPECT_EQ(by_steps.report.minibatch_steps, 3);
  EXPECT_LT(Difference(one.spec, by_steps.steps.gradient, by_rows.steps.gradient), 1e-5);
  EXPECT_LT(Difference(one.spec, Doubles(by_steps.state.parameters()), Doubles(by_rows.state.parameters())), 1e-5);
  EXPECT_NE(by_steps.steps.rows, by_rows.steps.rows);
  ASSERT_EQ(by_steps.report.metrics.size(), by_rows.report.metrics.size());
  for (size_t i = 0; i < by_rows.report.metrics.size(); ++i) {
    const auto& [name, expected] = by_rows.report.metrics[i];
    EXPECT_EQ(by_steps.report.metrics[i].first, name);
    EXPECT_NEAR(by_steps.report.metrics[i].second, expected, 1e-5 * std::max(1.0, std::abs(expected))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WholeBatchTest,
                         testing::Combine(testing::Range<size_t>(0, WholeBatches().size()),
                                          testing::Values(VectorUnit::kAvx2, VectorUnit::kAvx512),
                                          testing::Values(1, 3)),
                         [](const testing::TestParamInfo<WholeBatchTest::ParamType>& info) {
                           return absl::StrCat(WholeBatches()[std::get<0>(info.param)].name,
                                               std::get<1>(info.param) == VectorUnit::kAvx2 ? "_Avx2_" : "_Avx512_",
                                               std::get<2>(info.param));
                         });

TEST_F(EnvStepMinibatchesTest, WhereTheCriticReadsSomethingOfTheAgentTheBitsAreThoseOfRows) {
  policy::PolicySpec with_id = TeamSpec();
  with_id.SetCriticAgentId(true);
  policy::PolicySpec with_observation = TeamSpec();
  with_observation.SetCriticReadsAgentState(true);
  policy::PolicySpec ippo = TeamSpec();
  ippo.SetCriticInput(NetworkInput::kObservation, 0);
  for (const policy::PolicySpec& spec : {with_id, with_observation}) {
    const TeamBatch batch(spec, 5, 3, 8, 1);
    const Trained by_rows = Train(spec, By(MinibatchBy::kRows), batch.batch);
    policy::ExpectSameBits(Train(spec, By(MinibatchBy::kEnvSteps), batch.batch).state, by_rows.state);
  }
  const RandomBatch batch(ippo, kSmallUpdateSegments, 1);
  const Trained by_rows = Train(ippo, By(MinibatchBy::kRows), batch.batch);
  policy::ExpectSameBits(Train(ippo, By(MinibatchBy::kEnvSteps), batch.batch).state, by_rows.state);
}

TEST_F(EnvStepMinibatchesTest, TheSameSeedGivesTheSameBits) {
  const TeamBatch batch(TeamSpec(), 5, 3, 8, 1, /*leaves_earlier=*/2);
  const Trained one = Train(TeamSpec(), By(MinibatchBy::kEnvSteps), batch.batch, 3);
  policy::ExpectSameBits(Train(TeamSpec(), By(MinibatchBy::kEnvSteps), batch.batch, 3).state, one.state);
  EXPECT_NE(Train(TeamSpec(), By(MinibatchBy::kRows), batch.batch, 3).state.parameters(), one.state.parameters());
}

}  // namespace
}  // namespace troupe::training
