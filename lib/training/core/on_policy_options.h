#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/core/option_reader.h"
#include "lib/training/core/row_units.h"

namespace troupe::training {

/// The unit that gamma discounts by.
enum class DiscountBy : uint8_t {
  kDecision = 1,  ///< a decision of the agent, however long it waits for the next one
  kEnvStep = 2,   ///< an env step (learner::PolicyTrainBatch::waits)
};
inline constexpr std::array<std::pair<DiscountBy, const char*>, 2> kDiscountByNames = {
    {{DiscountBy::kDecision, "decision"}, {DiscountBy::kEnvStep, "env_step"}}};

/// What on-policy actor-critic algorithms have in common (OnPolicyGroup); each has them in its own options, by the
/// same keys, with schedules as they are at a time. An algorithm with other defaults sets them before it reads. Which
/// critic input a policy
/// has stands in its PolicySpec; what a batch is (its steps, lag, agents) is the run's. Plain value.
struct OnPolicyOptions : OptimizerOptions {
  OnPolicyOptions() { max_grad_norm = 0.5; }

  double learning_rate = 3e-4;                      ///< `lr`
  std::optional<double> critic_learning_rate = {};  ///< `critic_lr`; absent: as learning_rate
  double gamma = 0.99;
  DiscountBy discount_by = DiscountBy::kDecision;
  double gae_lambda = 0.95;
  bool use_gae = true;  ///< false: discounted returns minus values
  /// What comes after a trajectory that a time limit ended is worth the critic's value; false: 0, as after one that
  /// terminated.
  bool time_limit_bootstrap = true;
  bool use_advnorm = true;     ///< advantages to mean 0, deviation 1 over the policy's active rows of the batch
  bool use_value_norm = true;  ///< running mean and variance of the returns; the critic predicts normalized values
  bool use_popart = false;     ///< the same, instead of use_value_norm, with a critic that PreserveValues rescales
  /// Of rows whose agent mask is 0, dead agents' (PrepareOptions).
  bool use_policy_active_masks = true;
  bool use_value_active_masks = false;
  bool death_masking = false;
  MinibatchBy minibatch_by = MinibatchBy::kRows;
  double value_loss_coeff = 1.0;
  double huber_delta = 0;  ///< > 0: Huber instead of squared error
  double entropy_coeff = 0.01;
  std::vector<std::string> frozen_parameters = {};  ///< globs over names of the layout (FrozenRanges)

  /// Whether the critic predicts returns in the units of their running moments.
  bool normalizes_values() const { return use_value_norm || use_popart; }
};

/// The options as they hold for the policy: where its critic shares the actor's encoder there is one loss, so that the
/// rate is `lr` alone and the gradient is clipped by the norm of all of it.
OnPolicyOptions OptionsFor(const policy::PolicySpec& policy, OnPolicyOptions options);

/// Reads these keys. `critic_lr` that is absent is as `lr`.
void ReadOnPolicyOptions(OptionReader* reader, OnPolicyOptions* options);
/// INVALID_ARGUMENT, naming the option, what it is and what is expected, for a value that the updater cannot work with.
absl::Status CheckOnPolicyOptions(const OnPolicyOptions& options);
/// The spec's options of these, for who has them as numbers (tests).
void WriteOnPolicyOptions(const OnPolicyOptions& options, policy::AlgorithmSpec* spec);

}  // namespace troupe::training
