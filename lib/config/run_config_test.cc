#include "lib/config/run_config.h"

#include <string>
#include <vector>

#include "lib/base/philox.h"
#include "lib/config/schema.h"
#include "proto/troupe/v1/config.pb.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

std::string ErrorOf(std::string_view yaml, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  if (config.ok()) return "OK";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

RunConfig Parse(std::string_view yaml, const std::vector<std::string>& overrides = {}) {
  absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : RunConfig();
}

TEST(RunConfigTest, ReadsEveryFormOfValue) {
  const RunConfig config = Parse(R"(
seed: 7
env: {name: mpe/simple_spread, args: {N: 3, local_ratio: 0.5, flag: true, limit: null, text: "3", word: abc}}
multi_agent:
  policies: {a: {model: {activation: relu, actor_hidden_sizes: [32]}}, b: {}}
  policy_mapping: {"agent_0": a, "*": b}
algorithm:
  name: ippo
  lr: {initial: 1.0e-3, final: 0, env_steps: 1e6}
  entropy_coeff: 0.02
  use_actions_mask: false
stop: {env_steps: 5e6, episode_return: -30}
)");
  const v1::RunConfig& proto = config.proto();
  EXPECT_EQ(proto.seed(), 7);
  ASSERT_EQ(proto.env().args_size(), 6);  // as they are written
  EXPECT_EQ(proto.env().args(0).int_value(), 3);
  EXPECT_EQ(proto.env().args(1).double_value(), 0.5);
  EXPECT_TRUE(proto.env().args(2).bool_value());
  EXPECT_TRUE(proto.env().args(3).has_null_value());
  EXPECT_EQ(proto.env().args(4).string_value(), "3");
  EXPECT_EQ(proto.env().args(5).string_value(), "abc");
  ASSERT_EQ(proto.multi_agent().policies_size(), 2);
  EXPECT_EQ(proto.multi_agent().policies(0).model().activation(), v1::ACTIVATION_RELU);
  ASSERT_EQ(proto.multi_agent().policy_mapping().rules_size(), 2);
  EXPECT_EQ(proto.multi_agent().policy_mapping().rules(0).agents(), "agent_0");
  EXPECT_EQ(proto.multi_agent().policy_mapping().rules(1).policies(0).policy(), "b");
  EXPECT_EQ(proto.algorithm().name(), v1::ALGORITHM_NAME_IPPO);
  EXPECT_EQ(proto.algorithm().ppo().lr().env_steps(), 1000000);
  EXPECT_EQ(proto.algorithm().ppo().lr().final(), 0);
  EXPECT_EQ(proto.algorithm().ppo().entropy_coeff().initial(), 0.02);
  EXPECT_TRUE(proto.algorithm().has_use_actions_mask());
  EXPECT_FALSE(proto.algorithm().ppo().has_critic_lr());
  EXPECT_EQ(proto.stop().env_steps(), 5000000);
  ASSERT_EQ(proto.stop().episode_return().targets_size(), 1);
  EXPECT_EQ(proto.stop().episode_return().targets(0).at_least(), -30);
  EXPECT_EQ(proto.algorithm().ppo().gamma().initial(), 0.99);  // a default
}

TEST(RunConfigTest, MistypedKeyNamesTheNearest) {
  EXPECT_EQ(ErrorOf("seed: 1\nalgorithm:\n  gama: 0.9\n"),
            "run.yaml:3:3: unknown key \"algorithm.gama\"; the nearest is \"algorithm.gamma\"");
  EXPECT_EQ(
      ErrorOf("learner: {grant_timeout_s: 0.5}"),
      "run.yaml:1:28: learner.grant_timeout_s: got 0.5, expected a number in [1, 86400], or auto; the default is auto");
  EXPECT_EQ(ErrorOf("env: {max_abs_return: 0}"),
            "run.yaml:1:23: env.max_abs_return: got 0, expected a number > 0; the default is 1.0e12");
  EXPECT_EQ(ErrorOf("env: {max_failed_share: 1.5}"),
            "run.yaml:1:25: env.max_failed_share: got 1.5, expected a number in [0, 1]; the default is 0.5");
  EXPECT_EQ(ErrorOf("env: {send_state: never}"),
            "run.yaml:1:19: env.send_state: got \"never\", expected one of auto, always; the default is auto");
  EXPECT_EQ(ErrorOf("algoritm: {gamma: 0.9}"), "run.yaml:1:1: unknown key \"algoritm\"; the nearest is \"algorithm\"");
  EXPECT_EQ(ErrorOf("stop: {env_stesp: 3}"),
            "run.yaml:1:8: unknown key \"stop.env_stesp\"; the nearest is \"stop.env_steps\"");
  EXPECT_EQ(ErrorOf("model: {activation: tanh, actor_hiden_sizes: 3}"),
            "run.yaml:1:27: unknown key \"model.actor_hiden_sizes\"; the nearest is \"model.actor_hidden_sizes\"");
}

TEST(RunConfigTest, KeyInTheWrongSectionIsSentHome) {
  EXPECT_EQ(ErrorOf("gamma: 0.9"), "run.yaml:1:1: unknown key \"gamma\"; it belongs in \"algorithm.gamma\"");
  EXPECT_EQ(ErrorOf("algorithm: {num_workers: 3}"),
            "run.yaml:1:13: unknown key \"algorithm.num_workers\"; it belongs in \"num_workers\"");
}

TEST(RunConfigTest, KeyLikeNoOtherListsWhatThereIs) {
  EXPECT_EQ(ErrorOf("stop: {zzzzzzzzzz: 1}"),
            "run.yaml:1:8: unknown key \"stop.zzzzzzzzzz\"; expected one of env_steps, agent_steps, updates, "
            "wall_clock, episode_return; `troupe config defaults` says what each is for");
}

TEST(RunConfigTest, WrongTypeSaysWhatIsExpected) {
  EXPECT_EQ(ErrorOf("num_workers: 1.5"),
            "run.yaml:1:14: num_workers: got 1.5, expected an integer in [0, 1024]; the default is 2");
  EXPECT_EQ(ErrorOf("num_workers: \"2\""),
            "run.yaml:1:14: num_workers: got \"2\", expected an integer in [0, 1024]; write 2");
  EXPECT_EQ(ErrorOf("algorithm: {gamma: high}"),
            "run.yaml:1:20: algorithm.gamma: got \"high\", expected a number in [0, 1] or a schedule ({initial, final, "
            "env_steps}); the default is 0.99");
  EXPECT_EQ(ErrorOf("algorithm: {gamma: [0.9]}"),
            "run.yaml:1:21: algorithm.gamma: got 0.9 as a point, expected [AT, VALUE]; write [[0, 1.0e-3], [1000000, "
            "1.0e-4]] for a list of them");
  EXPECT_EQ(ErrorOf("algorithm: {gamma: .nan}"),
            "run.yaml:1:20: algorithm.gamma: got \".nan\", expected a number in [0, 1] or a schedule ({initial, final, "
            "env_steps}); the default is 0.99");
  EXPECT_EQ(ErrorOf("algorithm: {use_gae: 1}"),
            "run.yaml:1:22: algorithm.use_gae: got 1, expected true or false; write true");
  EXPECT_EQ(ErrorOf("algorithm: {name: qmix}"),
            "run.yaml:1:19: algorithm.name: got \"qmix\", expected one of ppo, ippo, mappo, a2c, ia2c, maa2c, pqn, "
            "impala, appo, custom, macustom; qmix is not implemented");
  EXPECT_EQ(ErrorOf("env: cartpole"),
            "run.yaml:1:6: env: got \"cartpole\", expected a section (a mapping); write env: {name: cartpole}");
  EXPECT_EQ(ErrorOf("seed:"), "run.yaml:1:1: seed: got nothing, expected an integer >= 0; the default is 1");
  EXPECT_EQ(ErrorOf("seed: 1\nalgorithm:\n  name: ippo\n  gamma:\n"),
            "run.yaml:4:3: algorithm.gamma: got nothing, expected a number in [0, 1] or a schedule ({initial, final, "
            "env_steps}); the default is 0.99");
  EXPECT_EQ(ErrorOf("env: {name: [a]}"), "run.yaml:1:13: env.name: got a list, expected a string");
  EXPECT_EQ(ErrorOf("env: {name: a, args: [1]}"),
            "run.yaml:1:22: env.args: got a list, expected a mapping of names to numbers, strings, booleans, null, and "
            "lists and mappings of these; write {NAME: VALUE}");
  EXPECT_EQ(
      ErrorOf("algorithm: {critic_lr: x}"),
      "run.yaml:1:24: algorithm.critic_lr: got \"x\", expected a number in [0, 1000] or a schedule ({initial, final, "
      "env_steps}), or auto; the default is auto");
}

TEST(RunConfigTest, OutOfRangeSaysTheRange) {
  EXPECT_EQ(ErrorOf("algorithm:\n  gamma: 1.5\n"),
            "run.yaml:2:10: algorithm.gamma: got 1.5, expected a number in [0, 1] or a schedule ({initial, final, "
            "env_steps}); the default is 0.99");
  EXPECT_EQ(ErrorOf("algorithm: {gamma: -0.1}"),
            "run.yaml:1:20: algorithm.gamma: got -0.1, expected a number in [0, 1] or a schedule ({initial, final, "
            "env_steps}); the default is 0.99");
  EXPECT_EQ(
      ErrorOf("algorithm: {clip_param: 0}"),
      "run.yaml:1:25: algorithm.clip_param: got 0, expected a number in (0, 1000] or a schedule ({initial, final, "
      "env_steps}); the default is 0.2");
  EXPECT_EQ(ErrorOf("algorithm: {train_batch_size: 0}"),
            "run.yaml:1:31: algorithm.train_batch_size: got 0, expected an integer >= 1; the default is 4000");
  EXPECT_EQ(
      ErrorOf("algorithm: {max_policy_lag: -1}"),
      "run.yaml:1:29: algorithm.max_policy_lag: got -1, expected an integer in [0, 1000000], or auto; the default "
      "is auto");
  EXPECT_EQ(ErrorOf("num_workers: 99999999999999999999"),
            "run.yaml:1:14: num_workers: got 99999999999999999999, expected an integer in [0, 1024]; the default is 2");
  EXPECT_EQ(
      ErrorOf("model: {actor_hidden_sizes: [64, 0]}"),
      "run.yaml:1:34: model.actor_hidden_sizes: got 0, expected a list of 0 to 8 integers in [1, 16384]; write [0]");
  EXPECT_EQ(ErrorOf("model: {critic_head_hidden_sizes: [1, 2, 3, 4, 5, 6, 7, 8, 9]}"),
            "run.yaml:1:35: model.critic_head_hidden_sizes: got a list, expected a list of 0 to 8 integers in [1, "
            "16384]; the default is []");
}

TEST(RunConfigTest, CoresAreReadAndTheirNumbersHaveRanges) {
  const RunConfig config = Parse(
      "model: {actor_core: gru, critic_core: lstm, core_size: 32, core_layers: 2, actor_hidden_sizes: [], "
      "critic_head_hidden_sizes: [16], max_seq_len: 10}\n"
      "multi_agent: {policies: {a: {model: {critic_head_hidden_sizes: [], actor_core: none}}}}");
  const v1::ModelConfig& model = config.proto().model();
  EXPECT_EQ(model.actor_core(), v1::CORE_KIND_GRU);
  EXPECT_EQ(model.critic_core(), v1::CORE_KIND_LSTM);
  EXPECT_EQ(model.core_size(), 32);
  EXPECT_EQ(model.core_layers(), 2);
  EXPECT_EQ(model.max_seq_len(), 10);
  EXPECT_EQ(model.actor_hidden_sizes().values_size(), 0);
  EXPECT_EQ(model.critic_head_hidden_sizes().values(0), 16);
  const v1::ModelConfig& own = config.proto().multi_agent().policies(0).model();
  EXPECT_TRUE(own.has_critic_head_hidden_sizes()) << "an empty list is something said";
  EXPECT_FALSE(own.has_actor_hidden_sizes());
  EXPECT_EQ(Parse(config.ToYaml()), config) << config.ToYaml();
  const RunConfig all_defaults;
  const v1::ModelConfig& defaults = all_defaults.proto().model();
  EXPECT_EQ(defaults.actor_core(), v1::CORE_KIND_NONE);
  EXPECT_EQ(defaults.critic_core(), v1::CORE_KIND_NONE);
  EXPECT_EQ(defaults.core_size(), 64);
  EXPECT_EQ(defaults.max_seq_len(), 20);

  EXPECT_EQ(ErrorOf("model: {actor_core: rnn}"),
            "run.yaml:1:21: model.actor_core: got \"rnn\", expected one of none, gru, lstm; the default is none");
  EXPECT_EQ(ErrorOf("model: {critic_core: LSTM}"),
            "run.yaml:1:22: model.critic_core: got \"LSTM\", expected one of none, gru, lstm; write lstm");
  EXPECT_EQ(ErrorOf("model: {actor_core: true}"),
            "run.yaml:1:21: model.actor_core: got true, expected one of none, gru, lstm; write gru");
  for (const auto& [key, range] :
       std::vector<std::pair<std::string, std::string>>{{"core_size: 0", "[1, 4096]; the default is 64"},
                                                        {"core_size: 4097", "[1, 4096]; the default is 64"},
                                                        {"core_layers: 0", "[1, 4]; the default is 1"},
                                                        {"core_layers: 5", "[1, 4]; the default is 1"},
                                                        {"max_seq_len: 0", "[1, 65536]; the default is 20"},
                                                        {"max_seq_len: 65537", "[1, 65536]; the default is 20"}}) {
    EXPECT_NE(ErrorOf("model: {" + key + "}").find("expected an integer in " + range), std::string::npos)
        << ErrorOf("model: {" + key + "}");
  }
}

TEST(RunConfigTest, PoliciesAndMappingAreChecked) {
  EXPECT_EQ(ErrorOf("multi_agent: {policies: 3}"),
            "run.yaml:1:25: multi_agent.policies: got 3, expected a list of policy ids or a mapping from policy id to "
            "overrides; write [3]");
  EXPECT_NE(ErrorOf("multi_agent: {policies: [a/b]}").find("run.yaml:1:26: multi_agent.policies: "), std::string::npos);
  EXPECT_EQ(ErrorOf("multi_agent: {policies: [a, a]}"),
            "run.yaml:1:29: key \"multi_agent.policies.a\" is there twice, expected once; take one of them out");
  EXPECT_EQ(ErrorOf("multi_agent: {policies: {a: {modle: {}}}}"),
            "run.yaml:1:30: unknown key \"multi_agent.policies.a.modle\"; a policy may have class, load, "
            "observation_space, action_space, model and algorithm");
  EXPECT_EQ(ErrorOf("multi_agent: {policies: {a: {model: {activation: x}}}}"),
            "run.yaml:1:50: multi_agent.policies.a.model.activation: got \"x\", expected one of tanh, relu, elu, gelu, "
            "sigmoid, silu, identity; the default is tanh");
  EXPECT_EQ(ErrorOf("multi_agent: {policy_mapping: [a]}"),
            "run.yaml:1:31: multi_agent.policy_mapping: got a list, expected a mapping from globs over agent ids to "
            "policy ids (or to {id: weight} or {function: NAME}), or per_agent; write {AGENT: POLICY, \"*\": POLICY}");
  EXPECT_EQ(
      ErrorOf("multi_agent: {policy_mapping: {x: [a]}}"),
      "run.yaml:1:35: multi_agent.policy_mapping.x: got a list, expected a policy id, a mapping from policy ids to "
      "weights, or {function: NAME}");
  EXPECT_EQ(ErrorOf("multi_agent: {policy_mapping: {x: {}}}"),
            "run.yaml:1:35: multi_agent.policy_mapping.x: got an empty mapping, expected a policy id, a mapping from "
            "policy ids "
            "to weights, or {function: NAME}");
  for (const char* weight : {"0", "-1", ".nan", ".inf", "much"}) {
    EXPECT_NE(ErrorOf(std::string("multi_agent: {policy_mapping: {x: {a: ") + weight + "}}}")
                  .find("multi_agent.policy_mapping.x.a: got "),
              std::string::npos)
        << weight;
  }
  EXPECT_TRUE(Parse("multi_agent: {policy_mapping: per_agent}").proto().multi_agent().policy_mapping().per_agent());
}

TEST(RunConfigTest, PolicyClassesAreReadAndWritten) {
  const RunConfig config = Parse(
      "multi_agent: {policies: {a: {class: ppo}, b: {class: random}, c: {class: 'scripted:x', model: {}}, "
      "d: {class: 'checkpoint:runs/r#a'}}}");
  const auto& policies = config.proto().multi_agent().policies();
  ASSERT_EQ(policies.size(), 4);
  EXPECT_EQ(policies[0].class_(), "") << "the default has one text";
  EXPECT_EQ(policies[1].class_(), "random");
  EXPECT_EQ(policies[3].class_(), "checkpoint:runs/r#a");
  const RunConfig again = Parse(config.ToYaml());
  EXPECT_EQ(again, config) << config.ToYaml();
  EXPECT_EQ(again.proto().multi_agent().policies(2).class_(), "scripted:x");
  // An override keeps what else was said of the policy.
  const RunConfig changed = *RunConfig::FromYaml(config.ToYaml(), "config.yaml", {"multi_agent.policies.b.class=ppo"});
  EXPECT_EQ(changed.proto().multi_agent().policies(1).class_(), "");
  EXPECT_EQ(changed.proto().multi_agent().policies_size(), 4);

  EXPECT_EQ(
      ErrorOf("multi_agent: {policies: {a: {class: radnom}}}"),
      "run.yaml:1:37: multi_agent.policies.a.class: got \"radnom\", the nearest is \"random\"; expected trained, "
      "random, scripted:NAME, python:MODULE:NAME, or checkpoint:PATH (checkpoint:PATH#ID for a policy of another id)");
  EXPECT_EQ(ErrorOf("multi_agent: {policies: {a: {class: [random]}}}"),
            "run.yaml:1:37: multi_agent.policies.a.class: got a list, expected the name of a policy class");
}

TEST(RunConfigTest, PoliciesToTrainAreAllOrAList) {
  const auto list = [](const std::string& value) {
    return Parse("multi_agent: {policies_to_train: " + value + "}").proto().multi_agent();
  };
  EXPECT_FALSE(Parse("env: {name: x}").proto().multi_agent().has_policies_to_train());
  EXPECT_FALSE(list("all").has_policies_to_train());
  EXPECT_TRUE(list("[]").has_policies_to_train());
  EXPECT_EQ(list("[]").policies_to_train().ids_size(), 0);
  EXPECT_EQ(list("[a, b]").policies_to_train().ids(1), "b");
  // A list replaces the one before it, and what is written reads back.
  const RunConfig config = Parse("multi_agent: {policies_to_train: [a, all]}");
  EXPECT_NE(config.ToYaml().find("policies_to_train: [a, \"all\"]"), std::string::npos) << config.ToYaml();
  EXPECT_EQ(ErrorOf("multi_agent: {policies_to_train: a}"),
            "run.yaml:1:34: multi_agent.policies_to_train: got \"a\", expected a list of policy ids and "
            "{policies, only_against, only_newest, function}, python:MODULE:NAME, or all; write [a]");
  EXPECT_EQ(
      ErrorOf("multi_agent: {policies_to_train: [a, a]}"),
      "run.yaml:1:38: key \"multi_agent.policies_to_train.a\" is there twice, expected once; take one of them out");
  EXPECT_NE(ErrorOf("multi_agent: {policies_to_train: [../x]}").find("run.yaml:1:35: multi_agent.policies_to_train: "),
            std::string::npos);
}

TEST(RunConfigTest, NotYamlOrNotOneMapping) {
  EXPECT_EQ(ErrorOf(""),
            "run.yaml: is empty, expected a configuration with at least env: {name: ...}; `troupe config defaults` "
            "prints one with every key");
  EXPECT_EQ(ErrorOf("# only a comment\n"),
            "run.yaml: is empty, expected a configuration with at least env: {name: ...}; `troupe config defaults` "
            "prints one with every key");
  EXPECT_EQ(
      ErrorOf("- a\n- b\n"),
      "run.yaml:1:1: the configuration: got a list, expected a section (a mapping); its keys are seed, preset, "
      "env, multi_agent, algorithm, model, action_bound_method, action_scaling, num_workers, num_envs_per_worker, "
      "num_envs, rollout_fragment_length, batch_mode, explore, device, learner_threads, precision, stop, evaluation, "
      "experiment, "
      "learner, callbacks");
  EXPECT_EQ(ErrorOf("seed: 1\nseed: 2\n"),
            "run.yaml:2:1: key \"seed\" is there twice, expected once; take one of them out");
  EXPECT_EQ(
      ErrorOf("seed: 1\n---\nseed: 2\n"),
      "run.yaml:2:1: not valid YAML: a second document begins, expected one: got \"---\"; take out the line \"---\"");
  EXPECT_EQ(ErrorOf("seed: [1\n").substr(0, 10), "run.yaml:2");
  EXPECT_NE(ErrorOf("seed: [1\n").find(": not valid YAML: "), std::string::npos);
  EXPECT_EQ(ErrorOf("? [a]\n: 1\n"), "run.yaml:1:3: got a list as a key, expected a name");
}

TEST(RunConfigTest, HostileTextIsAnErrorAndNoCrash) {
  EXPECT_NE(ErrorOf(std::string(100000, '[')), "OK");
  EXPECT_NE(ErrorOf(std::string((1 << 20) + 1, ' ')), "OK");
  EXPECT_NE(ErrorOf("a: &a {a: *a}"), "OK");
  EXPECT_NE(ErrorOf(std::string("\0\x01\xff\xfe", 4)), "OK");
  EXPECT_EQ(ErrorOf("\"a\\x1b[31m\": 1").find('\x1b'), std::string::npos) << "control characters reach the terminal";
  base::PhiloxSequence random(base::PhiloxKey::Make(11, base::RandomStream::kTest), {});
  const std::string seedling = DefaultsYaml();
  for (int i = 0; i < 300; ++i) {
    std::string text = seedling;
    for (int flips = 0; flips < 4; ++flips) {
      text[random.Below(static_cast<uint32_t>(text.size()))] = static_cast<char>(random.Below(128));
    }
    const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(text, "run.yaml");
    if (config.ok()) {
      const absl::StatusOr<RunConfig> again = RunConfig::FromYaml(config->ToYaml(), "again");
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, *config);
    }
  }
}

TEST(RunConfigTest, OverridesGoTheSameWay) {
  const RunConfig config =
      Parse("env: {name: a, args: {N: 3, M: 1}}\nalgorithm: {gamma: 0.9}",
            {"algorithm.gamma=0.8", "env.args.N=4", "algorithm.lr={initial: 1, final: 0, env_steps: 9}",
             "model.actor_hidden_sizes=[8, 8]", "stop.env_steps=1e6", "stop.env_steps=2000000",
             "multi_agent.policies.x.model.activation=relu", "experiment.experiment_name=a=b"});
  EXPECT_EQ(config.proto().algorithm().ppo().gamma().initial(), 0.8);
  ASSERT_EQ(config.proto().env().args_size(), 2);
  EXPECT_EQ(config.proto().env().args(0).int_value(), 4);
  EXPECT_EQ(config.proto().env().args(1).int_value(), 1);
  EXPECT_EQ(config.proto().algorithm().ppo().lr().env_steps(), 9);
  EXPECT_EQ(config.proto().model().actor_hidden_sizes().values_size(), 2);
  EXPECT_EQ(config.proto().model().actor_hidden_sizes().values(0), 8);
  EXPECT_EQ(config.proto().stop().env_steps(), 2000000);
  EXPECT_EQ(config.proto().multi_agent().policies(0).model().activation(), v1::ACTIVATION_RELU);
  EXPECT_EQ(config.proto().experiment().experiment_name(), "a=b");
  EXPECT_EQ(config.Where("algorithm.gamma"), "--set algorithm.gamma=0.8");
  EXPECT_EQ(config.Where("env.args.M"), "run.yaml:1:32");
  EXPECT_EQ(config.Where("env.args.other"), "run.yaml:1:22");
  EXPECT_EQ(config.Where("algorithm.clip_param"), "run.yaml:2:12");
  EXPECT_EQ(config.Where("device"), "default");
}

TEST(RunConfigTest, ArgumentsNest) {
  const RunConfig config =
      Parse("env: {name: a, args: {t: [[1, 2.5], [x, null, []]], m: {b: {c: true}, a: 1, '3': {}}}}",
            {"env.args.u=[[1,2],[3,4]]", "env.args.m.b.d=2", "env.args.m.a=[5]", "env.args.n.k=1"});
  const auto& args = config.proto().env().args();
  ASSERT_EQ(args.size(), 4);
  const v1::ArgumentList& t = args[0].list_value();
  ASSERT_EQ(t.values_size(), 2);
  EXPECT_EQ(t.values(0).list_value().values(1).double_value(), 2.5);
  EXPECT_EQ(t.values(1).list_value().values(0).string_value(), "x");
  EXPECT_TRUE(t.values(1).list_value().values(1).has_null_value());
  EXPECT_EQ(t.values(1).list_value().values(2).list_value().values_size(), 0);
  EXPECT_EQ(args[1].name(), "m");  // merged with what --set gave, entry by entry
  ASSERT_EQ(args[1].map_value().entries_size(), 3);
  const v1::Argument& b = args[1].map_value().entries(0);
  ASSERT_EQ(b.map_value().entries_size(), 2);
  EXPECT_TRUE(b.map_value().entries(0).bool_value());
  EXPECT_EQ(b.map_value().entries(1).int_value(), 2);
  EXPECT_EQ(args[1].map_value().entries(1).list_value().values(0).int_value(), 5);
  EXPECT_EQ(args[1].map_value().entries(2).name(), "3");
  EXPECT_TRUE(args[1].map_value().entries(2).has_map_value());
  EXPECT_EQ(args[2].list_value().values(1).list_value().values(0).int_value(), 3);
  EXPECT_EQ(args[3].map_value().entries(0).name(), "k");
  const std::string yaml = config.ToYaml();
  EXPECT_NE(yaml.find("    t: [[1, 2.5], [x, null, []]]\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("    m: {b: {c: true, d: 2}, a: [5], \"3\": {}}\n"), std::string::npos) << yaml;
  EXPECT_EQ(Parse(yaml), config);
  EXPECT_EQ(config.Where("env.args.m"), "--set env.args.m.a=[5]");
  EXPECT_EQ(config.Where("env.args.t[0]"), config.Where("env.args"));
}

// Mappings were sorted by name: an environment that makes its agents from one got them in another order.
TEST(RunConfigTest, MappingsKeepTheirOrder) {
  const std::string agents =
      "{z: {obs_space: \"Box(0, 1, [1])\", act_space: Discrete(2)}, a: {act_space: Discrete(2), obs_space: \"Box(0, 1, "
      "[1])\"}}";
  const RunConfig config = Parse(
      "env: {name: x, args: {teams: {red: 2, blue: 1, azure: [{z: 1, a: 2}]}, alpha: 1}, external: {spaces: " + agents +
          "}, groups: {z: [q, b], a: [c]}}\n" +
          "model: {leaf_encoders: {z: flat, a: flat}}\nmulti_agent: {agents: {z: {}, a: {}}}\n" +
          "stop: {episode_return: {sum: 1, mean: 2}}\n" +
          "experiment: {wandb_kwargs: {project: p, config: {z: 1, a: 2}}}",
      {"env.args.teams.green=1", "env.args.teams.red=3", "env.args.teams.apple={z: 1, a: 2}"});
  const std::string yaml = config.ToYaml();
  for (const char* line :
       {"    teams: {red: 3, blue: 1, azure: [{z: 1, a: 2}], green: 1, apple: {z: 1, a: 2}}\n    alpha: 1\n",
        "      z: {obs_space: \"Box(0, 1, [1])\", act_space: \"Discrete(2)\"}\n"
        "      a: {act_space: \"Discrete(2)\", obs_space: \"Box(0, 1, [1])\"}\n",
        "    z: [q, b]\n    a: [c]\n", "leaf_encoders: {z: flat, a: flat}\n", "    z: {}\n    a: {}\n",
        "episode_return: {sum: 1.0, mean: 2.0}\n", "    project: p\n    config: {z: 1, a: 2}\n"}) {
    EXPECT_NE(yaml.find(line), std::string::npos) << line << yaml;
  }
  // A worker and a resume read this text.
  EXPECT_EQ(Parse(yaml).ToYaml(), yaml);
}

std::string Nested(int depth) { return std::string(depth, '[') + "1" + std::string(depth, ']'); }

TEST(RunConfigTest, NestedArgumentsHaveLimits) {
  const std::string head = "env: {name: a, args: {N: ";
  EXPECT_EQ(ErrorOf(head + Nested(16) + "}}"), "OK");
  EXPECT_EQ(Parse(Parse(head + Nested(16) + "}}").ToYaml()), Parse(head + Nested(16) + "}}"));
  EXPECT_EQ(ErrorOf(head + Nested(17) + "}}"),
            "run.yaml:1:42: env.args.N[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: got a list inside 16 lists and "
            "mappings, expected values nested at most 16 deep");
  std::string maps = "1";
  for (int i = 0; i < 17; ++i) maps = "{k: " + maps + "}";
  EXPECT_NE(ErrorOf(head + maps + "}}").find("got a mapping inside 16 lists and mappings"), std::string::npos);
  std::string most = "[";
  for (int i = 0; i < 65535; ++i) most += "0,";
  EXPECT_EQ(ErrorOf(head + most + "]}}"), "OK");
  EXPECT_EQ(
      ErrorOf(head + most + "0]}}"),
      "run.yaml:1:131097: env.args.N[65535]: got more than 65536 values (lists and mappings count, too), expected "
      "at most so many");
  EXPECT_EQ(
      ErrorOf(head + most + "]}}", {"env.args.M=1"}),
      "--set env.args.M=1: env.args: got more than 65536 values (lists and mappings count, too), expected at most "
      "so many");
  EXPECT_EQ(ErrorOf(head + most + "]}}", {"env.args.N=1"}), "OK") << "replaced values do not count";
  // 10^5 values in a line; of more the text itself is refused.
  const std::string tens =
      "env: {name: a, args: {a: &a [0,0,0,0,0,0,0,0,0,0], b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], c: &c "
      "[*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]";
  EXPECT_NE(ErrorOf(tens + "}}").find("got more than 65536 values"), std::string::npos);
  EXPECT_NE(ErrorOf(tens + ", f: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]}}").find("got more than 200000 values"),
            std::string::npos);
}

TEST(RunConfigTest, AliasesDoNotMultiplyALongText) {
  const auto aliases = [](int count) {
    std::string text = "env: {name: a, args: {a: &a \"" + std::string(1 << 10, 'x') + "\", b: [";
    for (int i = 0; i < count; ++i) text += "*a,";
    return text + "]}}";
  };
  EXPECT_EQ(ErrorOf(aliases(511)), "OK") << "with the text itself 512 KiB";
  EXPECT_EQ(Parse(Parse(aliases(511)).ToYaml()), Parse(aliases(511))) << "as workers read it";
  EXPECT_NE(ErrorOf(aliases(512)).find("env.args.b[511]: got more than 524288 bytes of values"), std::string::npos);
}

TEST(RunConfigTest, NestedArgumentErrorsNameTheElement) {
  EXPECT_EQ(ErrorOf("env: {name: a, args: {N: {b: 1, b: 2}}}"),
            "run.yaml:1:33: key \"env.args.N.b\" is there twice, expected once; take one of them out");
  EXPECT_EQ(ErrorOf("env: {name: a, args: {N: [{[1]: 2}]}}"),
            "run.yaml:1:28: got a list as a key in env.args.N[0], expected a name");
}

TEST(RunConfigTest, ATextOverrideHoldsAnyText) {
  for (const std::string text : {"runs", "my runs", "a, b: {c}", "\"quoted\"", "7", ""}) {
    const auto config =
        RunConfig::FromYaml("env: {name: a}", "text", {TextOverride("experiment.experiment_name", text)});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->proto().experiment().experiment_name(), text);
  }
}

TEST(RunConfigTest, OverrideErrorsNameTheOverride) {
  EXPECT_EQ(ErrorOf("seed: 1", {"algorithm.gamma=2"}),
            "--set algorithm.gamma=2: algorithm.gamma: got 2, expected a number in [0, 1] or a schedule ({initial, "
            "final, env_steps}); the default is 0.99");
  EXPECT_EQ(ErrorOf("seed: 1", {"algorithm.gama=1"}),
            "--set algorithm.gama=1: unknown key \"algorithm.gama\"; the nearest is \"algorithm.gamma\"");
  EXPECT_EQ(ErrorOf("seed: 1", {"algorithm.gamma"}),
            "--set algorithm.gamma: is no override: got no \"=\", expected KEY=VALUE in one word; write --set "
            "algorithm.lr=1e-3");
  EXPECT_EQ(ErrorOf("seed: 1", {"=3"}),
            "--set =3: is no override: got no key, expected KEY=VALUE in one word; write --set algorithm.lr=1e-3");
  EXPECT_EQ(ErrorOf("seed: 1", {"seed:3"}),
            "--set seed:3: is no override: got no \"=\", expected KEY=VALUE in one word; write --set seed=3");
  EXPECT_EQ(ErrorOf("seed: 1", {"experiment.wandb_kwargs.api_key:secret"}).find("secret"), std::string::npos);
  EXPECT_EQ(ErrorOf("seed: 1", {"seed="}),
            "--set seed=: seed: got nothing, expected an integer >= 0; the default is 1");
  EXPECT_EQ(ErrorOf("seed: 1", {"seed.a=3"}),
            "--set seed.a=3: seed: got a mapping, expected an integer >= 0; the default is 1");
  EXPECT_NE(ErrorOf("seed: 1", {"seed=[1"}).find("--set seed=[1: not valid YAML: "), std::string::npos);
  EXPECT_NE(ErrorOf("seed: 1", {"seed=1", "a..b=3"}), "OK");
}

TEST(RunConfigTest, ReturnsToReach) {
  const RunConfig config = Parse("stop: {episode_return: {policy:hunter: 3, mean: -1.5}}\n");
  const v1::ReturnTargets& targets = config.proto().stop().episode_return();
  ASSERT_EQ(targets.targets_size(), 2);
  EXPECT_EQ(targets.targets(0).score(), "policy:hunter");
  EXPECT_EQ(targets.targets(0).at_least(), 3);
  EXPECT_EQ(targets.targets(1).score(), "mean");
  EXPECT_EQ(targets.targets(1).at_least(), -1.5);
  EXPECT_FALSE(Parse("stop: {episode_return: none}").proto().stop().has_episode_return());
  const auto overridden = RunConfig::FromYaml("seed: 1", "run.yaml", {"stop.episode_return={policy:a.b: 2}"});
  ASSERT_TRUE(overridden.ok()) << overridden.status();
  EXPECT_EQ(overridden->proto().stop().episode_return().targets(0).score(), "policy:a.b");

  EXPECT_EQ(
      ErrorOf("stop: {episode_return: high}"),
      "run.yaml:1:24: stop.episode_return: got \"high\", expected a number or a mapping from sum, mean, policy:ID "
      "and agent:GLOB to numbers, or none; the default is none");
  EXPECT_EQ(ErrorOf("stop: {episode_return: {hunter: 3}}"),
            "run.yaml:1:25: stop.episode_return: got \"hunter\", expected sum, mean, policy:ID or agent:GLOB; write "
            "policy:hunter");
  EXPECT_EQ(ErrorOf("stop: {episode_return: {sum: high}}"),
            "run.yaml:1:30: stop.episode_return.sum: got \"high\", expected a number");
  EXPECT_EQ(ErrorOf("stop: {episode_return: {sum: .inf}}"),
            "run.yaml:1:30: stop.episode_return.sum: got \".inf\", expected a number");
  EXPECT_EQ(ErrorOf("stop: {episode_return: {}}"),
            "run.yaml:1:24: stop.episode_return: got 0 returns, expected 1 to 64");
  std::string many = "stop:\n  episode_return:\n";
  for (int i = 0; i < 65; ++i) many += absl::StrCat("    policy:p", i, ": 1\n");
  EXPECT_EQ(ErrorOf(many), "run.yaml:3:5: stop.episode_return: got 65 returns, expected 1 to 64");
}

TEST(RunConfigTest, CanonicalTextReadsBack) {
  const RunConfig config = Parse(R"(
env: {name: "weird name: #", args: {"1": 1.0, "true": "true", a: "null", b: "1e3", c: "x\ny\"\\", d: 1e300, e: -0.1, f: "", g: "nan", h: "ä", i: [[1.0, "2", "x, y"], {"a: b": "]", c: []}]}}
multi_agent:
  policies: {"0": {model: {critic_hidden_sizes: [1, 2, 3]}}, b: {model: {}}, c: null}
  policy_mapping: {"a*?": "0", "*": c}
algorithm: {lr: {initial: 0.1, final: 0.3333333333333333, env_steps: 7}, critic_lr: 1.0e-7, minibatch_size: 3}
stop: {env_steps: 0, episode_return: {policy:c: 1, "agent:*_0": -2.5, sum: 1e9}}
experiment: {wandb_kwargs: {project: p}, write_interval: -1, best_by: policy:c}
)");
  const std::string yaml = config.ToYaml();
  const RunConfig again = Parse(yaml);
  EXPECT_EQ(again.ToYaml(), yaml);
  EXPECT_EQ(again.proto().SerializeAsString(), config.proto().SerializeAsString());
  EXPECT_EQ(again, config);
  EXPECT_NE(again, RunConfig());
}

TEST(RunConfigTest, DefaultsCommentedReadBack) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(DefaultsYaml(), "defaults");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->proto().SerializeAsString(), RunConfig().proto().SerializeAsString());
  EXPECT_EQ(Parse(RunConfig().ToYaml()), RunConfig());
}

TEST(SchemaTest, EveryKeyIsDescribedAndItsDefaultIsInRange) {
  for (const std::string& key : AllKeys()) {
    EXPECT_NE(DefaultsMarkdown().find("| `" + key + "` |"), std::string::npos) << key;
  }
  EXPECT_EQ(DefaultsMarkdown().find("|  |"), std::string::npos) << "a cell is empty";
}

}  // namespace
}  // namespace troupe::config
