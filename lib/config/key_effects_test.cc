// Written keys without effect. Every key of the schema says where it counts: the first test goes through them.

#include "lib/config/key_effects.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/config/schema.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A condition, a run where it holds and one where it does not.
struct Case {
  std::string condition;
  std::string with;
  std::string without;
};

class KeyEffectsTest : public ResolveFixture {
 protected:
  KeyEffectsTest() {
    const space::Space go = *space::Space::Discrete(5);
    const space::Space image = *space::Space::Box(0, 255, {16, 16, 3}, tensor::DType::kUint8);
    Add(Spec("images", {Agent("a", image, go)}));
    const space::Space box = *space::Space::Box(0, 1, {2});
    const space::Space dict = *space::Space::Dict({{"x", box}, {"who", box}, {"legal", *space::Space::Box(0, 1, {5})}});
    Add(Spec("dicts", {Agent("a", dict, go), Agent("b", dict, go)}));
    Add(Spec("one_dict", {Agent("a", dict, go)}));
    module_ = absl::StrCat(testing::TempDir(), "/key_effects_test_", getpid(), ".pt");
    std::ofstream(module_, std::ios::binary) << "a network";
    values_["model.critic_torchscript"] = module_;
  }

  /// "OK", or what CheckEffects says.
  std::string EffectsOf(const std::string& yaml, const std::vector<std::string>& overrides = {},
                        FileOf file = FileOf::kUser) {
    const absl::StatusOr<ResolvedRun> run = TryResolve(yaml, overrides);
    if (!run.ok()) return absl::StrCat("does not resolve: ", run.status().message());
    const auto checked = CheckEffects(*run, registry_, file);
    if (!checked.ok()) {
      EXPECT_EQ(checked.status().code(), absl::StatusCode::kInvalidArgument);
    }
    warnings_ = checked.ok() ? *checked : std::vector<std::string>();
    return checked.ok() ? "OK" : std::string(checked.status().message());
  }

  std::string Modules(const std::string& more = "") const {
    return absl::StrCat("env: {name: continuous}\nalgorithm: {name: ippo}\nmodel: {torchscript: ", module_,
                        ", critic_torchscript: ", module_, more, "}");
  }

  std::vector<Case> Cases() const {
    const std::string python =
        absl::StrCat("env: {name: 'python:host_test_envs:counter', python: {interpreter: ", TROUPE_TEST_PYTHON,
                     ", path: ", TROUPE_SOURCE_DIR, "/lib/envhost/testing}}");
    const std::string world = "env: {external: {spaces: {a: {obs_space: 'Box(-1, 1, [3])', act_space: Discrete(2)}}}}";
    const std::string team = "env: {name: team}\nalgorithm: {name: mappo}";
    const std::string alone = "env: {name: continuous}\nalgorithm: {name: ippo}";
    const std::string cores = alone + "\nmodel: {actor_core: gru, critic_core: gru}";
    return {
        {"several_workers", team + "\nnum_workers: 2", team + "\nnum_workers: 1"},
        {"no_num_envs", team, team + "\nnum_envs: 16"},
        {"wandb", team + "\nexperiment: {wandb: true}", team},
        {"evaluations", team, team + "\nevaluation: {at_end: false}"},
        {"evaluations_in_training", team + "\nevaluation: {interval: 100}", team},
        {"own_environment", team, world},
        {"external", world, team},
        {"python_environment", python, team},
        {"state_key", "env: {name: dicts}", "env: {name: one_dict}"},
        {"action_mask_key", "env: {name: dicts}", team},
        {"global_state", "env: {name: state}", team},
        {"several_agents", team, alone},
        {"agent_masks", "env: {name: state}\nalgorithm: {name: mappo}", team},
        {"agent_id", team, team + "\nmulti_agent: {policy_mapping: per_agent}"},
        {"continuous_actions", alone, team},
        {"log_std", alone, alone + "\nmodel: {action_distribution: beta}"},
        {"own_layers", alone, Modules()},
        {"own_actor", cores, Modules()},
        {"critic", team, "env: {name: team}\nalgorithm: {name: pqn}"},
        {"own_critic", cores, Modules()},
        {"attention", team + "\nmodel: {critic_encoder: attention}", team},
        {"convolutions", "env: {name: images}", "env: {name: images}\nmodel: {encoder: mlp}"},
        {"core", cores, alone},
        {"memory", alone + "\nmodel: {critic_core: lstm}", alone},
        {"hidden_layers", alone, Modules()},
        {"activation", alone + "\nmodel: {actor_activation: relu}",
         alone + "\nmodel: {actor_activation: elu, critic_activation: elu}"},
        {"actor_activation", alone, Modules()},
        {"critic_activation", alone, alone + "\nmodel: {critic_encoder: shared}"},
        {"hidden_gain", alone, alone + "\nmodel: {initializer: torch}"},
        {"actor_gain", alone, alone + "\nmodel: {initializer: torch}"},
        {"critic_gain", alone, Modules()},
        {"adam", team, "env: {name: team}\nalgorithm: {name: mappo, optimizer: sgd}"},
        {"rmsprop", "env: {name: team}\nalgorithm: {name: mappo, optimizer: rmsprop}", team},
        {"gae", team, "env: {name: team}\nalgorithm: {name: mappo, use_gae: false}"},
        {"value_clip", "env: {name: team}\nalgorithm: {name: mappo, use_value_clip: true}", team},
        {"several_epochs", team, "env: {name: team}\nalgorithm: {name: mappo, num_epochs: 1}"},
        {"gradient_clip", team, "env: {name: team}\nalgorithm: {name: mappo, max_grad_norm: 0}"},
        {"lr_kl_target", "env: {name: team}\nalgorithm: {name: mappo, lr_kl_target: 0.01}", team},
        {"kl_loss", "env: {name: team}\nalgorithm: {name: mappo, use_kl_loss: true}", team},
    };
  }

  /// A value of a key that counts under a condition, other than its default.
  std::map<std::string, std::string> values_ = {
      {"action_bound_method", "none"},
      {"action_scaling", "true"},
      {"num_envs_per_worker", "8"},
      {"env.args", "{N: 4}"},
      {"env.state_key", "who"},
      {"env.action_mask_key", "legal"},
      {"env.send_state", "always"},
      {"env.external.state_space", "'Box(-1, 1, [3])'"},
      {"env.external.address", "unix:/tmp/clients"},
      {"env.external.max_episodes", "7"},
      {"env.external.idle_timeout_s", "5"},
      {"env.python.processes", "2"},
      {"env.python.global_state", "true"},
      {"env.python.fork_server", "false"},
      {"algorithm.common_reward", "mean"},
      {"algorithm.critic_agent_id", "true"},
      {"algorithm.adam_epsilon", "1e-4"},
      {"algorithm.adam_beta1", "0.8"},
      {"algorithm.adam_beta2", "0.9"},
      {"algorithm.rmsprop_alpha", "0.9"},
      {"algorithm.rmsprop_epsilon", "1e-4"},
      {"algorithm.gae_lambda", "0.9"},
      {"algorithm.use_policy_active_masks", "false"},
      {"algorithm.use_value_active_masks", "true"},
      {"algorithm.death_masking", "true"},
      {"algorithm.value_clip_param", "0.3"},
      {"algorithm.target_kl", "0.1"},
      {"algorithm.clip_grad_norm_by", "policy"},
      {"algorithm.lr_kl_factor", "3"},
      {"algorithm.lr_kl_step", "2"},
      {"algorithm.min_lr", "1e-5"},
      {"algorithm.max_lr", "0.1"},
      {"algorithm.kl_coeff", "0.3"},
      {"algorithm.kl_target", "0.02"},
      {"model.encoder", "mlp"},
      {"model.conv_filters", "[[8, 3, 1]]"},
      {"model.critic_encoder", "mlp"},
      {"model.attention_size", "32"},
      {"model.attention_heads", "2"},
      {"model.actor_hidden_sizes", "[32]"},
      {"model.critic_hidden_sizes", "[32]"},
      {"model.activation", "relu"},
      {"model.actor_activation", "relu"},
      {"model.critic_activation", "relu"},
      {"model.layer_norm", "true"},
      {"model.critic_core", "gru"},
      {"algorithm.mixer", "vdn"},
      {"model.initializer", "xavier"},
      {"model.hidden_gain", "2"},
      {"model.actor_output_gain", "0.5"},
      {"model.critic_output_gain", "0.5"},
      {"model.initial_log_std", "-1"},
      {"model.action_distribution", "beta"},
      {"model.free_log_std", "false"},
      {"model.min_log_std", "-5"},
      {"model.max_log_std", "2"},
      {"model.core_size", "32"},
      {"model.core_layers", "2"},
      {"model.actor_head_hidden_sizes", "[8]"},
      {"model.critic_head_hidden_sizes", "[8]"},
      {"model.max_seq_len", "10"},
      {"evaluation.episodes", "5"},
      {"evaluation.num_workers", "2"},
      {"evaluation.deterministic", "true"},
      {"evaluation.env", "{max_episode_steps: 5}"},
      {"evaluation.parallel", "true"},
      {"evaluation.seed", "3"},
      {"evaluation.max_episode_steps", "7"},
      {"evaluation.time_limit_s", "5"},
      {"evaluation.video_interval", "1"},
      {"experiment.wandb_kwargs", "{project: p}"},
      {"learner.join_timeout_s", "5"},
  };

  std::string module_;
  std::vector<std::string> warnings_;
};

struct SchemaKey {
  std::string key;
  const FieldDescriptor* field;
};
void Collect(const Descriptor& section, const std::string& prefix, std::vector<SchemaKey>* keys) {
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const std::string key = IsOptions(field) ? prefix : JoinKey(prefix, field.name());
    if (IsOptions(field) || FormOf(field) == KeyForm::kSection) {
      Collect(*field.message_type(), key, keys);
    } else {
      keys->push_back({key, &field});
    }
  }
}

TEST_F(KeyEffectsTest, EveryKeySaysWhereItCountsAndIsRefusedElsewhere) {
  std::vector<SchemaKey> keys;
  Collect(*v1::RunConfig::descriptor(), "", &keys);
  std::map<std::string, Case> cases;
  for (const Case& each : Cases()) cases[each.condition] = each;
  std::set<std::string> used;
  for (const auto& [key, field] : keys) {
    const std::string& counts = RuleOf(*field).counts();
    ASSERT_NE(counts, "") << key << " does not say where it counts: give its rule counts: \"always\", or the name of a "
                          << "condition in lib/config/key_effects.cc";
    if (counts == "always") continue;
    ASSERT_EQ(cases.count(counts), 1u) << key << " counts where " << counts << ", of which there is no case here";
    used.insert(counts);
    // Conditions that need a Dict are tried below.
    if (key == "model.leaf_encoders") continue;
    const auto value = values_.find(key);
    ASSERT_NE(value, values_.end()) << key << " has no value here";
    Case each = cases[counts];
    const google::protobuf::Descriptor* const options = field->containing_type();
    if (options == v1::A2cConfig::descriptor() || options == v1::PqnConfig::descriptor()) {
      std::vector<std::pair<std::string, std::string>> names = {{"mappo", "maa2c"}, {"ippo", "ia2c"}};
      if (options == v1::PqnConfig::descriptor()) {  // which does not act continuously
        names = {{"mappo", "pqn"}, {"ippo", "pqn"}, {"name: continuous", "name: one_dict"}};
      }
      each.with = absl::StrReplaceAll(each.with, names);
      each.without = absl::StrReplaceAll(each.without, names);
    }
    const std::string written = absl::StrCat(key, "=", value->second);
    EXPECT_EQ(EffectsOf(each.with, {written}), "OK") << each.with;
    EXPECT_THAT(EffectsOf(each.without, {written}),
                testing::AllOf(StartsWith("--set "), HasSubstr(absl::StrCat(": ", key, ": got ")),
                               HasSubstr(absl::StrCat("which has no effect: it needs ", std::string(NeedsOf(counts))))))
        << each.without;
    EXPECT_EQ(EffectsOf(each.with), "OK");
    EXPECT_EQ(EffectsOf(each.without), "OK");
  }
  for (const std::string_view name : ConditionNames()) {
    EXPECT_EQ(used.count(std::string(name)), 1u) << name << " is no key's condition";
  }
  EXPECT_EQ(used.size(), cases.size());
}

TEST_F(KeyEffectsTest, SaysWhatWhereAndWhatHelps) {
  EXPECT_EQ(EffectsOf("env: {name: team}\nalgorithm:\n  kl_target: 0.02\n"),
            "run.yaml:3:14: algorithm.kl_target: got 0.02, which has no effect: it needs algorithm.use_kl_loss: true; "
            "set that, or take this key out");
  EXPECT_EQ(EffectsOf("env: {name: team}", {"model.core_size=256"}),
            "--set model.core_size=256: model.core_size: got 256, which has no effect: it needs model.actor_core or "
            "model.critic_core: gru or lstm; set that, or take this key out");
  EXPECT_EQ(EffectsOf("env: {name: team}\nexperiment: {wandb_kwargs: {api_key: canary}}"),
            "run.yaml:2:38: experiment.wandb_kwargs: got entries, which has no effect: it needs experiment.wandb: "
            "true; set that, or take this key out");
  EXPECT_EQ(EffectsOf("env: {name: dicts, state_key: whoo}").substr(0, 42),
            "run.yaml:1:31: env.state_key: got whoo, wh");
  EXPECT_EQ(EffectsOf("env: {name: dicts, state_key: who, action_mask_key: legal}"), "OK");
  EXPECT_EQ(EffectsOf("env: {name: dicts, state_key: '', action_mask_key: ''}"), "OK") << "asks for none";
  EXPECT_EQ(EffectsOf("env: {name: dicts}\nalgorithm: {name: ippo}\nmodel: {leaf_encoders: {x: flat}}"), "OK");
}

TEST_F(KeyEffectsTest, DefaultsAndPresetsSayNothing) {
  EXPECT_EQ(EffectsOf("env: {name: team}\nalgorithm: {kl_target: 0.01}\nmodel: {core_size: 64, max_log_std: 5}"), "OK");
  for (const char* preset : {"mappo_mpe", "sb3_ppo", "sb3_a2c", "rllib_ppo"}) {
    const std::string yaml = absl::StrCat("preset: ", preset, "\nenv: {name: team}");
    EXPECT_EQ(EffectsOf(yaml), "OK") << preset;
    // So does a file that spells them out.
    EXPECT_EQ(EffectsOf(Resolve(yaml).config.ToYaml()), "OK") << preset;
  }
  // rllib_ppo has 20.
  EXPECT_THAT(EffectsOf("preset: rllib_ppo\nenv: {name: team}\nmodel: {max_log_std: 3}"),
              StartsWith("run.yaml:3:22: model.max_log_std: got 3.0, which has no effect"));
  EXPECT_EQ(EffectsOf(absl::StrCat(DefaultsYaml()), {"env.name=team"}), "OK");
}

TEST_F(KeyEffectsTest, OnePolicyThatReadsAKeyIsEnough) {
  const std::string agents =
      "env: {name: mixed}\nmulti_agent:\n  policies: {wolf: {model: {actor_core: gru}}, sheep: {}}\n"
      "  policy_mapping: {'wolf_*': wolf, '*': sheep}\n";
  EXPECT_EQ(EffectsOf(agents + "model: {core_size: 32, max_seq_len: 5}"), "OK");
  EXPECT_EQ(EffectsOf(agents, {"multi_agent.policies.wolf.model.core_size=32"}), "OK");
  EXPECT_THAT(EffectsOf(agents, {"multi_agent.policies.sheep.model.core_size=32"}),
              HasSubstr(": multi_agent.policies.sheep.model.core_size: got 32, which has no effect: it needs "));
  // A value of the run that no policy inherits.
  const std::string rates =
      "env: {name: mixed}\nmulti_agent:\n  policies: {wolf: {algorithm: {lr: 1e-4}}, sheep: "
      "{algorithm: {lr: 1e-4}}}\n  policy_mapping: {'wolf_*': wolf, '*': sheep}\n";
  EXPECT_EQ(EffectsOf(rates), "OK");
  EXPECT_EQ(EffectsOf(rates, {"algorithm.lr=1e-2"}),
            "--set algorithm.lr=1e-2: algorithm.lr: got 0.01, which has no effect: every policy that could read it has "
            "a value of its own, as multi_agent.policies.sheep.algorithm.lr; set those, or take this key out");
  // Policies that are not trained have no use of what trains.
  const std::string chance = "env: {name: team}\nmulti_agent: {policies: {a: {class: random}}}";
  EXPECT_THAT(EffectsOf(chance, {"algorithm.lr=1e-2"}), HasSubstr("it needs a policy of class trained"));
  EXPECT_THAT(EffectsOf(chance, {"model.activation=relu"}), HasSubstr("it needs a policy with networks"));
}

TEST_F(KeyEffectsTest, RulesThatDecideForNoAgentAreRefused) {
  const std::string policies = "env: {name: team}\nmulti_agent:\n  policies: [a, b]\n  policy_mapping: ";
  EXPECT_EQ(
      EffectsOf(policies + "{agnet_0: a, '*': b}"),
      "run.yaml:4:29: multi_agent.policy_mapping.agnet_0: got a glob that matches no agent, expected one that matches "
      "some of agent_0, agent_1, agent_2; the nearest is \"agent_0\"");
  EXPECT_EQ(
      EffectsOf(policies + "{'*': b, agent_0: a}"),
      "run.yaml:4:37: multi_agent.policy_mapping.agent_0: got a glob behind \"*\", which takes every agent that it "
      "matches, expected it before; change their order");
  EXPECT_THAT(EffectsOf(policies + "{'agent_?': b, 'agent_*': a, wolf: a}"),
              HasSubstr("multi_agent.policy_mapping.agent_*: got a glob behind \"agent_?\""));
  EXPECT_EQ(EffectsOf(policies + "{agent_0: a, 'agent_*': b}"), "OK");
  EXPECT_EQ(EffectsOf(policies + "{'*': b}"), "OK") << "a policy may wait for its rule";
  EXPECT_THAT(EffectsOf("env: {name: team}", {"multi_agent.agents={'*': {}, agent_0: {}}"}),
              HasSubstr("multi_agent.agents.agent_0: got a glob behind \"*\""));
}

TEST_F(KeyEffectsTest, WhatAnOverrideSwitchesOffIsAWarning) {
  const std::string file =
      "env: {name: team}\nalgorithm: {use_kl_loss: true, kl_target: 0.02}\nmodel: {actor_core: gru, "
      "core_size: 32}\nmulti_agent: {policies: [a, b], policy_mapping: {agent_2: a, '*': b}}";
  EXPECT_EQ(EffectsOf(file), "OK");
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(EffectsOf(file, {"algorithm.use_kl_loss=false", "model.actor_core=none"}), "OK");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("algorithm.kl_target: got 0.02"), HasSubstr("model.core_size: got 32")));
  EXPECT_EQ(EffectsOf(file, {"env.name=continuous", "multi_agent.policies=[a]"}).substr(0, 4), "does")
      << "b is another mistake";
  EXPECT_EQ(EffectsOf(file, {"env.name=state"}), "OK") << "without agent_2";
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("multi_agent.policy_mapping.agent_2: got a glob that matches no agent")));
  // Both by overrides is a mistake, too.
  EXPECT_THAT(EffectsOf(file, {"algorithm.use_kl_loss=false", "algorithm.kl_target=0.03"}), StartsWith("--set "));
}

TEST_F(KeyEffectsTest, ARunsOwnFileIsAWarningAndAnOverrideOfItIsNot) {
  const std::string before =
      "env: {name: team}\nmodel: {core_size: 32}\nmulti_agent: {policies: [a, b], "
      "policy_mapping: {agnet_0: a, '*': b}}";
  const std::string stored = Resolve(before).config.ToYaml();
  EXPECT_EQ(EffectsOf(stored, {}, FileOf::kRun), "OK");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("agnet_0"), HasSubstr("model.core_size: got 32, which has no effect")));
  EXPECT_EQ(EffectsOf(stored, {"stop.env_steps=7"}, FileOf::kRun), "OK");
  const std::string masked = "env: {name: team}\nalgorithm: {use_value_active_masks: true}";
  EXPECT_EQ(EffectsOf(masked, {}, FileOf::kRun), "OK");
  EXPECT_THAT(warnings_, IsEmpty()) << "the default of before";
  EXPECT_THAT(EffectsOf(masked), HasSubstr("which has no effect"));
  EXPECT_THAT(
      EffectsOf(stored, {"experiment.wandb_kwargs.name=x"}, FileOf::kRun),
      StartsWith("--set experiment.wandb_kwargs.name: experiment.wandb_kwargs: got entries, which has no effect"));
}

}  // namespace
}  // namespace troupe::config
