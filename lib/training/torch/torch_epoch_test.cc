// Minibatches of a group whose loss is over tensors.

#include "lib/training/torch/torch_epoch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lib/policy/testing.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/testing/q_group.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/test_device.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using torch::Tensor;

const policy::PolicySlot kSlot(0);

/// Records what MinibatchGroup did and saw.
struct Watched {
  MinibatchPlan plan;
  int64_t broken_row = -1;                  ///< has no finite target
  std::vector<std::vector<int64_t>> steps;  ///< rows of each
  Tensor whole;                             ///< outputs of the batch's places
  double apart = 0;                         ///< the most that a minibatch's output differs from the whole's
};
Watched& watched() {
  static Watched all;
  return all;
}

/// Regression of an action's value towards the number of its row. Looks at numbers, which a captured step must not.
class MinibatchGroup final : public TorchGroup {
 public:
  MinibatchGroup(absl::Span<const GroupMember> members, const TrainingContext& context, const QSettings& settings)
      : TorchGroup(members, context, settings.path), settings_(settings) {}

 protected:
  absl::StatusOr<std::vector<Tensor>> Inputs(const GroupUpdate& /*update*/) override {
    return std::vector<Tensor>{torch::scalar_tensor(settings_.learning_rate, torch::kFloat64)};
  }
  std::optional<MinibatchPlan> Minibatches() const override { return watched().plan; }
  absl::StatusOr<std::vector<Tensor>> RowTargets(const GroupUpdate& /*update*/,
                                                 absl::Span<const TorchGroupRows> all) override {
    EXPECT_FALSE(torch::GradMode::is_enabled());
    watched().whole = ToHost(all[0].member.Run("actor", Net::kOnline, At::kPlaces));
    Tensor targets = torch::arange(all[0].batch.rows, torch::kFloat32).unsqueeze(1);
    if (watched().broken_row >= 0) targets[watched().broken_row] = std::numeric_limits<float>::quiet_NaN();
    return std::vector<Tensor>{targets};
  }
  void Train(TorchStep* step) override {
    const TorchMember& m = *step->members()[0];
    const Tensor values = m.Run("actor");
    if (settings_.learning_rate == 0) {  // nothing changes, so that outputs can be compared
      const Tensor rows = m.rows().targets.squeeze(1).to(torch::kInt64).cpu().contiguous();
      watched().steps.emplace_back(rows.data_ptr<int64_t>(), rows.data_ptr<int64_t>() + rows.size(0));
      const Tensor expected = watched().whole.index_select(0, rows);
      watched().apart = std::max(watched().apart, (values.detach().cpu() - expected).abs().max().item<double>());
    }
    const Tensor loss = (m.Chosen(values).mean(1, /*keepdim=*/true) - m.rows().targets).square().mean();
    step->Minimize(loss, {"actor"}, step->input(0));
    step->Report("Loss/Value loss", loss);
    step->Report("Policy/Action value", m.rows().targets.mean());
  }

 private:
  const QSettings settings_;
};

policy::PolicySpec WithoutTarget(policy::PolicySpec spec) {
  spec = QSpecOf(std::move(spec));
  spec.actor.has_target = false;
  return spec;
}

class TorchEpochTest : public testing::Test {
 protected:
  ~TorchEpochTest() override { watched() = {}; }

  /// An update of `batch` by a fresh group; its report.
  learner::PolicyUpdateReport Update(const policy::PolicySpec& spec, const learner::TrainBatch& batch,
                                     const QSettings& settings, int64_t iteration = 0) {
    algorithm_ = std::make_unique<TorchAlgorithm<MinibatchGroup>>(settings);
    const auto find = [this](std::string_view) -> absl::StatusOr<const Algorithm*> { return algorithm_.get(); };
    const auto no_backend = [](const policy::PolicySpec&) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
      return absl::InternalError("nobody asks for one");
    };
    host_ = *TrainerHost::Make({spec}, {{.name = "torch"}}, {.seed = 1, .device = settings.device}, find, no_backend);
    const auto reports = host_->Update(batch, {.seed = 1, .iteration = iteration, .next_version = {1, 1}});
    EXPECT_TRUE(reports.ok()) << reports.status();
    return reports.ok() ? reports->front() : learner::PolicyUpdateReport();
  }
  static double Metric(const learner::PolicyUpdateReport& report, std::string_view tag) {
    for (const auto& [name, value] : report.metrics) {
      if (name == tag) return value;
    }
    ADD_FAILURE() << tag;
    return 0;
  }

  std::unique_ptr<TorchAlgorithm<MinibatchGroup>> algorithm_;
  std::unique_ptr<TrainerHost> host_;
};

TEST_F(TorchEpochTest, EachEpochHasEachRowThatCountsOnceInAnOrderOfItsOwn) {
  const policy::PolicySpec spec = WithoutTarget(policy::SmallSpecForTesting());
  RandomBatch batch(spec, {9, 8, 6}, 1, /*inactive_rows=*/true);
  std::vector<int64_t> counted;
  for (int64_t row = 0; row < 23; ++row) {
    if (batch.agent_mask[static_cast<size_t>(row)] != 0) counted.push_back(row);
  }
  ASSERT_LT(counted.size(), 23u);
  watched().plan = {.num_epochs = 2, .minibatch_size = 5};
  const auto orders_of = [&](int64_t iteration) {
    watched().steps.clear();
    const learner::PolicyUpdateReport report = Update(spec, batch.batch, {.learning_rate = 0}, iteration);
    EXPECT_EQ(report.epochs, 2);
    const size_t each = (counted.size() + 4) / 5;
    EXPECT_EQ(report.minibatch_steps, static_cast<int64_t>(2 * each));
    EXPECT_EQ(report.trained_rows, static_cast<int64_t>(counted.size()));
    std::vector<std::vector<int64_t>> epochs(2);
    for (size_t step = 0; step < watched().steps.size(); ++step) {
      const std::vector<int64_t>& rows = watched().steps[step];
      EXPECT_EQ(rows.size(), step % each + 1 < each || counted.size() % 5 == 0 ? 5 : counted.size() % 5);
      epochs[step / each].insert(epochs[step / each].end(), rows.begin(), rows.end());
    }
    for (std::vector<int64_t> epoch : epochs) {
      EXPECT_NE(epoch, counted) << "is shuffled";
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, counted);
    }
    EXPECT_NE(epochs[0], epochs[1]);
    return epochs;
  };
  const auto first = orders_of(0);
  EXPECT_EQ(orders_of(0), first);
  EXPECT_NE(orders_of(1), first);
}

TEST_F(TorchEpochTest, AMinibatchsOutputsAreThoseOfItsRows) {
  policy::PolicySpec gru = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kNone);
  for (const policy::PolicySpec& of : {policy::SmallSpecForTesting(), gru}) {
    for (const TorchPath path : {TorchPath::kHost, TorchPath::kDevice}) {
      const policy::PolicySpec spec = WithoutTarget(of);
      RandomBatch batch(spec, {9, 17, 6, 12}, 1, /*inactive_rows=*/true);
      watched() = {.plan = {.num_epochs = 1, .minibatch_size = 8}};
      Update(spec, batch.batch, {.path = path, .learning_rate = 0});
      EXPECT_GT(watched().steps.size(), 2u);
      EXPECT_LT(watched().apart, 1e-6);
    }
  }
}

TEST_F(TorchEpochTest, AStepThatIsNotFiniteIsLeftOutOfReportsAndParameters) {
  for (const TorchPath path : {TorchPath::kHost, TorchPath::kDevice}) {
    const policy::PolicySpec spec = WithoutTarget(policy::SmallSpecForTesting());
    RandomBatch batch(spec, {9, 8, 6}, 1);
    QSettings settings = {.path = path, .device = path == TorchPath::kDevice ? TestDevice() : Device{}};
    watched() = {.plan = {.num_epochs = 2, .minibatch_size = 5}, .broken_row = 3};
    const learner::PolicyUpdateReport report = Update(spec, batch.batch, settings);
    EXPECT_EQ(report.skipped_steps, 2);
    EXPECT_EQ(report.minibatch_steps, 8);
    EXPECT_TRUE(std::isfinite(Metric(report, "Loss/Value loss")));
    const double mean = Metric(report, "Policy/Action value");
    EXPECT_GT(mean, 0);
    EXPECT_LT(mean, 22) << "a mean over steps, no sum";
    for (const float value : host_->ExportState(kSlot)->parameters()) ASSERT_TRUE(std::isfinite(value));
    // Among the steps of each shape, 5 rows and 3, the first is not done on kept tensors.
    EXPECT_EQ(algorithm_->last->replays_for_testing(), path == TorchPath::kDevice ? 8 : 0);
  }
}

TEST_F(TorchEpochTest, ImagesArePassedSomeRowsAtATime) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.observation_space = *space::Space::Box(-100, 100, {64, 64, 4});
  spec.actor.encoder = policy::EncoderKind::kCnn;
  spec.actor.conv_layers = {{32, 8, 4}};
  spec = WithoutTarget(std::move(spec));
  constexpr int64_t kRows = 800;
  ASSERT_LT(RowsOfPass(spec, spec.actor, kRows), kRows);
  RandomBatch batch(spec, {kRows}, 1);
  watched().plan = {.num_epochs = 1, .minibatch_size = 200};
  Update(spec, batch.batch, {.learning_rate = 0});
  EXPECT_EQ(watched().whole.size(0), kRows);
  EXPECT_LT(watched().apart, 1e-4);
}

}  // namespace
}  // namespace troupe::training
