#pragma once

#include <algorithm>

namespace troupe::training {

/// A learning rate that follows the KL divergence of the epochs, as skrl's KLAdaptiveLR: divided where the policy moved
/// too far, multiplied where it hardly moved. Members have the configuration's keys and the schema's defaults. Plain
/// value.
struct KlAdaptiveRate {
  double lr_kl_target = 0;  ///< 0: off
  double lr_kl_factor = 2;  ///< how many times more or less than the target is too much or too little; at least 1
  double lr_kl_step = 1.5;  ///< the rate is multiplied or divided by it; at least 1
  double min_lr = 1e-6;
  double max_lr = 1e-2;

  bool is_on() const { return lr_kl_target > 0; }
  /// After an epoch with a mean divergence of `kl` over its rows. A rate that is outside of its bounds comes back at
  /// the next change in their direction.
  double Next(double rate, double kl) const {
    if (kl > lr_kl_target * lr_kl_factor) return std::max(rate / lr_kl_step, min_lr);
    if (kl < lr_kl_target / lr_kl_factor) return std::min(rate * lr_kl_step, max_lr);
    return rate;
  }
};

/// A penalty on the KL divergence from the policy that acted (Schulman et al. 2017, section 4, with RLlib's numbers).
/// Plain value.
struct KlPenalty {
  bool use_kl_loss = false;
  double kl_coeff = 0.2;    ///< of the penalty; the first one where there is a kl_target, above 0 then
  double kl_target = 0.01;  ///< 0: the coefficient stays

  bool adapts() const { return use_kl_loss && kl_target > 0; }
  /// After an update whose last epoch had a mean divergence of `kl` over its rows. From 1e-6 to 1e6: a coefficient that
  /// has become 0, or without bound, would not come back.
  double Next(double coeff, double kl) const {
    if (kl > 2.0 * kl_target) coeff *= 1.5;
    if (kl < 0.5 * kl_target) coeff *= 0.5;
    return std::clamp(coeff, 1e-6, 1e6);
  }
};

}  // namespace troupe::training
