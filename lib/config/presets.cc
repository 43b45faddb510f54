#include "lib/config/presets.h"

#include <string_view>

namespace troupe::config {
namespace {

// The on-policy repository's scripts for MPE (Yu et al. 2022) with their `mappo`, without the GRU: 128 environments of
// 25 steps, one minibatch. Their MPE says done at world_length, and use_proper_time_limits is off: no value follows. Of
// their layer normalization, which stands behind the activation (and before the first layer), there is no key.
constexpr std::string_view kMappoMpe = R"(
algorithm:
  name: mappo
  train_batch_size: 3200
  num_minibatches: 1
  num_epochs: 10
  lr: 7.0e-4
  critic_lr: 7.0e-4
  normalize_observations: false
  adam_epsilon: 1.0e-5
  gamma: 0.99
  gae_lambda: 0.95
  use_advnorm: true
  use_value_norm: true
  clip_param: 0.2
  use_value_clip: true
  value_clip_param: 0.2
  value_loss_coeff: 1.0
  huber_delta: 10.0
  entropy_coeff: 0.01
  max_grad_norm: 10.0
  time_limit_bootstrap: false
  use_value_active_masks: true
model:
  actor_hidden_sizes: [64, 64]
  critic_hidden_sizes: [64, 64]
  activation: tanh
  initializer: orthogonal
  actor_output_gain: 0.01
)";

// Of both of Stable-Baselines3's; its gain of hidden layers is the square root of 2 whatever the activation. It clips
// actions to their Box, without a scale.
constexpr std::string_view kSb3Model = R"(
action_scaling: false
model:
  actor_hidden_sizes: [64, 64]
  critic_hidden_sizes: [64, 64]
  activation: tanh
  initializer: orthogonal
  hidden_gain: 1.4142135623730951
  actor_output_gain: 0.01
)";

// Stable-Baselines3's PPO; its value loss is the squared error, not half of it.
constexpr std::string_view kSb3Ppo = R"(
algorithm:
  name: ppo
  train_batch_size: 2048
  minibatch_size: 64
  num_epochs: 10
  lr: 3.0e-4
  critic_lr: auto
  normalize_observations: false
  adam_epsilon: 1.0e-5
  gamma: 0.99
  gae_lambda: 0.95
  use_advnorm: true
  use_value_norm: false
  clip_param: 0.2
  use_value_clip: false
  value_loss_coeff: 1.0
  huber_delta: 0.0
  entropy_coeff: 0.0
  max_grad_norm: 0.5
  clip_grad_norm_by: policy
)";

// Stable-Baselines3's A2C; how many steps a batch has follows there from the number of environments, 5 of each.
constexpr std::string_view kSb3A2c = R"(
algorithm:
  name: a2c
  minibatch_size: auto
  optimizer: rmsprop
  rmsprop_alpha: 0.99
  rmsprop_epsilon: 1.0e-5
  lr: 7.0e-4
  critic_lr: auto
  normalize_observations: false
  gamma: 0.99
  gae_lambda: 1.0
  use_advnorm: false
  use_value_norm: false
  value_loss_coeff: 1.0
  huber_delta: 0.0
  entropy_coeff: 0.0
  max_grad_norm: 0.5
  clip_grad_norm_by: policy
)";

// RLlib's PPOConfig; its value loss is the squared error, bounded instead of clipped. Its normalize_actions is what
// action_scaling: auto does.
constexpr std::string_view kRllibPpo = R"(
algorithm:
  name: ppo
  train_batch_size: 4000
  minibatch_size: 128
  num_epochs: 30
  lr: 5.0e-5
  critic_lr: auto
  normalize_observations: false
  adam_epsilon: 1.0e-8
  gamma: 0.99
  gae_lambda: 1.0
  use_advnorm: true
  use_value_norm: false
  clip_param: 0.3
  use_value_clip: false
  value_loss_coeff: 2.0
  huber_delta: 0.0
  entropy_coeff: 0.0
  use_kl_loss: true
  kl_coeff: 0.2
  kl_target: 0.01
  max_grad_norm: 0.0
model:
  actor_hidden_sizes: [256, 256]
  critic_hidden_sizes: [256, 256]
  activation: tanh
  initializer: torch
  free_log_std: false
  max_log_std: 20.0
)";

}  // namespace

std::string PresetYaml(v1::PresetName name) {
  switch (name) {
    case v1::PRESET_NAME_MAPPO_MPE:
      return std::string(kMappoMpe);
    case v1::PRESET_NAME_SB3_PPO:
      return std::string(kSb3Ppo).append(kSb3Model);
    case v1::PRESET_NAME_SB3_A2C:
      return std::string(kSb3A2c).append(kSb3Model);
    case v1::PRESET_NAME_RLLIB_PPO:
      return std::string(kRllibPpo);
    default:
      return "";
  }
}

}  // namespace troupe::config
