#pragma once

#include <vector>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"

namespace troupe::training {

struct Advantages {
  std::vector<float> advantages;  ///< [rows]
  std::vector<float> returns;     ///< [rows], what the critic should have said: advantages + values
};

/// Generalized advantage estimation (Schulman et al. 2016, eq. 16), a segment at a time:
///   delta_t = r_t + gamma V(s_t+1) - V(s_t),  A_t = delta_t + gamma lambda A_t+1,
/// where V after a segment's last row is final_values[final_row], or 0 when the segment terminated. `lambda` 1 gives
/// the discounted return (bootstrapped where the segment was cut or truncated) minus the value. `values` [rows] and
/// `final_values` [final_rows] are in the units of the rewards. Rows of no segment get advantage 0 and return = value.
/// Without `time_limit_bootstrap` nothing comes after a segment that was truncated, either; one that was cut goes on.
/// `waits` [rows], where it is not empty, has the env steps from each row's decision to what follows it
/// (learner::PolicyTrainBatch::waits): gamma to their power stands for gamma, and lambda stays per decision. This is
/// the discount of a semi-Markov decision process (Sutton, Precup & Singh 1999, section 1); `rewards` are then
/// discounted within each wait already (policy::PolicySpec::reward_discount).
Advantages ComputeGae(const std::vector<learner::TrainSegment>& segments, absl::Span<const float> rewards,
                      absl::Span<const float> values, absl::Span<const float> final_values, double gamma, double lambda,
                      bool time_limit_bootstrap = true, absl::Span<const int32_t> waits = {});

/// Bounds of V-trace's weights: rho-bar of values, and of the policy's gradient.
struct VtraceClips {
  double rho = 1;
  double pg_rho = 1;
};

/// V-trace (Espeholt et al. 2018, arXiv 1802.01561, eq. 1 and section 4.2; lambda as in remark 2), a segment at a time.
/// Returns v_s as `returns`, and as `advantages` what the gradient of log pi is multiplied by, its weight included:
///   delta_t = r_t + gamma V(s_t+1) - V(s_t),  rho_t = min(rho-bar, ratio_t),  c_t = lambda min(1, ratio_t)
///   e_t = rho_t delta_t + gamma c_t e_t+1,  v_t = V(s_t) + e_t,  A_t = min(pg-rho-bar, ratio_t) (delta_t + gamma
///   lambda e_t+1)
/// `ratios` [rows]: pi(a | s) / mu(a | s), of the policy that learns and the one that acted. Where all are 1 this is
/// ComputeGae, to the bit. The rest as in ComputeGae.
Advantages ComputeVtrace(const std::vector<learner::TrainSegment>& segments, absl::Span<const float> rewards,
                         absl::Span<const float> values, absl::Span<const float> final_values,
                         absl::Span<const float> ratios, double gamma, double lambda, const VtraceClips& clips,
                         bool time_limit_bootstrap = true, absl::Span<const int32_t> waits = {});

/// Shifts and scales `advantages` to mean 0 and (population) deviation 1 over the rows in `active`; those in `counted`,
/// where there are more, in the same way, the others become 0. Active rows that are fewer than two, or all alike, have
/// no deviation to scale the others by: then over those in `counted`.
std::vector<float> NormalizeAdvantages(const std::vector<float>& advantages, absl::Span<const int32_t> active,
                                       absl::Span<const int32_t> counted);
inline std::vector<float> NormalizeAdvantages(const std::vector<float>& advantages, absl::Span<const int32_t> active) {
  return NormalizeAdvantages(advantages, active, active);
}

/// 1 - Var(returns - values) / Var(returns) over the rows in `active`; 0 when the returns do not vary.
double ExplainedVariance(absl::Span<const float> returns, absl::Span<const float> values,
                         absl::Span<const int32_t> active);

}  // namespace troupe::training
