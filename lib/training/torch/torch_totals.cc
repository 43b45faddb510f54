#include "lib/training/torch/torch_totals.h"

#include <algorithm>

namespace troupe::training {

using torch::Tensor;

namespace {
constexpr int64_t kNumbers = 9;  // before the loss's statistics
}  // namespace

NetworkLoss Together(const NetworkLoss& one, const NetworkLoss& other) {
  return {(one.mean + other.mean).detach(), one.sums + other.sums, one.rows + other.rows};
}

Losses OfBoth(const Tensor& loss, const Tensor& entropy, int64_t rows, int64_t value_rows) {
  const Tensor none = torch::zeros_like(entropy);
  return {{loss, torch::stack({none, entropy}), rows}, {none, none.reshape({1}), value_rows}};
}

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

void MetricSums::Add(const std::vector<std::pair<std::string, Tensor>>& metrics, const Tensor& ok) {
  std::vector<std::string> names;
  std::vector<Tensor> values;
  for (const auto& [name, value] : metrics) {
    names.push_back(name);
    values.push_back(value.to(torch::kFloat64));
  }
  const Tensor step = torch::stack(values);
  if (names_.empty()) {
    names_ = names;
    sums_ = torch::zeros_like(step);
  }
  TORCH_CHECK(names == names_,
              "the TorchScript module gives other metrics than at the update's first step, expected "
              "the same names in the same order at every step");
  sums_.add_(torch::where(ok, step, torch::zeros_like(step)));
}

std::vector<std::pair<std::string, double>> MetricSums::Take(const DeviceMemory& memory) {
  std::vector<std::pair<std::string, double>> sums;
  if (names_.empty()) return sums;
  const Tensor host = memory.ToHost(sums_);
  memory.Await();
  for (size_t i = 0; i < names_.size(); ++i) sums.emplace_back(names_[i], host.data_ptr<double>()[i]);
  sums_.zero_();
  return sums;
}

void MetricSums::Release() {
  names_.clear();
  sums_.reset();
}

}  // namespace troupe::training
