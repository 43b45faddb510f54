#include "lib/config/foreign_keys.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/config/algorithms.h"
#include "lib/config/schema.h"

namespace troupe::config {
namespace {

constexpr std::string_view kRllib = "RLlib";
constexpr std::string_view kXuance = "XuanCe";
constexpr std::string_view kSkrl = "skrl";
constexpr std::string_view kTianshou = "Tianshou";
constexpr std::string_view kOnPolicy = "on-policy MAPPO";
constexpr std::string_view kStableBaselines = "Stable-Baselines3";
constexpr std::string_view kCleanRl = "CleanRL";
constexpr std::string_view kMaac = "MAAC";
constexpr std::string_view kSampleFactory = "Sample Factory";
constexpr std::string_view kJaxmarl = "JaxMARL";
constexpr std::string_view kSeveral = "several libraries";

constexpr std::string_view kCoreNote = "gru or lstm; the critic's: model.critic_core";

constexpr ForeignKey kForeignKeys[] = {
    // The environment.
    {"env_config", kRllib, "env.args", ""},
    {"env_id", kXuance, "env.name", ""},
    {"env_name", kXuance, "env.name", ""},
    {"scenario_name", kOnPolicy, "env.name", ""},
    {"horizon", kRllib, "env.max_episode_steps", ""},
    {"clip_rewards", kRllib, "env.reward_clip", "a number c or [low, high]"},
    {"framestack", kRllib, "env.frame_stack", "a number of observations"},
    {"num_stack", kXuance, "env.frame_stack", ""},
    {"use_stacked_frames", kOnPolicy, "env.frame_stack", "a number of observations"},
    {"stacked_frames", kOnPolicy, "env.frame_stack", ""},
    {"obs_type", kXuance, "env.grayscale", "true or false, for images"},
    {"img_size", kXuance, "env.resize", "[height, width]"},
    {"dim", kRllib, "env.resize", "[height, width]"},
    {"with_agent_groups", kRllib, "env.groups", ""},
    {"rewards_shaper", kSkrl, "env.reward_scale", "a factor"},
    {"env_seed", kXuance, "seed", "one seed for everything"},
    {"continuous_action", kXuance, "env.args", "{continuous_actions: true} of mpe"},
    // Policies and agents.
    {"policy_mapping_fn", kRllib, "multi_agent.policy_mapping",
     "ordered globs over agent ids (with weights where it is random), per_agent, or {function: python:FILE.py:NAME}"},
    {"algorithm_config_overrides_per_module", kRllib, "multi_agent.policies",
     "{id: {algorithm: ..., model: ...}}; for agents: multi_agent.agents"},
    {"observation_filter", kRllib, "algorithm.normalize_observations", "true or false"},
    {"share_policy", kOnPolicy, "algorithm.use_parameter_sharing", ""},
    {"use_obsnorm", kXuance, "algorithm.normalize_observations", ""},
    {"use_feature_normalization", kOnPolicy, "model.layer_norm", "of what hidden layers make"},
    {"state_preprocessor", kSkrl, "algorithm.normalize_observations",
     "true or false; of a centralized critic's input: algorithm.normalize_state"},
    {"shared_state_preprocessor", kSkrl, "algorithm.normalize_state", "true or false"},
    {"use_state_agent", kOnPolicy, "algorithm.use_agent_specific_state", "with algorithm.use_global_state"},
    {"use_obs_instead_of_state", kOnPolicy, "algorithm.use_global_state", "the opposite: false for all observations"},
    {"use_mustalive", kOnPolicy, "algorithm.death_masking", ""},
    {"observation_preprocessor", kSkrl, "algorithm.normalize_observations", "true or false"},
    {"use_centralized_V", kOnPolicy, "algorithm.name", "mappo has one, ippo not"},
    {"use_centralized_critic", kSeveral, "algorithm.name", "mappo has one, ippo not"},
    {"agent", kXuance, "algorithm.name", ""},
    {"learner_name", kXuance, "algorithm.name", ""},
    {"policy", kXuance, "model.action_distribution", "the action space says which kind of policy it is"},
    // The batch and its use.
    {"buffer_size", kXuance, "algorithm.train_batch_size", "env steps over all environments, not a buffer's length"},
    {"n_steps", kSeveral, "algorithm.train_batch_size", "env steps over all environments"},
    {"rollouts", kSkrl, "algorithm.train_batch_size", "env steps over all environments"},
    {"num_steps", kCleanRl, "algorithm.train_batch_size", "env steps over all environments"},
    {"horizon_length", kSeveral, "algorithm.train_batch_size", "env steps over all environments"},
    {"episode_length", kOnPolicy, "algorithm.train_batch_size", "env steps over all environments"},
    {"step_per_collect", kTianshou, "algorithm.train_batch_size", ""},
    {"collection_step_num_env_steps", kTianshou, "algorithm.train_batch_size", ""},
    {"train_batch_size_per_learner", kRllib, "algorithm.train_batch_size", ""},
    {"n_epochs", kXuance, "algorithm.num_epochs", ""},
    {"n_epoch", kXuance, "algorithm.num_epochs", ""},
    {"ppo_epoch", kOnPolicy, "algorithm.num_epochs", ""},
    {"learning_epochs", kSkrl, "algorithm.num_epochs", ""},
    {"update_epochs", kCleanRl, "algorithm.num_epochs", ""},
    {"repeat_per_collect", kTianshou, "algorithm.num_epochs", ""},
    {"update_step_num_repetitions", kTianshou, "algorithm.num_epochs", ""},
    {"num_sgd_iter", kRllib, "algorithm.num_epochs", ""},
    {"batch_size", kTianshou, "algorithm.minibatch_size", "rows of a policy"},
    {"sgd_minibatch_size", kRllib, "algorithm.minibatch_size", "rows of a policy"},
    {"n_minibatch", kXuance, "algorithm.num_minibatches", ""},
    {"mini_batches", kSkrl, "algorithm.num_minibatches", ""},
    {"num_mini_batch", kOnPolicy, "algorithm.num_minibatches", ""},
    {"NUM_ENVS", kJaxmarl, "num_envs", ""},
    {"NUM_STEPS", kJaxmarl, "algorithm.train_batch_size", "NUM_ENVS times NUM_STEPS"},
    {"NUM_MINIBATCHES", kJaxmarl, "algorithm.num_minibatches", ""},
    {"NUM_EPOCHS", kJaxmarl, "algorithm.num_epochs", ""},
    // The losses.
    {"learning_rate", kXuance, "algorithm.lr", ""},
    {"actor_lr", kSeveral, "algorithm.lr", ""},
    {"learning_rate_actor", kXuance, "algorithm.lr", ""},
    {"learning_rate_critic", kXuance, "algorithm.critic_lr", ""},
    {"anneal_lr", kCleanRl, "algorithm.lr", "{initial, final, env_steps}"},
    {"lr_schedule", kRllib, "algorithm.lr", "[[AT, VALUE], ...]"},
    {"lr_scheduler", kTianshou, "algorithm.lr", "{initial, final, env_steps}"},
    {"learning_rate_scheduler", kSkrl, "algorithm.lr",
     "{initial, final, env_steps}; of KLAdaptiveLR: algorithm.lr_kl_target"},
    {"learning_rate_scheduler_kwargs", kSkrl, "algorithm.lr_kl_target",
     "with lr_kl_factor, lr_kl_step, min_lr and max_lr beside it"},
    {"kl_factor", kSkrl, "algorithm.lr_kl_factor", ""},
    {"lr_factor", kSkrl, "algorithm.lr_kl_step", ""},
    {"use_linear_lr_decay", kOnPolicy, "algorithm.lr", "{initial, final, env_steps}"},
    {"end_factor_lr_decay", kXuance, "algorithm.lr", "{initial, final, env_steps}"},
    {"optimizer_class", kStableBaselines, "algorithm.optimizer", "adam, adamw, rmsprop or sgd"},
    {"optimizer_kwargs", kStableBaselines, "algorithm.weight_decay",
     "with algorithm.adam_beta1, adam_beta2, adam_epsilon and momentum beside it"},
    {"use_rms_prop", kStableBaselines, "algorithm.optimizer", "rmsprop"},
    {"rms_prop_eps", kStableBaselines, "algorithm.rmsprop_epsilon", ""},
    {"opti_eps", kOnPolicy, "algorithm.adam_epsilon", ""},
    {"adam_eps", kSeveral, "algorithm.adam_epsilon", ""},
    {"LR", kJaxmarl, "algorithm.lr", ""},
    {"LR_LINEAR_DECAY", kJaxmarl, "algorithm.lr", "{initial, final, env_steps}"},
    {"MAX_GRAD_NORM", kJaxmarl, "algorithm.max_grad_norm", "half of it, since the loss here is half the squared error"},
    {"GAMMA", kJaxmarl, "algorithm.gamma", ""},
    {"LAMBDA", kJaxmarl, "algorithm.q_lambda", "of pqn"},
    {"EPS_START", kJaxmarl, "algorithm.epsilon", "{initial: EPS_START, final: EPS_FINISH, env_steps}"},
    {"EPS_FINISH", kJaxmarl, "algorithm.epsilon", "{initial: EPS_START, final: EPS_FINISH, env_steps}"},
    {"EPS_DECAY", kJaxmarl, "algorithm.epsilon", "env_steps in its place, which is no share of the updates"},
    {"REW_SCALE", kJaxmarl, "env.reward_scale", ""},
    {"discount", kSeveral, "algorithm.gamma", ""},
    {"discount_factor", kSkrl, "algorithm.gamma", ""},
    {"gae_lam", kXuance, "algorithm.gae_lambda", ""},
    {"lam", kSeveral, "algorithm.gae_lambda", ""},
    {"lambda", kRllib, "algorithm.gae_lambda", ""},
    {"lambda_", kRllib, "algorithm.gae_lambda", ""},
    {"normalize_advantage", kStableBaselines, "algorithm.use_advnorm", ""},
    {"norm_adv", kCleanRl, "algorithm.use_advnorm", ""},
    {"advantage_normalization", kTianshou, "algorithm.use_advnorm", ""},
    {"use_valuenorm", kOnPolicy, "algorithm.use_value_norm", ""},
    {"use_rewnorm", kXuance, "algorithm.use_value_norm", "values are normalized, rewards stay"},
    {"obsnorm_range", kXuance, "", "normalized observations and states are clipped at 10 deviations"},
    {"rewnorm_range", kXuance, "", "rewards are not normalized, values are: algorithm.use_value_norm"},
    {"value_preprocessor", kSkrl, "algorithm.use_value_norm", "true or false"},
    {"reward_normalization", kTianshou, "algorithm.use_value_norm", "values are normalized, rewards stay"},
    {"return_scaling", kTianshou, "algorithm.use_value_norm", ""},
    {"clip_range", kXuance, "algorithm.clip_param", ""},
    {"clip_coef", kCleanRl, "algorithm.clip_param", ""},
    {"clip_range_vf", kStableBaselines, "algorithm.value_clip_param", "on and off: algorithm.use_value_clip"},
    {"clip_vloss", kCleanRl, "algorithm.use_value_clip", ""},
    {"ratio_clip", kSkrl, "algorithm.clip_param", ""},
    {"eps_clip", kTianshou, "algorithm.clip_param", ""},
    {"clip_predicted_values", kSkrl, "algorithm.use_value_clip", ""},
    {"use_clipped_value_loss", kOnPolicy, "algorithm.use_value_clip", ""},
    {"value_clip", kSkrl, "algorithm.value_clip_param", "on and off: algorithm.use_value_clip"},
    {"value_clip_range", kXuance, "algorithm.value_clip_param", ""},
    {"vf_clip_param", kRllib, "algorithm.value_clip_param", "on and off: algorithm.use_value_clip"},
    {"vf_coef", kXuance, "algorithm.value_loss_coeff", ""},
    {"vf_loss_coeff", kRllib, "algorithm.value_loss_coeff", ""},
    {"value_loss_coef", kOnPolicy, "algorithm.value_loss_coeff", ""},
    {"value_loss_scale", kSkrl, "algorithm.value_loss_coeff", ""},
    {"use_huber_loss", kXuance, "algorithm.huber_delta", "above 0: Huber loss"},
    {"ent_coef", kXuance, "algorithm.entropy_coeff", ""},
    {"entropy_coef", kOnPolicy, "algorithm.entropy_coeff", ""},
    {"entropy_loss_scale", kSkrl, "algorithm.entropy_coeff", ""},
    {"entropy_coeff_schedule", kRllib, "algorithm.entropy_coeff", "[[AT, VALUE], ...]"},
    {"kl_coef", kXuance, "algorithm.kl_coeff", "with algorithm.use_kl_loss"},
    {"kl_threshold", kSkrl, "algorithm.target_kl", "which stops the epochs; of KLAdaptiveLR: algorithm.lr_kl_target"},
    {"vtrace", kRllib, "algorithm.name", "impala and appo always have it"},
    {"with_vtrace", kSampleFactory, "algorithm.name", "impala and appo always have it"},
    {"vtrace_rho", kSampleFactory, "algorithm.vtrace_clip_rho_threshold", ""},
    {"vtrace_c", kSampleFactory, "", "traces are cut at 1; algorithm.vtrace_lambda shortens them"},
    {"clip_rho_threshold", kSeveral, "algorithm.vtrace_clip_rho_threshold", ""},
    {"clip_pg_rho_threshold", kSeveral, "algorithm.vtrace_clip_pg_rho_threshold", ""},
    {"target_update_frequency", kRllib, "algorithm.target_network_update_freq", "in updates"},
    {"learner_queue_size", kRllib, "algorithm.max_policy_lag", "2 or more: sampling runs two batches ahead"},
    {"max_requests_in_flight_per_env_runner", kRllib, "algorithm.max_policy_lag",
     "2 or more: each worker has two grants at a time"},
    {"async_rl", kSampleFactory, "algorithm.max_policy_lag", "true: 2 or more, false: 0"},
    {"broadcast_interval", kRllib, "", "weights go out after each update"},
    {"grad_clip_by", kRllib, "algorithm.clip_grad_norm_by", "network or policy; values are not clipped"},
    {"use_proper_time_limits", kOnPolicy, "algorithm.time_limit_bootstrap", ""},
    {"grad_clip", kRllib, "algorithm.max_grad_norm", ""},
    {"grad_norm_clip", kSkrl, "algorithm.max_grad_norm", ""},
    {"grad_clip_norm", kXuance, "algorithm.max_grad_norm", ""},
    {"clip_grad_norm", kXuance, "algorithm.max_grad_norm", ""},
    {"use_grad_clip", kXuance, "algorithm.max_grad_norm", "0: no limit"},
    {"use_max_grad_norm", kOnPolicy, "algorithm.max_grad_norm", "0: no limit"},
    // The networks.
    {"vf_share_layers", kRllib, "model.critic_encoder", "true: shared, false: auto"},
    {"share_features_extractor", kStableBaselines, "model.critic_encoder", "true: shared, false: auto"},
    {"separate", kSkrl, "model.critic_encoder", "true: auto, false: shared"},
    {"fcnet_hiddens", kRllib, "model.actor_hidden_sizes", "the critic's: model.critic_hidden_sizes"},
    {"policy_kwargs", kStableBaselines, "model.actor_hidden_sizes",
     "with model.critic_hidden_sizes and model.activation beside it"},
    {"net_arch", kStableBaselines, "model.actor_hidden_sizes", "the critic's: model.critic_hidden_sizes"},
    {"hidden_sizes", kTianshou, "model.actor_hidden_sizes", "the critic's: model.critic_hidden_sizes"},
    {"layer_N", kOnPolicy, "model.actor_hidden_sizes", "a list, one number a layer"},
    {"hidden_size", kOnPolicy, "model.actor_hidden_sizes", "a list, one number a layer"},
    {"representation_hidden_size", kXuance, "model.actor_hidden_sizes",
     "the critic has them, too, with model.critic_encoder: shared"},
    {"actor_hidden_size", kXuance, "model.actor_hidden_sizes", ""},
    {"critic_hidden_size", kXuance, "model.critic_hidden_sizes", ""},
    {"fcnet_activation", kRllib, "model.activation", ""},
    {"head_fcnet_activation", kRllib, "model.activation", ""},
    {"hidden_layer_activation", kRllib, "model.activation", ""},
    {"use_layernorm", kRllib, "model.layer_norm", ""},
    {"NORM_TYPE", kJaxmarl, "model.layer_norm", "true for layer_norm; there is no batch normalization"},
    {"HIDDEN_SIZE", kJaxmarl, "model.actor_hidden_sizes", "a list, one number a layer"},
    {"NUM_LAYERS", kJaxmarl, "model.actor_hidden_sizes", "a list, one number a layer"},
    {"hidden_layer_use_layernorm", kRllib, "model.layer_norm", ""},
    {"normalize", kXuance, "model.layer_norm", "true for LayerNorm; there is no batch normalization"},
    {"norm_layer", kTianshou, "model.layer_norm", "true for nn.LayerNorm; there is no batch normalization"},
    {"initialize", kXuance, "model.initializer", "orthogonal, xavier or torch"},
    {"fcnet_kernel_initializer", kRllib, "model.initializer", "orthogonal, xavier or torch"},
    {"fcnet_weights_initializer", kRllib, "model.initializer", "orthogonal, xavier or torch"},
    {"use_orthogonal", kOnPolicy, "model.initializer", "true: orthogonal, false: xavier"},
    {"ortho_init", kStableBaselines, "model.initializer", "true: orthogonal, false: torch"},
    {"use_ReLU", kOnPolicy, "model.activation", "true: relu, false: tanh"},
    {"activation_fn", kSeveral, "model.activation", ""},
    {"gain", kOnPolicy, "model.actor_output_gain", ""},
    {"log_std_init", kStableBaselines, "model.initial_log_std", ""},
    {"squash_output", kStableBaselines, "model.action_distribution", "squashed_gaussian"},
    {"use_sde", kStableBaselines, "", "noise is drawn anew for each action"},
    {"activation_action", kXuance, "model.action_distribution",
     "squashed_gaussian applies tanh to the action, not to its mean"},
    {"conditioned_sigma", kTianshou, "model.free_log_std", "the other way round: true is free_log_std: false"},
    {"clip_log_std", kSkrl, "model.min_log_std", "with model.max_log_std: log standard deviations are always clamped"},
    {"clip_actions", kSkrl, "action_bound_method", "clip; with action_scaling: false, since skrl does not scale"},
    {"normalize_actions", kRllib, "action_scaling", ""},
    {"log_std_clip_param", kRllib, "model.max_log_std", "with model.min_log_std, its negative"},
    {"conv_activation", kRllib, "model.activation", ""},
    {"cnn_filter_specifiers", kRllib, "model.conv_filters", "[[channels, kernel, stride], ...]"},
    {"post_fcnet_hiddens", kRllib, "model.actor_hidden_sizes", "the critic's: model.critic_hidden_sizes"},
    {"rl_module_spec", kRllib, "model.torchscript",
     "a network of your own, compiled; the critic's: model.critic_torchscript"},
    {"custom_model", kRllib, "model.torchscript",
     "a network of your own, compiled; the critic's: model.critic_torchscript"},
    {"use_cnn", kXuance, "model.encoder", "cnn"},
    {"representation", kXuance, "model.encoder", "mlp or cnn; a core: model.actor_core"},
    {"filters", kXuance, "model.conv_filters", "[[channels, kernel, stride], ...]"},
    {"kernels", kXuance, "model.conv_filters", "[[channels, kernel, stride], ...]"},
    {"strides", kXuance, "model.conv_filters", "[[channels, kernel, stride], ...]"},
    {"features_extractor_class", kStableBaselines, "model.encoder", "mlp or cnn"},
    {"features_extractor_kwargs", kStableBaselines, "model.leaf_encoders",
     "{LEAF: {conv_filters: auto, hidden_sizes: [256]}}"},
    {"cnn_output_dim", kStableBaselines, "model.leaf_encoders", "hidden_sizes behind a leaf's conv_filters"},
    {"normalize_images", kStableBaselines, "",
     "bytes are scaled by the bounds of their Box (model.scaling), floats stay"},
    {"use_lstm", kRllib, "model.actor_core", kCoreNote},
    {"lstm_cell_size", kRllib, "model.core_size", ""},
    {"use_rnn", kXuance, "model.actor_core", kCoreNote},
    {"rnn", kXuance, "model.actor_core", kCoreNote},
    {"fc_hidden_sizes", kXuance, "model.actor_hidden_sizes", "of the layers before the core"},
    {"recurrent_hidden_size", kXuance, "model.core_size", ""},
    {"N_recurrent_layers", kXuance, "model.core_layers", ""},
    {"recurrent_layer_N", kXuance, "model.core_layers", ""},
    {"use_recurrent_policy", kOnPolicy, "model.actor_core", kCoreNote},
    {"use_naive_recurrent_policy", kOnPolicy, "model.actor_core",
     "gru or lstm, with model.max_seq_len as long as an episode; the critic's: model.critic_core"},
    {"recurrent_N", kOnPolicy, "model.core_layers", ""},
    {"data_chunk_length", kOnPolicy, "model.max_seq_len", ""},
    {"sequence_length", kSkrl, "model.max_seq_len", ""},
    {"burn_in", kRllib, "", "a sequence begins with the state that the acting network had"},
    {"lstm_hidden_size", kStableBaselines, "model.core_size", ""},
    {"n_lstm_layers", kStableBaselines, "model.core_layers", ""},
    {"enable_critic_lstm", kStableBaselines, "model.critic_core", "gru or lstm"},
    {"shared_lstm", kStableBaselines, "model.critic_encoder", "true: shared, with model.actor_core"},
    {"use_attention", kRllib, "model.critic_encoder",
     "attention over agents, of a centralized critic; over an agent's history there is none, but model.actor_core"},
    {"attention_dim", kRllib, "model.attention_size", "with model.critic_encoder: attention"},
    {"attention_num_heads", kRllib, "model.attention_heads", "with model.critic_encoder: attention"},
    {"attend_heads", kMaac, "model.attention_heads", "with model.critic_encoder: attention"},
    {"n_embd", kOnPolicy, "model.attention_size", "with model.critic_encoder: attention"},
    {"n_head", kOnPolicy, "model.attention_heads", "with model.critic_encoder: attention"},
    // Workers and environments.
    {"num_rollout_workers", kRllib, "num_workers", ""},
    {"num_env_runners", kRllib, "num_workers", ""},
    {"num_envs_per_env_runner", kRllib, "num_envs_per_worker", ""},
    {"parallels", kXuance, "num_envs_per_worker", "environments of one worker"},
    {"n_rollout_threads", kOnPolicy, "num_envs_per_worker", "environments of one worker"},
    {"training_num", kTianshou, "num_envs_per_worker", "environments of one worker"},
    {"num_training_envs", kTianshou, "num_envs_per_worker", "environments of one worker"},
    {"n_envs", kStableBaselines, "num_envs_per_worker", "environments of one worker"},
    {"vectorize", kXuance, "env.python.processes", "of one worker's environments in Python; the others need none"},
    {"restart_failed_env_runners", kRllib, "", "a worker that dies is started again"},
    {"num_gpus", kRllib, "device", "cuda, cpu or auto"},
    {"num_gpus_per_learner", kRllib, "device", "cuda, cpu or auto"},
    {"cuda", kCleanRl, "device", "cuda, cpu or auto"},
    {"mixed_precision", kSkrl, "precision", "bfloat16"},
    {"num_cpus_per_learner", kRllib, "learner_threads", ""},
    {"num_learners", kRllib, "learner_threads", "there is one learner"},
    {"n_training_threads", kOnPolicy, "learner_threads", ""},
    // The end of a run.
    {"running_steps", kXuance, "stop.env_steps", ""},
    {"num_env_steps", kOnPolicy, "stop.env_steps", ""},
    {"timesteps", kSkrl, "stop.env_steps", ""},
    {"total_timesteps", kSeveral, "stop.env_steps", ""},
    {"TOTAL_TIMESTEPS", kJaxmarl, "stop.env_steps", ""},
    {"timesteps_total", kRllib, "stop.env_steps", ""},
    {"num_env_steps_sampled_lifetime", kRllib, "stop.env_steps", ""},
    {"num_agent_steps_sampled_lifetime", kRllib, "stop.agent_steps", ""},
    {"training_iteration", kRllib, "stop.updates", ""},
    {"max_epoch", kTianshou, "stop.env_steps", "env steps, not epochs"},
    {"step_per_epoch", kTianshou, "stop.env_steps", "env steps of the whole run"},
    {"time_total_s", kRllib, "stop.wall_clock", "seconds"},
    {"episode_reward_mean", kRllib, "stop.episode_return", "summed over agents"},
    {"episode_return_mean", kRllib, "stop.episode_return", "summed over agents"},
    // Evaluation.
    {"evaluation_interval", kRllib, "evaluation.interval", "env steps, not iterations"},
    {"evaluation_parallel_to_training", kRllib, "evaluation.parallel", ""},
    {"eval_freq", kStableBaselines, "evaluation.interval", "env steps"},
    {"n_eval_episodes", kStableBaselines, "evaluation.episodes", ""},
    {"eval_interval", kXuance, "evaluation.interval", "env steps"},
    {"evaluation_duration", kRllib, "evaluation.episodes", ""},
    {"evaluation_config", kRllib, "evaluation.deterministic",
     "true is explore: False; another environment: evaluation.env"},
    {"episode_per_test", kTianshou, "evaluation.episodes", ""},
    {"eval_episode", kXuance, "evaluation.episodes", ""},
    {"eval_episodes", kOnPolicy, "evaluation.episodes", ""},
    {"test_episode", kXuance, "evaluation.episodes", ""},
    {"test_num", kTianshou, "evaluation.num_workers", ""},
    {"evaluation_num_env_runners", kRllib, "evaluation.num_workers", ""},
    {"deterministic_eval", kTianshou, "evaluation.deterministic", ""},
    // Results.
    {"log_dir", kXuance, "experiment.directory", ""},
    {"storage_path", kRllib, "experiment.directory", ""},
    {"model_dir", kXuance, "experiment.directory", ""},
    {"save_interval", kOnPolicy, "experiment.checkpoint_interval", "env steps"},
    {"checkpoint_frequency", kRllib, "experiment.checkpoint_interval", "env steps"},
    {"save_freq", kStableBaselines, "experiment.checkpoint_interval", "env steps"},
    {"tensorboard_log", kStableBaselines, "experiment.directory", ""},
    {"exp_name", kCleanRl, "experiment.experiment_name", ""},
    {"track", kCleanRl, "experiment.wandb", ""},
    {"num_to_keep", kRllib, "experiment.keep_checkpoints", ""},
    {"log_interval", kOnPolicy, "experiment.write_interval", "env steps"},
    {"use_wandb", kOnPolicy, "experiment.wandb", ""},
    {"logger", kXuance, "experiment.wandb", "true or false; TensorBoard is always written"},
    {"project_name", kXuance, "experiment.wandb_kwargs", "{project: NAME}"},
    {"wandb_user_name", kXuance, "experiment.wandb_kwargs", "{entity: NAME}"},
    // What Troupe does in one way only, or not.
    {"lstm_use_prev_action", kRllib, "env.previous_action", "true or false"},
    {"lstm_use_prev_reward", kRllib, "env.previous_reward", "true or false"},
    {"dropout", kXuance, "", "layers have no dropout"},
    {"render", kXuance, "evaluation.video_interval",
     "films evaluations; troupe evaluate --video films a run's policies"},
    {"render_mode", kSeveral, "evaluation.video_interval", "sets it for the evaluations that it films"},
    {"fps", kXuance, "", "troupe evaluate --video has --video-fps"},
    {"capture_video", kCleanRl, "evaluation.video_interval", "films evaluations"},
    {"callback", kSeveral, "callbacks", "a list of python:MODULE:CLASS"},
    {"callbacks_class", kRllib, "callbacks", "a list of python:MODULE:CLASS"},
    {"replay_mode", kRllib, "", "there is no replay, what is sampled is trained on once"},
    {"use_critic", kRllib, "", "there is always a critic"},
    {"max_batchsize", kTianshou, "", "it changes no result"},
    {"dual_clip", kTianshou, "", "the loss has one clip, algorithm.clip_param"},
    {"framework", kRllib, "", "there is one, LibTorch"},
    {"dl_toolbox", kXuance, "", "there is one, LibTorch"},
};

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::string LastPart(const std::string& key) { return key.substr(key.rfind('.') + 1); }

/// " (of ppo, ippo, mappo)" where an algorithm's section, whose keys are `siblings`, is without the key; else nothing.
std::string WhoseKey(std::string_view section, std::string_view key, const std::vector<std::string>& siblings) {
  const std::string name = LastPart(std::string(key));
  const std::vector<std::string> names = NamesWithOption(name);
  const bool is_algorithm = LastPart(std::string(section)) == "algorithm";
  const bool has_it = std::find(siblings.begin(), siblings.end(), name) != siblings.end();
  return names.empty() || !is_algorithm || has_it ? "" : absl::StrCat(" (of ", absl::StrJoin(names, ", "), ")");
}

}  // namespace

const std::vector<ForeignKey>& ForeignKeys() {
  static const auto* const kKeys = new std::vector<ForeignKey>(std::begin(kForeignKeys), std::end(kForeignKeys));
  return *kKeys;
}

const ForeignKey* FindForeignKey(std::string_view name) {
  for (const ForeignKey& key : ForeignKeys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string UnknownKeyHint(std::string_view section, std::string_view name, const std::vector<std::string>& siblings) {
  const std::vector<std::string> all = AllKeys();
  for (const std::string& key : all) {
    if (LastPart(key) == name) return absl::StrCat("; it belongs in ", Quoted(key));
  }
  // "multi_agent.policy" means policies, whatever another library calls so.
  std::string plural(name);
  if (!plural.empty() && plural.back() == 'y') plural.replace(plural.size() - 1, 1, "ies");
  if (std::find(siblings.begin(), siblings.end(), plural) != siblings.end()) {
    return absl::StrCat("; the nearest is ", Quoted(JoinKey(section, plural)));
  }
  if (const ForeignKey* foreign = FindForeignKey(name); foreign != nullptr) {
    const std::string note(foreign->note);
    if (foreign->ours.empty())
      return absl::StrCat(" (", std::string(foreign->from), "): there is no such choice here: ", note,
                          "; leave it out");
    return absl::StrCat(" (", std::string(foreign->from), "): here it is ", Quoted(foreign->ours),
                        WhoseKey(section, foreign->ours, siblings), note.empty() ? "" : absl::StrCat(", ", note));
  }
  if (const std::string near = base::NearestName(name, siblings); !near.empty()) {
    return absl::StrCat("; the nearest is ", Quoted(JoinKey(section, near)));
  }
  std::vector<std::string> last_parts;
  for (const std::string& key : all) last_parts.push_back(LastPart(key));
  if (const std::string near = base::NearestName(name, last_parts); !near.empty()) {
    for (const std::string& key : all) {
      if (LastPart(key) == near)
        return absl::StrCat("; the nearest is ", Quoted(key), WhoseKey(section, key, siblings));
    }
  }
  return absl::StrCat("; expected one of ", absl::StrJoin(siblings, ", "),
                      "; `troupe config defaults` says what each is for");
}

}  // namespace troupe::config
