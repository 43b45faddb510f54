#include "lib/training/fused/fused_loss_numbers.h"

#include <algorithm>

#include "lib/policy/policy_spec.h"

namespace troupe::training::fused {

static_assert(kMaxBetaOutput == policy::kMaxBetaOutput);
static_assert(static_cast<int>(Density::kGaussian) == static_cast<int>(policy::ContinuousDistribution::kGaussian));
static_assert(static_cast<int>(Density::kSquashedGaussian) ==
              static_cast<int>(policy::ContinuousDistribution::kSquashedGaussian));
static_assert(static_cast<int>(Density::kBeta) == static_cast<int>(policy::ContinuousDistribution::kBeta));

void LogStd::Take(const Workspace& space, const float* values) {
  values_.assign(values, values + space.log_std_size);
  beyond_.clear();
  for (size_t i = 0; i < values_.size(); ++i) {
    // NaN stays NaN.
    if (values_[i] < space.min_log_std || values_[i] > space.max_log_std) beyond_.push_back(static_cast<int64_t>(i));
    values_[i] = std::min(std::max(values_[i], space.min_log_std), space.max_log_std);
  }
}

void LogStd::ZeroBeyond(float* gradient) const {
  for (const int64_t i : beyond_) gradient[i] = 0;
}

ActorLoss ActorLossFor(const Workspace& space, const LogStd& log_std, int64_t count, const StepSettings& settings) {
  const double rows = static_cast<double>(std::max<int64_t>(count, 1));
  ActorLoss loss = {.parts = space.parts.data(),
                    .num_parts = static_cast<int>(space.parts.size()),
                    .outputs = space.actor.outputs(),
                    .log_std = log_std.data(),
                    .numbers = {},
                    .row_scale = static_cast<float>(1.0 / rows),
                    .entropy_scale = static_cast<float>(settings.entropy_coeff / rows),
                    .min_log_std = space.min_log_std,
                    .max_log_std = space.max_log_std};
  for (int i = 0; i < kLossNumbers; ++i) loss.numbers[i] = static_cast<float>(settings.loss.numbers[i]);
  return loss;
}

CriticLoss CriticLossFor(int64_t count, const StepSettings& settings) {
  const double rows = static_cast<double>(std::max<int64_t>(count, 1));
  CriticLoss loss = {.numbers = {},
                     .huber_delta = static_cast<float>(settings.huber_delta),
                     .row_scale = static_cast<float>(settings.value_loss_coeff / rows)};
  for (int i = 0; i < kLossNumbers; ++i) loss.numbers[i] = static_cast<float>(settings.loss.numbers[i]);
  return loss;
}

}  // namespace troupe::training::fused
