#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/training/parameters.h"
#include "lib/training/prepared_batch.h"

namespace troupe::training {

/// What one minibatch step needs beside its rows: PpoOptions with the schedules evaluated.
struct StepSettings {
  double learning_rate = 0;
  double critic_learning_rate = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-5;
  double clip_param = 0.2;
  bool use_value_clip = true;
  double value_clip_param = 0.2;
  double value_loss_coeff = 1;
  double huber_delta = 0;
  double entropy_coeff = 0;
  double max_grad_norm = 0;  ///< per network; <= 0: off
};

/// Sums over the minibatch steps taken since the last TakeTotals. Steps that were skipped count in `skipped_steps`
/// only.
struct StepTotals {
  int64_t steps = 0;
  int64_t skipped_steps = 0;
  int64_t rows = 0;
  // Sums over rows.
  double policy_loss = 0;  ///< clipped surrogate, negated
  double value_loss = 0;   ///< without its coefficient
  double entropy = 0;
  double kl = 0;       ///< ratio - 1 - log ratio ("k3", Schulman 2020)
  double clipped = 0;  ///< rows with |ratio - 1| > clip_param
  // Sums over steps; norms before clipping.
  double actor_grad_norm = 0;
  double critic_grad_norm = 0;

  StepTotals& operator+=(const StepTotals& other);
};

/// The arithmetic of PPO for one policy's networks. A back end is made for one PolicySpec and is the only writer of the
/// FlatParameters between Begin and End. Calls come in the order
///   Begin, Values, (BeginEpoch, Step..., TakeTotals)..., End
/// from one thread; each may block as long as it computes. Errors: INTERNAL when the library underneath fails
/// (out of device memory), after which the parameters are undefined until the owner restores them.
///
/// Losses of a minibatch, means over its rows (PPO, Schulman et al. 2017, eq. 7 and 9; MAPPO, Yu et al. 2022,
/// appendix):
///   actor:  -min(ratio A, clip(ratio, 1 - c, 1 + c) A) - entropy_coeff H
///   critic: value_loss_coeff max(f(V - target), f(old + clip(V - old, -v, v) - target)), f = half the square, or
///   Huber.
/// Then each network's gradient is clipped to max_grad_norm and Adam (Kingma & Ba 2015, as torch.optim.Adam) steps.
/// When a loss or a gradient norm is not finite, neither parameters nor optimizer change and the step counts as
/// skipped.
class PpoBackend {
 public:
  /// Instead of a thread of the team: all of them share each minibatch.
  static constexpr int kWholeTeam = -1;

  virtual ~PpoBackend() = default;

  /// Whether one thread can do all of an update while others do those of other policies.
  virtual bool can_run_alone() const { return false; }
  /// `thread`: kWholeTeam, called from the update thread; or, where it can run alone, the team's thread that makes this
  /// call and all others until End.
  virtual absl::Status Begin(const PreparedBatch& batch, FlatParameters* parameters, int thread) = 0;
  /// The critic's value for every row of critic_input(), in its own units.
  virtual absl::StatusOr<std::vector<float>> Values() = 0;
  /// `order`: the rows of the batch that minibatches are cut from, kept by the caller until the next BeginEpoch.
  virtual absl::Status BeginEpoch(absl::Span<const int32_t> order) = 0;
  /// One minibatch of order[first, first + count).
  virtual absl::Status Step(int64_t first, int64_t count, const StepSettings& settings) = 0;
  virtual absl::StatusOr<StepTotals> TakeTotals() = 0;
  /// After it the host's parameters, optimizer and gradients are current.
  virtual absl::Status End() = 0;

  /// "fused", "libtorch" and the device, for the log.
  virtual std::string_view name() const = 0;
};

}  // namespace troupe::training
