#pragma once

#include <cstdint>

namespace troupe::training {

/// A value that moves linearly from `initial` to `final` over `env_steps` steps and stays; env_steps 0: constant.
struct LinearSchedule {
  double initial = 0;
  double final = 0;
  int64_t env_steps = 0;

  double At(int64_t now) const {
    if (env_steps <= 0) return initial;
    if (now >= env_steps) return final;
    return initial + (final - initial) * (static_cast<double>(now) / static_cast<double>(env_steps));
  }
};

/// One policy's PPO (Schulman et al. 2017) as IPPO (de Witt et al. 2020) and MAPPO (Yu et al. 2022) use it. Which
/// critic input a policy has stands in its PolicySpec; what a batch is (its steps, lag, agents) is the run's. No
/// LibTorch here: lib/config fills it.
struct PpoOptions {
  LinearSchedule learning_rate{3e-4, 3e-4, 0};
  LinearSchedule critic_learning_rate{0, 0, 0};  ///< initial 0: as learning_rate
  double adam_epsilon = 1e-5;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double gamma = 0.99;
  double gae_lambda = 0.95;
  bool use_gae = true;         ///< false: discounted returns minus values
  bool use_advnorm = true;     ///< advantages to mean 0, deviation 1 over the policy's active rows of the batch
  bool use_value_norm = true;  ///< running mean and variance of the returns; the critic predicts normalized values
  double clip_param = 0.2;
  bool use_value_clip = true;
  double value_clip_param = 0.2;  ///< in the critic's (normalized) units
  double value_loss_coeff = 1.0;
  double huber_delta = 0;  ///< > 0: Huber instead of squared error
  LinearSchedule entropy_coeff{0.01, 0.01, 0};
  double target_kl = 0;        ///< > 0: no further epoch once the approximate KL passes it
  double max_grad_norm = 0.5;  ///< per network (actor, critic); <= 0: off
  int64_t num_epochs = 10;
  int64_t minibatch_size = 1000;  ///< rows of a policy; the remainder is a smaller minibatch
};

}  // namespace troupe::training
