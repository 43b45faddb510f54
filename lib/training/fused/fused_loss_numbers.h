#pragma once

#include <cstdint>
#include <vector>

#include "lib/training/core/fused_kernels.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/fused/fused_workspace.h"

namespace troupe::training::fused {

/// The free log standard deviations of a step, within their bounds; those beyond have no gradient. Not thread-safe but
/// for ZeroBeyond.
class LogStd {
 public:
  /// `values`: of actor.log_std; nothing is read where the policy has none.
  void Take(const Workspace& space, const float* values);
  const float* data() const { return values_.data(); }
  /// `gradient`: by what Take was given.
  void ZeroBeyond(float* gradient) const;

 private:
  std::vector<float> values_;
  std::vector<int64_t> beyond_;
};

/// The losses of a minibatch in which `count` rows count.
ActorLoss ActorLossFor(const Workspace& space, const LogStd& log_std, int64_t count, const StepSettings& settings);
CriticLoss CriticLossFor(int64_t count, const StepSettings& settings);

}  // namespace troupe::training::fused
