"""The keys of a configuration by the block methods of troupe.Config that take them; docs/configuration.md says what they mean.

Written by python/generate_config_keys.py from what the program prints: for type checkers and editors, never imported by what runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Literal, Mapping, Sequence, TypedDict, Union

if TYPE_CHECKING:
    import os


class EnvKeys(TypedDict, total=False):
    plugin: Union[str, "os.PathLike[str]"]
    groups: Mapping[str, Any]
    max_episode_steps: int
    reward_scale: float
    reward_clip: Any
    frame_stack: int
    state_key: str
    action_mask_key: str
    max_abs_return: float
    max_failed_share: float
    grayscale: bool
    resize: Union[Sequence[int], Literal["none"]]
    crop: Union[Sequence[int], Literal["none"]]
    previous_action: bool
    previous_reward: bool
    send_state: Literal["auto", "always"]
    python: Mapping[str, Any]


class MultiAgentKeys(TypedDict, total=False):
    policies: Any
    policy_mapping: Union[Mapping[str, Any], str, Callable[..., str]]
    policies_to_train: Any
    policy_map_capacity: int
    policy_map_host_budget_bytes: int
    policy_map_cache: Union[str, "os.PathLike[str]"]
    policy_states_are_swappable: bool
    train_time_aggregator: Literal["min", "max", "mean"]
    count_steps_by: Literal["env_steps", "agent_steps"]
    agents: Mapping[str, Any]
    load_parameters: Sequence[str]
    observation_fn: str


class TrainingKeys(TypedDict, total=False):
    name: Literal["ppo", "ippo", "mappo", "a2c", "ia2c", "maa2c", "pqn", "impala", "appo", "custom", "macustom"]
    train_batch_size: int
    max_policy_lag: Union[int, Literal["auto"]]
    common_reward: Literal["none", "mean", "sum"]
    use_global_state: bool
    use_agent_specific_state: bool
    use_parameter_sharing: bool
    use_agent_id: bool
    critic_agent_id: bool
    normalize_observations: Union[bool, Literal["auto"]]
    normalize_state: bool
    use_actions_mask: Union[bool, Literal["auto"]]
    minibatch_size: Union[int, Literal["auto"]]
    num_minibatches: Union[int, Literal["none"]]
    minibatch_by: Literal["rows", "env_steps", "auto"]
    num_epochs: int
    lr: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    critic_lr: Union[float, Mapping[str, Any], Sequence[Sequence[float]], Literal["auto"]]
    adam_epsilon: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    gamma: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    discount_by: Literal["decision", "env_step"]
    gae_lambda: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    use_gae: bool
    use_advnorm: bool
    use_value_norm: bool
    use_popart: bool
    use_policy_active_masks: bool
    use_value_active_masks: bool
    death_masking: bool
    clip_param: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    use_value_clip: bool
    value_clip_param: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    value_loss_coeff: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    huber_delta: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    entropy_coeff: Union[float, Mapping[str, Any], Sequence[Sequence[float]], Literal["auto"]]
    target_kl: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    max_grad_norm: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"]
    weight_decay: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    momentum: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    rmsprop_alpha: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    rmsprop_epsilon: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    clip_grad_norm_by: Literal["network", "policy"]
    time_limit_bootstrap: bool
    lr_kl_target: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    lr_kl_factor: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    lr_kl_step: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    min_lr: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    max_lr: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    use_kl_loss: bool
    kl_coeff: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    kl_target: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    frozen_parameters: Sequence[str]
    q_lambda: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    epsilon: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    mixer: Literal["none", "vdn"]
    vtrace_lambda: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    vtrace_clip_rho_threshold: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    vtrace_clip_pg_rho_threshold: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    circular_buffer_num_batches: int
    circular_buffer_iterations_per_batch: int
    target_network_update_freq: int
    tau: Union[float, Mapping[str, Any], Sequence[Sequence[float]]]
    loss: Union[str, Literal["none"]]
    preset: Literal["mappo_mpe", "sb3_ppo", "sb3_a2c", "rllib_ppo", "none"]
    action_bound_method: Literal["none", "clip", "tanh", "auto"]
    action_scaling: Union[bool, Literal["auto"]]


class EnvRunnerKeys(TypedDict, total=False):
    num_workers: int
    num_envs_per_worker: int
    num_envs: Union[int, Literal["auto"]]
    rollout_fragment_length: Union[int, Literal["auto"]]
    batch_mode: Literal["truncate_episodes", "complete_episodes"]
    explore: bool


class EvaluationKeys(TypedDict, total=False):
    interval: int
    episodes: int
    num_workers: int
    deterministic: bool
    seed: int
    at_end: bool
    video_interval: int
    max_episode_steps: int
    time_limit_s: Union[float, Literal["auto"]]
    env: Mapping[str, Any]
    parallel: bool


class StopKeys(TypedDict, total=False):
    env_steps: Union[int, Literal["auto"]]
    agent_steps: int
    updates: int
    wall_clock: float
    episode_return: Any


class ExperimentKeys(TypedDict, total=False):
    directory: Union[str, "os.PathLike[str]"]
    experiment_name: str
    write_interval: Union[int, Literal["auto"]]
    checkpoint_interval: Union[int, Literal["auto"]]
    keep_checkpoints: int
    store_separately: bool
    wandb: bool
    wandb_kwargs: Mapping[str, Any]
    best_by: Union[str, Literal["auto"]]
    final_checkpoint: bool


class LearnerKeys(TypedDict, total=False):
    ingest_budget_bytes: Union[int, Literal["auto"]]
    join_timeout_s: float
    worker_timeout_s: float
    grant_timeout_s: Union[float, Literal["auto"]]
    device: str
    precision: Literal["float32", "tf32", "bfloat16"]
    learner_threads: int
