// Optimizers, clipping, schedules, rates and penalties that follow the KL divergence, and frozen parameters against
// numbers that plain PyTorch computed in double precision (optimizer_reference.py made optimizer_reference.json): steps
// of torch.optim to 1e-6, and whole updates of PPO by every back end to 1e-5, relative to the largest number of a
// tensor; 1e-4 on a GPU, whose sums have an order of their own.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "lib/tensor/buffer.h"
#include "lib/training/core/optimizer.h"
#include "lib/training/fused/fused_optimizer.h"
#include "lib/training/fused/fused_support.h"
#include "lib/training/ppo/ppo_options.h"
#include "lib/training/torch/torch_device.h"
#include "lib/training/torch/torch_optimizer.h"
#include "tests/parity/update_parity.h"
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace troupe::training {
namespace {

const json& Record() {
  static const json& recorded = *new json(ReadRecord("optimizer_reference.json"));
  return recorded;
}

void ReadOptimizer(const json& from, OptimizerOptions* options) {
  const std::string optimizer = from["optimizer"].get<std::string>();
  for (const auto& [kind, name] : kOptimizerNames) {
    if (optimizer == name) options->optimizer = kind;
  }
  options->adam_epsilon = from["adam_epsilon"].get<double>();
  options->adam_beta1 = from["adam_beta1"].get<double>();
  options->adam_beta2 = from["adam_beta2"].get<double>();
  options->weight_decay = from["weight_decay"].get<double>();
  options->momentum = from["momentum"].get<double>();
  options->rmsprop_alpha = from["rmsprop_alpha"].get<double>();
  options->rmsprop_epsilon = from["rmsprop_epsilon"].get<double>();
  options->max_grad_norm = from["max_grad_norm"].get<double>();
  options->clip_grad_norm_by =
      from["clip_grad_norm_by"] == "policy" ? ClipGradNormBy::kPolicy : ClipGradNormBy::kNetwork;
}

PpoOptions Options(const json& record) {
  const json& from = record["options"];
  PpoOptions options;
  ReadOptions(from, &options);
  ReadOptimizer(from, &options);
  options.time_limit_bootstrap = from["time_limit_bootstrap"].get<bool>();
  options.use_value_clip = from["use_value_clip"].get<bool>();
  options.value_clip_param = from["value_clip_param"].get<double>();
  options.num_epochs = from["num_epochs"].get<int64_t>();
  options.minibatch_size = from["minibatch_size"].get<int64_t>();
  options.rate = {from["lr_kl_target"].get<double>(), from["lr_kl_factor"].get<double>(),
                  from["lr_kl_step"].get<double>(), from["min_lr"].get<double>(), from["max_lr"].get<double>()};
  options.penalty = {from["use_kl_loss"].get<bool>(), from["kl_coeff"].get<double>(), from["kl_target"].get<double>()};
  for (const json& prefix : record["frozen"]) options.frozen_parameters.push_back(prefix.get<std::string>() + "*");
  return options;
}

/// The four rows of numbers of a flat buffer.
class Rows {
 public:
  static constexpr int64_t kSize = 48;  // whole grains: 45 numbers of the record

  explicit Rows(const json& parameters) : buffer_(4 * kSize * sizeof(float)) {
    std::fill_n(row(0).data(), 4 * kSize, 0.0f);
    const std::vector<float> values = parameters.get<std::vector<float>>();
    std::copy(values.begin(), values.end(), row(0).begin());
  }
  absl::Span<float> row(int index) {
    return buffer_.As<float>(static_cast<size_t>(index) * kSize * sizeof(float), kSize);
  }
  ParameterBlock block() { return {"", row(0), row(1), row(2), row(3)}; }
  void SetGradient(const json& gradient) {
    const std::vector<float> values = gradient.get<std::vector<float>>();
    std::copy(values.begin(), values.end(), row(1).begin());
  }

 private:
  tensor::Buffer buffer_;
};

void ExpectParameters(absl::Span<const float> got, const json& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double number = expected[i].get<double>();
    EXPECT_NEAR(got[i], number, 1e-6 * std::max(1.0, std::abs(number))) << what << " " << i;
  }
}

/// Runs a record's steps by `step(number of the step, block, learning rate, options)`.
template <typename Step>
void ExpectSteps(const std::string& what, Step&& step) {
  for (const json& record : Record()["steps"]) {
    OptimizerOptions options;
    ReadOptimizer(record["options"], &options);
    Rows rows(record["parameters"]);
    for (size_t i = 0; i < record["gradients"].size(); ++i) {
      rows.SetGradient(record["gradients"][i]);
      step(static_cast<int64_t>(i) + 1, rows.block(), record["lr"].get<double>(), options);
      ExpectParameters(rows.row(0), record["after"][i],
                       what + " " + record["options"].dump() + " step " + std::to_string(i + 1) + ", number");
    }
  }
}

/// Of whole updates: what the record has, which is read when tests run.
constexpr size_t kCases = 13;

TEST(OptimizerParityTest, EveryRecordedCaseRuns) { EXPECT_EQ(Record()["cases"].size(), kCases); }

TEST(OptimizerParityTest, StepsOnTheHost) {
  ExpectSteps("host", [](int64_t step, const ParameterBlock& block, double lr, const OptimizerOptions& options) {
    StepBlock(step, lr, options, GradientNorm(block), block);
  });
}

TEST(OptimizerParityTest, StepsOfTheFusedKernels) {
  if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  int served = 0;
  for (const VectorUnit unit : {VectorUnit::kAvx2, VectorUnit::kAvx512}) {
    const fused::Kernels* const kernels = fused::FindKernels(unit);
    if (kernels == nullptr) continue;
    ++served;
    ExpectSteps(kernels->name,
                [&](int64_t step, const ParameterBlock& block, double lr, const OptimizerOptions& options) {
                  fused::StepPart(*kernels, step, lr, options, GradientNorm(block), block);
                });
  }
  EXPECT_EQ(served, 1 + (base::ProcessorHasAvx512() ? 1 : 0));
}

/// A device's numbers from a block and back.
void StepOnTheDevice(const ParameterBlock& block, const StepSettings& settings, double steps, bool is_ok) {
  const torch::Device device = ToTorch(TestDevice());
  const auto load = [&](absl::Span<float> row) {
    return torch::from_blob(row.data(), {static_cast<int64_t>(row.size())}, torch::kFloat32).clone().to(device);
  };
  const int64_t split = static_cast<int64_t>(block.values.size());
  DeviceNumbers numbers{load(block.values),
                        load(block.gradients),
                        load(block.exp_avg),
                        load(block.exp_avg_sq),
                        torch::full({}, steps, torch::TensorOptions().dtype(torch::kFloat64).device(device)),
                        split};
  ZeroFrozenOnDevice(settings, numbers.gradients);
  StepOnDevice(settings, numbers.gradients.norm(), torch::zeros({}, numbers.gradients.options()),
               torch::full({}, is_ok, torch::TensorOptions().dtype(torch::kBool).device(device)), numbers);
  const auto store = [](const torch::Tensor& from, absl::Span<float> to) {
    const torch::Tensor host = from.to(torch::kCPU).contiguous();
    std::copy_n(host.data_ptr<float>(), to.size(), to.data());
  };
  store(numbers.values, block.values);
  store(numbers.exp_avg, block.exp_avg);
  store(numbers.exp_avg_sq, block.exp_avg_sq);
  EXPECT_EQ(numbers.steps.item<double>(), steps + (is_ok ? 1 : 0));
}

StepSettings SettingsOf(const OptimizerOptions& options, double learning_rate) {
  StepSettings settings;
  static_cast<OptimizerOptions&>(settings) = options;
  settings.learning_rate = learning_rate;
  return settings;
}

TEST(OptimizerParityTest, StepsOnTheDevice) {
  ExpectSteps("device", [](int64_t step, const ParameterBlock& block, double lr, const OptimizerOptions& options) {
    StepOnTheDevice(block, SettingsOf(options, lr), static_cast<double>(step - 1), true);
  });
}

TEST(OptimizerParityTest, ARefusedStepOnTheDeviceChangesNothing) {
  for (const json& record : Record()["steps"]) {
    OptimizerOptions options;
    ReadOptimizer(record["options"], &options);
    Rows rows(record["parameters"]);
    std::fill(rows.row(1).begin(), rows.row(1).end(), std::nanf(""));
    std::fill(rows.row(2).begin(), rows.row(2).end(), 0.5f);
    const std::vector<float> before(rows.row(0).begin(), rows.row(0).end());
    StepOnTheDevice(rows.block(), SettingsOf(options, 0.1), 3, false);
    EXPECT_EQ(std::vector<float>(rows.row(0).begin(), rows.row(0).end()), before) << record["options"].dump();
    for (const float moment : rows.row(2)) EXPECT_EQ(moment, 0.5f);
    for (const float moment : rows.row(3)) EXPECT_EQ(moment, 0.0f);
  }
}

class OptimizerUpdateParityTest : public UpdateParityTest {
  const json& Recorded() const override { return Record(); }
};

TEST_P(OptimizerUpdateParityTest, AWholeUpdate) {
  const json& expected = record()["update"];
  const policy::PolicyState before = [&] {
    policy::PolicyState state;
    state.Set(policy::kParameters, Flat(record()["parameters"], policy::ParameterLayout::For(Spec(record()))));
    return state;
  }();
  policy::AlgorithmSpec spec = WithSchedules(record()["options"], PpoSpec(Options(record())));
  spec.options["clip_param"] = Schedule(record()["options"]["clip_param"]);
  ExpectReport(Run(spec), expected);
  ExpectClose(layout_, after_.parameters(), Flat(expected["parameters"], layout_), tolerance(), "parameter");
  ExpectClose(layout_, after_.Floats(kAdamExpAvg), Flat(expected["exp_avg"], layout_), tolerance(), "exp_avg of");
  ExpectClose(layout_, after_.Floats(kAdamExpAvgSq), Flat(expected["exp_avg_sq"], layout_), tolerance(),
              "exp_avg_sq of");
  EXPECT_EQ(after_.Integer(kAdamSteps), expected["minibatch_steps"].get<int64_t>());
  const PpoOptions options = Options(record());
  ASSERT_EQ(after_.Doubles(kLearningRate).empty(), !options.rate.is_on());
  if (options.rate.is_on()) {
    EXPECT_NEAR(after_.Doubles(kLearningRate)[0], expected["learning_rate"].get<double>(), 1e-12);
  }
  ASSERT_EQ(after_.Doubles(kKlCoeff).empty(), !options.penalty.adapts());
  if (options.penalty.adapts()) {
    EXPECT_NEAR(after_.Doubles(kKlCoeff)[0], expected["kl_coeff"].get<double>(), 1e-12);
  }
  for (const json& prefix : record()["frozen"]) {
    for (const policy::ParameterEntry& entry : layout_.entries()) {
      if (entry.name.rfind(prefix.get<std::string>(), 0) != 0) continue;
      EXPECT_TRUE(std::equal(before.parameters().begin() + entry.offset,
                             before.parameters().begin() + entry.offset + entry.count,
                             after_.parameters().begin() + entry.offset))
          << entry.name;
    }
  }
}

std::string CaseName(const testing::TestParamInfo<OptimizerUpdateParityTest::ParamType>& info) {
  return Record()["cases"][std::get<0>(info.param)]["name"].get<std::string>() + "_" + BackendName(info);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerUpdateParityTest,
                         testing::Combine(testing::Range<size_t>(0, kCases), testing::Range<size_t>(0, 7)), CaseName);

}  // namespace
}  // namespace troupe::training
