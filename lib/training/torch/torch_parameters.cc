#include "lib/training/torch/torch_parameters.h"

#include <algorithm>
#include <cmath>

#include "lib/base/check.h"
#include "lib/training/core/optimizer.h"
#include "lib/training/torch/torch_optimizer.h"

namespace troupe::training {

using torch::Tensor;

bool TorchParameters::Load(FlatParameters* parameters, absl::Span<int64_t> steps) {
  const bool same =
      values_.defined() && (!memory_.borrows() || values_.data_ptr<float>() == parameters->values().data());
  parameters_ = parameters;
  host_steps_ = steps;
  if (memory_.borrows()) {
    if (same) return false;
    values_ = memory_.Load(parameters->values());
    gradients_ = memory_.Load(parameters->gradients());
    MakeBlocks();
    return true;
  }
  const Tensor host_steps = torch::tensor(std::vector<int64_t>(steps.begin(), steps.end())).to(torch::kFloat64);
  if (!same) {
    values_ = memory_.Load(parameters->values());
    gradients_ = torch::zeros_like(values_);
    exp_avg_ = memory_.Load(parameters->exp_avg());
    exp_avg_sq_ = memory_.Load(parameters->exp_avg_sq());
    steps_ = memory_.Load(host_steps);
    MakeBlocks();
    return true;
  }
  const torch::NoGradGuard no_grad;
  values_.copy_(memory_.Load(parameters->values()));
  exp_avg_.copy_(memory_.Load(parameters->exp_avg()));
  exp_avg_sq_.copy_(memory_.Load(parameters->exp_avg_sq()));
  steps_.copy_(memory_.Load(host_steps));
  return false;
}

void TorchParameters::MakeBlocks() {
  entries_.clear();
  blocks_.clear();
  std::vector<int64_t> block_of;  // by section; -1: not trained
  for (const policy::ParameterSection& section : layout().sections()) {
    block_of.push_back(section.trained ? static_cast<int64_t>(blocks_.size()) : -1);
    if (section.trained) blocks_.push_back({section.role, section.offset, section.size, {}});
  }
  for (const policy::ParameterEntry& entry : layout().entries()) {
    const auto part = [&](const Tensor& flat) { return flat.narrow(0, entry.offset, entry.count).view(entry.shape); };
    Tensor parameter = part(values_).detach();
    if (const int64_t block = block_of[entry.section]; block >= 0) {
      parameter.requires_grad_(true);
      parameter.mutable_grad() = part(gradients_);
      blocks_[static_cast<size_t>(block)].leaves.push_back(parameter);
    }
    entries_.push_back(std::move(parameter));
  }
}

void TorchParameters::Store() {
  if (memory_.borrows()) return;
  stored_ = {memory_.ToHost(values_), memory_.ToHost(exp_avg_), memory_.ToHost(exp_avg_sq_), memory_.ToHost(steps_)};
}

void TorchParameters::Finish() {
  if (memory_.borrows()) return;
  const auto copy = [](const Tensor& from, absl::Span<float> to) {
    std::copy_n(from.data_ptr<float>(), to.size(), to.data());
  };
  copy(stored_.values, parameters_->values());
  copy(stored_.exp_avg, parameters_->exp_avg());
  copy(stored_.exp_avg_sq, parameters_->exp_avg_sq());
  const double* const steps = stored_.steps.data_ptr<double>();
  for (size_t i = 0; i < host_steps_.size(); ++i) host_steps_[i] = static_cast<int64_t>(steps[i]);
  stored_ = {};
}

Tensor TorchParameters::Find(const std::string& name) const {
  const policy::ParameterEntry* const entry = layout().Find(name);
  TROUPE_CHECK(entry != nullptr);
  return entries_[static_cast<size_t>(entry - layout().entries().data())];
}

int64_t TorchParameters::FindBlock(std::string_view role) const {
  const auto found =
      std::find_if(blocks_.begin(), blocks_.end(), [role](const Block& block) { return block.role == role; });
  return found == blocks_.end() ? -1 : found - blocks_.begin();
}

void TorchParameters::ZeroGradients(size_t block) {
  gradients_.narrow(0, blocks_[block].first, blocks_[block].size).zero_();
}

Tensor TorchParameters::SquaredNorm(size_t block) const {
  const Block& part = blocks_[block];
  if (memory_.borrows()) {
    const absl::Span<const float> gradients(gradients_.data_ptr<float>() + part.first, static_cast<size_t>(part.size));
    return torch::scalar_tensor(SumOfSquares(gradients), torch::kFloat64);
  }
  return gradients_.narrow(0, part.first, part.size).square().sum(torch::kFloat64);
}

void TorchParameters::Step(size_t block, const OptimizerOptions& options, const Tensor& learning_rate,
                           const Tensor& norm, const Tensor& ok) {
  const Block& part = blocks_[block];
  if (memory_.borrows()) {
    if (!ok.item<bool>()) return;
    StepBlock(++host_steps_[block], learning_rate.item<double>(), options, norm.item<double>(),
              parameters_->Part(part.first, part.first + part.size));
    return;
  }
  const auto of = [&part](const Tensor& flat) { return flat.narrow(0, part.first, part.size); };
  StepBlockOnDevice(
      options, learning_rate, norm, ok,
      {of(values_), of(gradients_), of(exp_avg_), of(exp_avg_sq_), steps_.select(0, static_cast<int64_t>(block))});
}

void TorchParameters::MoveTarget(std::string_view role, double share) {
  const torch::NoGradGuard no_grad;
  const policy::ParameterSection* const from = layout().FindSection(role);
  const policy::ParameterSection* const to = layout().FindSection(std::string(role) + policy::kTargetOf);
  TROUPE_CHECK(from != nullptr && to != nullptr);
  const Tensor target = values_.narrow(0, to->offset, to->size);
  const Tensor followed = values_.narrow(0, from->offset, from->size);
  if (share == 1) {
    target.copy_(followed);
  } else {
    target.lerp_(followed, share);
  }
}

}  // namespace troupe::training
