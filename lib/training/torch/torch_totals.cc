#include "lib/training/torch/torch_totals.h"

#include <algorithm>

namespace troupe::training {

using torch::Tensor;

namespace {
constexpr int64_t kNumbers = 9;  // before the loss's statistics
}  // namespace

void DeviceTotals::Begin(c10::Device device) {
  numbers_ = torch::zeros({kNumbers + kLossStatistics}, torch::TensorOptions().dtype(torch::kFloat64).device(device));
}

void DeviceTotals::Add(const NetworkLoss& actor, const NetworkLoss& critic, const Tensor& actor_norm,
                       const Tensor& critic_norm, const Tensor& ok) {
  const Tensor taken = ok.to(torch::kFloat64);
  const Tensor sums =
      torch::cat({critic.sums, actor_norm.reshape({1}), critic_norm.reshape({1}), actor.sums}).to(torch::kFloat64);
  const Tensor counts = torch::stack(
      {taken, 1.0 - taken, taken * static_cast<double>(actor.rows), taken * static_cast<double>(critic.rows)});
  numbers_.narrow(0, 0, counts.numel() + sums.numel())
      .add_(torch::cat({counts, torch::where(ok, sums, torch::zeros_like(sums))}));
}

StepTotals DeviceTotals::Read(const Tensor& host) {
  const double* const t = host.data_ptr<double>();
  StepTotals totals = {.steps = static_cast<int64_t>(t[0]),
                       .skipped_steps = static_cast<int64_t>(t[1]),
                       .rows = static_cast<int64_t>(t[2]),
                       .value_rows = static_cast<int64_t>(t[3]),
                       .policy_loss = t[7],
                       .value_loss = t[4],
                       .entropy = t[8],
                       .statistics = {},
                       .actor_grad_norm = t[5],
                       .critic_grad_norm = t[6]};
  std::copy_n(t + kNumbers, kLossStatistics, totals.statistics.begin());
  return totals;
}

}  // namespace troupe::training
