#include "lib/config/foreign_keys.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/config/run_config.h"
#include "lib/config/schema.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

std::string UnknownKeyError(const std::string& yaml) {
  return std::string(RunConfig::FromYaml(yaml, "run.yaml").status().message());
}

TEST(ForeignKeysTest, PointToOurs) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"algorithm: {n_epochs: 3}", "algorithm.num_epochs"},
      {"algorithm: {gae_lam: 0.9}", "algorithm.gae_lambda"},
      {"algorithm: {lambda: 0.9}", "algorithm.gae_lambda"},
      {"algorithm: {clip_range: 0.2}", "algorithm.clip_param"},
      {"algorithm: {ppo_epoch: 3}", "algorithm.num_epochs"},
      {"num_rollout_workers: 3", "num_workers"},
      {"parallels: 3", "num_envs_per_worker"},
      {"buffer_size: 3", "algorithm.train_batch_size"},
      {"vf_coef: 3", "algorithm.value_loss_coeff"},
      {"ent_coef: 3", "algorithm.entropy_coeff"},
      {"running_steps: 3", "stop.env_steps"},
      {"multi_agent: {policy_mapping_fn: x}", "multi_agent.policy_mapping"},
      {"discount_factor: 0.9", "algorithm.gamma"},
      {"eps_clip: 0.9", "algorithm.clip_param"},
      {"model: {use_lstm: true}", "model.actor_core"},
      {"model: {lstm_cell_size: 64}", "model.core_size"},
      {"model: {recurrent_hidden_size: 64}", "model.core_size"},
      {"model: {N_recurrent_layers: 1}", "model.core_layers"},
      {"recurrent_N: 1", "model.core_layers"},
      {"use_recurrent_policy: true", "model.actor_core"},
      {"data_chunk_length: 10", "model.max_seq_len"},
      {"algorithm: {use_valuenorm: true}", "algorithm.use_value_norm"},
      {"algorithm: {shared_state_preprocessor: true}", "algorithm.normalize_state"},
      {"algorithm: {use_state_agent: true}", "algorithm.use_agent_specific_state"},
      {"algorithm: {use_mustalive: true}", "algorithm.death_masking"},
      {"use_feature_normalization: true", "model.layer_norm"},
      {"use_stacked_frames: true", "env.frame_stack"},
      {"num_mini_batch: 1", "algorithm.num_minibatches"},
      {"sequence_length: 10", "model.max_seq_len"},
      {"algorithm: {lr_schedule: [[0, 1]]}", "algorithm.lr"},
      {"algorithm: {entropy_coeff_schedule: [[0, 1]]}", "algorithm.entropy_coeff"},
      {"algorithm: {learning_rate_scheduler_kwargs: {}}", "algorithm.lr_kl_target"},
      {"algorithm: {kl_factor: 2}", "algorithm.lr_kl_factor"},
      {"algorithm: {lr_factor: 2}", "algorithm.lr_kl_step"},
      {"algorithm: {kl_coef: 1}", "algorithm.kl_coeff"},
      {"algorithm: {rms_prop_eps: 1}", "algorithm.rmsprop_epsilon"},
      {"algorithm: {use_rms_prop: true}", "algorithm.optimizer"},
      {"algorithm: {optimizer_class: x}", "algorithm.optimizer"},
      {"algorithm: {grad_clip_by: norm}", "algorithm.clip_grad_norm_by"},
      {"algorithm: {use_proper_time_limits: true}", "algorithm.time_limit_bootstrap"},
      {"continuous_action: false", "env.args"},
      {"policy: Categorical_MAAC_Policy", "model.action_distribution"},
      {"logger: tensorboard", "experiment.wandb"},
      {"project_name: mine", "experiment.wandb_kwargs"},
      {"vectorize: DummyVecMultiAgentEnv", "env.python.processes"},
      {"evaluation: {evaluation_config: {}}", "evaluation.deterministic"},
      {"callbacks_class: x", "callbacks"},
      {"model: {custom_model: x}", "model.torchscript"},
      {"num_learners: 2", "learner_threads"},
      {"n_envs: 8", "num_envs_per_worker"},
      {"episode_per_test: 8", "evaluation.episodes"},
      {"capture_video: true", "evaluation.video_interval"},
      {"algorithm: {name: pqn, LAMBDA: 0.3}", "algorithm.q_lambda"},
      {"algorithm: {name: pqn, EPS_START: 1}", "algorithm.epsilon"},
      {"algorithm: {name: pqn, NUM_MINIBATCHES: 16}", "algorithm.num_minibatches"},
  };
  for (const auto& [yaml, ours] : cases) {
    EXPECT_NE(UnknownKeyError(yaml).find("): here it is \"" + ours + "\""), std::string::npos) << UnknownKeyError(yaml);
  }
  EXPECT_EQ(UnknownKeyError("algorithm:\n  n_epochs: 3\n"),
            "run.yaml:2:3: unknown key \"algorithm.n_epochs\" (XuanCe): here it is \"algorithm.num_epochs\"");
  EXPECT_EQ(UnknownKeyError("algorithm: {use_rnn: true}"),
            "run.yaml:1:13: unknown key \"algorithm.use_rnn\" (XuanCe): here it is \"model.actor_core\", gru or lstm; "
            "the critic's: model.critic_core");
  EXPECT_EQ(UnknownKeyError("multi_agent: {policy: {a: {}}}"),
            "run.yaml:1:15: unknown key \"multi_agent.policy\"; the nearest is \"multi_agent.policies\"");
  EXPECT_EQ(UnknownKeyError("model: {use_cnn: true}"),
            "run.yaml:1:9: unknown key \"model.use_cnn\" (XuanCe): here it is \"model.encoder\", cnn");
  EXPECT_EQ(UnknownKeyError("model: {use_attention: true}"),
            "run.yaml:1:9: unknown key \"model.use_attention\" (RLlib): here it is \"model.critic_encoder\", attention "
            "over agents, of a centralized critic; over an agent's history there is none, but model.actor_core");
  EXPECT_EQ(UnknownKeyError("model: {dropout: 0.1}"),
            "run.yaml:1:9: unknown key \"model.dropout\" (XuanCe): there is no such choice here: layers have no "
            "dropout; leave it out");
  EXPECT_EQ(UnknownKeyError("model: {burn_in: 3}"),
            "run.yaml:1:9: unknown key \"model.burn_in\" (RLlib): there is no such choice here: a sequence begins with "
            "the state that the acting network had; leave it out");
}

TEST(ForeignKeysTest, PointToKeysThatExistAndHideNone) {
  const std::vector<std::string> keys = AllKeys();
  std::set<std::string_view> seen;
  for (const ForeignKey& foreign : ForeignKeys()) {
    EXPECT_TRUE(seen.insert(foreign.name).second) << foreign.name << " is there twice";
    EXPECT_TRUE(foreign.ours.empty() || std::count(keys.begin(), keys.end(), foreign.ours) == 1) << foreign.ours;
    EXPECT_FALSE(foreign.ours.empty() && foreign.note.empty()) << foreign.name;
    for (const std::string& key : keys) {
      EXPECT_NE(key.substr(key.rfind('.') + 1), foreign.name) << "is a key of ours";
    }
  }
}

}  // namespace
}  // namespace troupe::config
