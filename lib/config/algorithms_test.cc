// Algorithms as the schema has them: their keys among those of `algorithm`, one of its own for a policy, what a trainer
// gets.

#include "lib/config/algorithms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/resolve_algorithms.h"
#include "lib/config/resolved_run.h"
#include "lib/config/schema.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/config/yaml_writer.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/algorithm_options.h"
#include "proto/troupe/v1/config.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using policy::OptionValue;
using policy::ScheduleValue;
using testing::StartsWith;

/// Every key of every algorithm, with the entry it is of.
std::vector<std::pair<const FieldDescriptor*, const FieldDescriptor*>> EveryOption() {
  std::vector<std::pair<const FieldDescriptor*, const FieldDescriptor*>> every;
  for (const FieldDescriptor* const options : AllOptions()) {
    for (int i = 0; i < options->message_type()->field_count(); ++i) {
      every.emplace_back(options, options->message_type()->field(i));
    }
  }
  return every;
}

TEST(AlgorithmSchemaTest, EveryNameStandsForAnEntryAndEveryEntryHasOne) {
  const EnumDescriptor& names = *v1::AlgorithmName_descriptor();
  std::set<const FieldDescriptor*> named;
  for (int i = 0; i < names.value_count(); ++i) {
    if (names.value(i)->number() == 0) continue;
    const v1::AlgorithmRule& rule = names.value(i)->options().GetExtension(v1::algorithm_rule);
    const FieldDescriptor* const entry = v1::AlgorithmConfig::descriptor()->FindFieldByName(rule.options());
    ASSERT_NE(entry, nullptr) << names.value(i)->name();
    ASSERT_TRUE(IsOptions(*entry)) << names.value(i)->name();
    named.insert(entry);
  }
  EXPECT_EQ(named.size(), AllOptions().size());
}

TEST(AlgorithmSchemaTest, EveryKeyHasADefaultAndHelpAndMeansTheSameInAllAlgorithms) {
  std::map<std::string, const FieldDescriptor*> first;
  const google::protobuf::Descriptor& section = *v1::AlgorithmConfig::descriptor();
  for (const auto& [options, field] : EveryOption()) {
    const std::string key = absl::StrCat(options->name(), ".", field->name());
    const v1::KeyRule& rule = RuleOf(*field);
    EXPECT_FALSE(rule.default_().empty()) << key;
    EXPECT_FALSE(rule.help().empty()) << key;
    EXPECT_NE(FormOf(*field), KeyForm::kSection) << key;
    EXPECT_EQ(section.FindFieldByName(field->name()), nullptr) << key << " is one of every algorithm, too";
    const auto [same, is_first] = first.emplace(field->name(), field);
    if (is_first) continue;
    const v1::KeyRule& other = RuleOf(*same->second);
    EXPECT_EQ(field->cpp_type(), same->second->cpp_type()) << key;
    EXPECT_EQ(field->message_type(), same->second->message_type()) << key;
    EXPECT_EQ(field->is_repeated(), same->second->is_repeated()) << key;
    EXPECT_EQ(rule.unset(), other.unset()) << key;
    const std::set<std::string> takes_all = {"a2c", "appo", "impala", "pqn"};  // or joint steps
    const bool tells_of_its_default = (field->name() == "minibatch_size" && takes_all.count(options->name()) > 0) ||
                                      (field->name() == "gae_lambda" && options->name() == "a2c");
    EXPECT_EQ(rule.help() == other.help(), !tells_of_its_default) << key;
    EXPECT_EQ(rule.has_min() ? rule.min() : -INFINITY, other.has_min() ? other.min() : -INFINITY) << key;
    EXPECT_EQ(rule.has_max() ? rule.max() : INFINITY, other.has_max() ? other.max() : INFINITY) << key;
    EXPECT_EQ(rule.above_min(), other.above_min()) << key;
    EXPECT_EQ(rule.starts_above_min(), other.starts_above_min()) << key;
  }
}

std::string ErrorOf(std::string_view yaml, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  return config.ok() ? "OK" : std::string(config.status().message());
}

RunConfig Parse(std::string_view yaml, const std::vector<std::string>& overrides = {}) {
  absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : RunConfig();
}

constexpr char kA2cKeys[] =
    "a2c has minibatch_size, minibatch_by, lr, critic_lr, adam_epsilon, adam_beta1, adam_beta2, gamma, discount_by, "
    "gae_lambda, use_gae, use_advnorm, use_value_norm, use_popart, use_policy_active_masks, use_value_active_masks, "
    "death_masking, "
    "value_loss_coeff, huber_delta, entropy_coeff, max_grad_norm, optimizer, weight_decay, momentum, "
    "rmsprop_alpha, rmsprop_epsilon, clip_grad_norm_by, time_limit_bootstrap, frozen_parameters";

TEST(AlgorithmKeysTest, AreThoseOfTheNameWhereverItStands) {
  for (const RunConfig& config :
       {Parse("algorithm: {name: a2c, gae_lambda: 0.8}"), Parse("algorithm: {gae_lambda: 0.8, name: a2c}"),
        Parse("algorithm: {gae_lambda: 0.8}", {"algorithm.name=a2c"}),
        Parse("algorithm: {name: mappo}", {"algorithm.gae_lambda=0.8", "algorithm.name=a2c"})}) {
    const v1::AlgorithmConfig& algorithm = config.proto().algorithm();
    ASSERT_TRUE(algorithm.has_a2c());
    EXPECT_EQ(algorithm.a2c().gae_lambda().initial(), 0.8);
    EXPECT_EQ(algorithm.a2c().lr().initial(), 7e-4) << "its own default";
    const RunConfig again = Parse(config.ToYaml());
    EXPECT_EQ(again, config);
    EXPECT_EQ(again.proto().SerializeAsString(), config.proto().SerializeAsString());
    EXPECT_NE(config.ToYaml().find("\n  gae_lambda: 0.8\n"), std::string::npos) << config.ToYaml();
    EXPECT_EQ(config.ToYaml().find("clip_param"), std::string::npos);
  }
  EXPECT_EQ(Parse("algorithm: {lr: 0.5, name: a2c}", {"algorithm.name=ippo"}).proto().algorithm().ppo().lr().initial(),
            0.5)
      << "what was said flat holds for the name that comes last";
}

TEST(AlgorithmKeysTest, OneOfAnotherAlgorithmIsRefusedWithWhatThereIs) {
  EXPECT_EQ(
      ErrorOf("algorithm:\n  clip_param: 0.2\n  name: a2c\n"),
      absl::StrCat("run.yaml:2:3: algorithm.clip_param is of ppo, ippo, mappo and appo, got algorithm.name: a2c; ",
                   kA2cKeys));
  EXPECT_THAT(ErrorOf("algorithm: {num_epochs: 3}", {"algorithm.name=a2c"}),
              StartsWith("run.yaml:1:13: algorithm.num_epochs is of ppo, ippo, mappo, pqn, custom and macustom, got "
                         "algorithm.name: a2c; "));
  EXPECT_THAT(
      ErrorOf("algorithm: {name: pqn, clip_param: 0.2}"),
      StartsWith("run.yaml:1:24: algorithm.clip_param is of ppo, ippo, mappo and appo, got algorithm.name: pqn; pqn "
                 "has minibatch_size, num_minibatches, "));
  EXPECT_THAT(ErrorOf("algorithm: {name: ppo, mixer: vdn}"),
              StartsWith("run.yaml:1:24: algorithm.mixer is of pqn, got algorithm.name: ppo; ppo has "));
  EXPECT_EQ(ErrorOf("algorithm: {name: a2c}", {"algorithm.target_kl=1"}),
            absl::StrCat("--set algorithm.target_kl=1: algorithm.target_kl is of ppo, ippo and mappo, got "
                         "algorithm.name: a2c; ",
                         kA2cKeys));
  EXPECT_THAT(
      ErrorOf("algorithm: {name: a2c}\nmulti_agent: {policies: {b: {algorithm: {clip_param: 1}}}}"),
      StartsWith("run.yaml:2:42: multi_agent.policies.b.algorithm.clip_param is of ppo, ippo, mappo and appo, got "
                 "algorithm.name: a2c; a2c has "));
  EXPECT_THAT(
      ErrorOf("multi_agent: {policies: {b: {algorithm: {clip_param: 1, name: ia2c}}}}"),
      StartsWith("run.yaml:1:42: multi_agent.policies.b.algorithm.clip_param is of ppo, ippo, mappo and appo, got "
                 "multi_agent.policies.b.algorithm.name: ia2c; ia2c has "));
}

TEST(AlgorithmKeysTest, MistakesAreFoundAmongThoseOfTheName) {
  EXPECT_EQ(ErrorOf("algorithm: {gama: 0.9, name: a2c}"),
            "run.yaml:1:13: unknown key \"algorithm.gama\"; the nearest is \"algorithm.gamma\"");
  EXPECT_EQ(ErrorOf("algorithm: {name: a2c, n_epochs: 3}"),
            "run.yaml:1:24: unknown key \"algorithm.n_epochs\" (XuanCe): here it is \"algorithm.num_epochs\" (of ppo, "
            "ippo, mappo, pqn, custom, macustom)");
  EXPECT_EQ(ErrorOf("algorithm: {name: a2c, clip_parm: 3}"),
            "run.yaml:1:24: unknown key \"algorithm.clip_parm\"; the nearest is \"algorithm.clip_param\" (of ppo, "
            "ippo, mappo, appo)");
  EXPECT_THAT(ErrorOf("algorithm: {ppo: {lr: 1}}"), StartsWith("run.yaml:1:13: unknown key \"algorithm.ppo\"; "))
      << "an entry is no key";
  EXPECT_EQ(ErrorOf("algorithm: {name: a2c, lr: -1}"),
            "run.yaml:1:28: algorithm.lr: got -1, expected a number in [0, 1000] or a schedule ({initial, "
            "final, env_steps}); the "
            "default is 7.0e-4");
  EXPECT_EQ(ErrorOf("algorithm: {mixer_lr: 1, name: qmix}"),
            "run.yaml:1:32: algorithm.name: got \"qmix\", expected one of ppo, ippo, mappo, a2c, ia2c, maa2c, pqn, "
            "impala, appo, custom, macustom; qmix is not implemented")
      << "before keys of which nobody knows";
  EXPECT_EQ(ErrorOf("algorithm: [a]\n", {"algorithm.name=a2c"}).find("num_epochs"), std::string::npos);
  EXPECT_EQ(ErrorOf("lr: 3"), "run.yaml:1:1: unknown key \"lr\"; it belongs in \"algorithm.lr\"");
}

TEST(AlgorithmKeysTest, NamesOfPeersAreKnown) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"A2C", "a2c"}, {"MAA2C_Agents", "maa2c"}, {"IA2C", "ia2c"}, {"MAPPO_Clip", "mappo"}};
  for (const auto& [peers, ours] : cases) {
    const std::string error = ErrorOf("algorithm: {name: " + peers + "}");
    EXPECT_EQ(error.substr(error.rfind("; ")), "; write " + ours);
  }
}

using AlgorithmsTest = ResolveFixture;

TEST_F(AlgorithmsTest, WhatATrainerGetsIsWhatTheSchemaSays) {
  const ResolvedRun ppo = Resolve("env: {name: team}\nalgorithm: {lr: {initial: 1, final: 0, env_steps: 9}}");
  ASSERT_EQ(ppo.algorithms.size(), 1u);
  EXPECT_EQ(ppo.algorithms[0].name, "ppo");
  EXPECT_EQ(Option<ScheduleValue>(ppo, 0, "lr"), (ScheduleValue{1, 0, 9}));
  EXPECT_EQ(ppo.algorithms[0].options.count("critic_lr"), 0u) << "auto";
  EXPECT_EQ(ppo.algorithms[0].options.count("num_minibatches"), 0u);
  EXPECT_EQ(MinibatchSize(ppo, 0), 375) << "auto: a 32nd of 12000 rows";
  EXPECT_EQ(Option<std::string>(ppo, 0, "minibatch_by"), "env_steps") << "auto";
  EXPECT_EQ(Option<double>(ppo, 0, "entropy_coeff"), 0.01) << "auto";
  EXPECT_EQ(Option<int64_t>(ppo, 0, "num_epochs"), 10);
  EXPECT_EQ(Option<bool>(ppo, 0, "use_advnorm"), true);
  EXPECT_EQ(Option<double>(ppo, 0, "gae_lambda"), 0.95);
  EXPECT_EQ(ppo.algorithm, "mappo");

  const ResolvedRun a2c = Resolve("env: {name: team}\nalgorithm: {name: ia2c}");
  EXPECT_EQ(a2c.algorithms[0].name, "a2c");
  EXPECT_EQ(a2c.algorithm, "ia2c");
  EXPECT_EQ(Option<double>(a2c, 0, "lr"), 7e-4);
  EXPECT_EQ(Option<double>(a2c, 0, "gae_lambda"), 1.0);
  EXPECT_EQ(Option<bool>(a2c, 0, "use_advnorm"), false);
  EXPECT_EQ(Option<double>(a2c, 0, "value_loss_coeff"), 0.5);
  EXPECT_EQ(a2c.algorithms[0].options.count("minibatch_size"), 0u) << "the whole batch";
  EXPECT_EQ(a2c.algorithms[0].options.count("clip_param"), 0u);
  const ResolvedRun custom =
      Resolve("env: {name: team}\nalgorithm: {name: custom, loss: 'sha256:" + std::string(64, 'a') + "'}");
  // Every key that has a value of its own is there.
  for (const auto& [options, field] : EveryOption()) {
    const std::string name = options->name();
    const ResolvedRun run =
        name == "custom" ? custom : Resolve(absl::StrCat("env: {name: team}\nalgorithm: {name: ", name, "}"));
    if (!RuleOf(*field).unset().empty()) continue;
    EXPECT_EQ(run.algorithms[0].options.count(field->name()), 1u) << options->name() << "." << field->name();
  }
}

TEST_F(AlgorithmsTest, WhatIsAutoFollowsFromThePolicy) {
  const auto run = [&](const std::string& yaml) { return Resolve(yaml); };
  const ResolvedRun numbers = run("env: {name: continuous}\nalgorithm: {name: ppo, train_batch_size: 2048}");
  EXPECT_EQ(MinibatchSize(numbers, 0), 64);
  EXPECT_EQ(Option<double>(numbers, 0, "entropy_coeff"), 0);
  EXPECT_EQ(
      Option<double>(run("env: {name: continuous}\nalgorithm: {name: a2c, entropy_coeff: 0.1}"), 0, "entropy_coeff"),
      0.1);
  EXPECT_EQ(MinibatchSize(run("env: {name: team}\nnum_envs: 5\nalgorithm: {name: ippo, train_batch_size: 10}"), 0), 30);
  // Sequences of a policy that remembers stay whole: 16 of them.
  const ResolvedRun gru = run("env: {name: team}\nmodel: {actor_core: gru, max_seq_len: 25}");
  EXPECT_EQ(MinibatchSize(gru, 0), 400);
  EXPECT_EQ(Option<std::string>(gru, 0, "minibatch_by"), "rows");
  // Continuous control observes numbers without bounds.
  const space::Space any = *space::Space::Box(-INFINITY, INFINITY, {2});
  const space::Space pixels = *space::Space::Box(0, 255, {16, 16, 3}, tensor::DType::kUint8);
  Add(Spec("sizes", {Agent("a", any, any)}));
  Add(Spec("cards", {Agent("a", any, *space::Space::Discrete(2))}));
  Add(Spec("camera", {Agent("a", *space::Space::Dict({{"camera", pixels}, {"speed", any}}), any)}));
  const auto normalizes = [&](const std::string& yaml) { return run(yaml).policies[0].normalize_observations; };
  EXPECT_TRUE(normalizes("env: {name: sizes}\nalgorithm: {name: ppo}"));
  EXPECT_FALSE(normalizes("env: {name: sizes}\nalgorithm: {name: ppo, normalize_observations: false}"));
  EXPECT_FALSE(normalizes("env: {name: camera}\nalgorithm: {name: ppo}"));
  EXPECT_FALSE(normalizes("env: {name: cards}\nalgorithm: {name: ppo}"));
  EXPECT_TRUE(normalizes("env: {name: cards}\nalgorithm: {name: ppo, normalize_observations: true}"));
  EXPECT_FALSE(normalizes("env: {name: continuous}\nalgorithm: {name: ppo}")) << "it has bounds";
}

// A folder of lib/training is an algorithm, and each has its entry.
TEST(AlgorithmSchemaTest, EntriesAreTheAlgorithmsThatThereAre) {
  std::vector<std::string> entries;
  for (const FieldDescriptor* const options : AllOptions()) entries.push_back(options->name());
  std::sort(entries.begin(), entries.end());
  EXPECT_EQ(entries, training::AlgorithmNames());
}

TEST_F(AlgorithmsTest, MinibatchesOfA2cAreOnDemand) {
  EXPECT_EQ(MinibatchSize(Resolve("env: {name: team}\nalgorithm: {name: a2c, minibatch_size: 50}"), 0), 50);
  EXPECT_EQ(
      ErrorOf("env: {name: team}\nalgorithm: {name: a2c, minibatch_size: 20000}"),
      "run.yaml:2:40: algorithm.minibatch_size: got 20000, expected at most the 12000 rows that a policy has in a "
      "batch of 4000 env steps; lower it, or raise algorithm.train_batch_size");
  EXPECT_EQ(ErrorOf("env: {name: team}\nalgorithm: {name: a2c, critic_lr: {initial: 0, final: 1, env_steps: 2}}"),
            "run.yaml:2:35: algorithm.critic_lr: got 0 to begin with, expected a number > 0 or auto");
}

TEST_F(AlgorithmsTest, WithoutACriticKeysOfCentralizedOnesAreRefused) {
  EXPECT_EQ(ErrorOf("env: {name: state}\nalgorithm: {name: pqn, use_global_state: true}"),
            "run.yaml:2:42: algorithm.use_global_state: got true, but pqn has no centralized critic; expected false");
  EXPECT_EQ(ErrorOf("env: {name: state}\nalgorithm: {name: pqn, normalize_state: true}"),
            "run.yaml:2:41: algorithm.normalize_state: got true, but pqn has no centralized critic; expected false");
  EXPECT_EQ(
      ErrorOf("env: {name: continuous}\nalgorithm: {name: pqn}"),
      "run.yaml:2:19: algorithm.name: got pqn, but policy \"default_policy\" has continuous actions (a Box), which "
      "have no greatest value; expected ippo or mappo");
}

TEST_F(AlgorithmsTest, TheNameSaysWhatTheCriticSees) {
  const auto critic = [this](const std::string& name) {
    return Resolve("env: {name: state}\nalgorithm: {name: " + name + "}").policies[0].critic_input();
  };
  for (const char* name : {"ppo", "ippo", "a2c", "ia2c"}) EXPECT_EQ(critic(name), policy::NetworkInput::kObservation);
  for (const char* name : {"mappo", "maa2c"}) EXPECT_EQ(critic(name), policy::NetworkInput::kJointObservation);
  EXPECT_EQ(Resolve("env: {name: state}\nalgorithm: {name: maa2c, use_global_state: true}").policies[0].critic_input(),
            policy::NetworkInput::kState);
  EXPECT_EQ(ErrorOf("env: {name: state}\nalgorithm: {name: ia2c, use_global_state: true}"),
            "run.yaml:2:43: algorithm.use_global_state: got true, but the critic of ia2c sees its agent's own "
            "observation; expected algorithm.name: maa2c");
}

constexpr char kTwo[] = R"(
env: {name: mixed}
algorithm: {name: mappo, lr: 1.0e-3, gamma: 0.9, minibatch_size: 100, normalize_observations: true}
multi_agent:
  policies: {wolves: {}, sheep: {algorithm: {name: a2c, gae_lambda: 0.7}}}
  policy_mapping: {"wolf_*": wolves, "*": sheep}
)";

TEST_F(AlgorithmsTest, APolicyHasOneOfItsOwn) {
  const ResolvedRun run = Resolve(kTwo);
  EXPECT_EQ(run.algorithms[0].name, "ppo");
  EXPECT_EQ(run.algorithms[1].name, "a2c");
  EXPECT_EQ(run.policies[0].critic_input(), policy::NetworkInput::kJointObservation);
  EXPECT_EQ(run.policies[1].critic_input(), policy::NetworkInput::kObservation);
  EXPECT_EQ(FirstLr(run, 0), 1e-3);
  // What the run says beside mappo is not for a2c, which begins with its own defaults.
  EXPECT_EQ(FirstLr(run, 1), 7e-4);
  EXPECT_EQ(Option<double>(run, 1, "gamma"), 0.99);
  EXPECT_EQ(run.algorithms[1].options.count("minibatch_size"), 0u);
  EXPECT_EQ(Option<double>(run, 1, "gae_lambda"), 0.7);
  // What every algorithm has is.
  EXPECT_TRUE(run.policies[1].normalize_observations);
  EXPECT_EQ(*RunConfig::FromYaml(run.config.ToYaml(), "again.yaml"), run.config);
  EXPECT_NE(run.config.ToYaml().find("sheep:\n      algorithm:\n        name: a2c\n        gae_lambda: 0.7\n"),
            std::string::npos)
      << run.config.ToYaml();
  // Workers make the same networks of what they are told.
  const absl::StatusOr<RunConfig> told = RunConfig::FromYaml(WelcomeYaml(run.config), "welcome");
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(WelcomeYaml(run.config).find("gae_lambda"), std::string::npos) << "the learner's alone";
  const absl::StatusOr<ResolvedRun> worker = ResolveRun(*told, registry_);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->schema.WorkerHash(), run.schema.WorkerHash());
  EXPECT_EQ(worker->policies[1].critic_input(), run.policies[1].critic_input());
}

TEST_F(AlgorithmsTest, NamesOfOneAlgorithmShareWhatIsSaid) {
  const ResolvedRun run = Resolve(kTwo, {"multi_agent.policies.sheep.algorithm.name=ippo"});
  EXPECT_EQ(run.algorithms[1].name, "ppo");
  EXPECT_EQ(FirstLr(run, 1), 1e-3);
  EXPECT_EQ(MinibatchSize(run, 1), 100);
  EXPECT_EQ(Option<double>(run, 1, "gae_lambda"), 0.7);
  EXPECT_EQ(run.policies[1].critic_input(), policy::NetworkInput::kObservation);
}

TEST_F(AlgorithmsTest, AnAgentsNameComesBeforeThePolicysAndTheRuns) {
  const ResolvedRun named =
      Resolve(absl::StrCat(kTwo, "  agents: {sheep: {algorithm: {name: ippo, clip_param: 0.4}}, \"*\": {}}"));
  EXPECT_EQ(named.algorithms[1].name, "ppo");
  EXPECT_EQ(Option<double>(named, 1, "clip_param"), 0.4);
  EXPECT_EQ(FirstLr(named, 1), 1e-3) << "the run's, which is of mappo";
  EXPECT_EQ(Option<double>(named, 1, "gae_lambda"), 0.95) << "0.7 was said beside a2c";
  // Without a name its keys are those of the policy's.
  const ResolvedRun unnamed = Resolve(
      absl::StrCat(kTwo, "  agents: {sheep: {algorithm: {lr: {initial: 1, final: 0.5, env_steps: 3}}}, \"*\": {}}"));
  EXPECT_EQ(unnamed.algorithms[1].name, "a2c");
  EXPECT_EQ(Option<ScheduleValue>(unnamed, 1, "lr"), (ScheduleValue{1, 0.5, 3}));
  EXPECT_EQ(Option<double>(unnamed, 1, "gae_lambda"), 0.7);
  EXPECT_EQ(*RunConfig::FromYaml(unnamed.config.ToYaml(), "again.yaml"), unnamed.config);
  EXPECT_EQ(
      ErrorOf(absl::StrCat(kTwo, "  agents: {sheep: {algorithm: {clip_param: 0.4}}, \"*\": {}}")),
      absl::StrCat("run.yaml:7:44: multi_agent.agents.sheep.algorithm.clip_param is of ppo, ippo, mappo and appo, got "
                   "multi_agent.policies.sheep.algorithm.name: a2c; ",
                   kA2cKeys));
  // Read as the run's algorithm has no such key; the policy's has.
  const ResolvedRun turned =
      Resolve(absl::StrCat(kTwo, "  agents: {\"wolf_*\": {}, \"*\": {algorithm: {clip_param: 0.4}}}"),
              {"algorithm={name: a2c, lr: 0.5}", "algorithm.minibatch_size=7",
               "multi_agent.policies.sheep.algorithm.name=ppo"});
  EXPECT_EQ(turned.algorithms[0].name, "a2c");
  EXPECT_EQ(turned.algorithms[1].name, "ppo");
  EXPECT_EQ(Option<double>(turned, 1, "clip_param"), 0.4);
}

TEST_F(AlgorithmsTest, ErrorsPointToWhoGaveTheValue) {
  EXPECT_EQ(ErrorOf(kTwo, {"multi_agent.policies.sheep.algorithm.minibatch_size=5000"}),
            "--set multi_agent.policies.sheep.algorithm.minibatch_size=5000: "
            "multi_agent.policies.sheep.algorithm.minibatch_size: got 5000, expected at most the 4000 rows that a "
            "policy has in a batch of 4000 env steps; lower it, or raise algorithm.train_batch_size");
  EXPECT_EQ(ErrorOf(kTwo, {"multi_agent.policies.sheep.algorithm.use_global_state=true"}),
            "--set multi_agent.policies.sheep.algorithm.use_global_state=true: "
            "multi_agent.policies.sheep.algorithm.use_global_state: got true, but the critic of a2c sees its agent's "
            "own observation; expected algorithm.name: maa2c");
}

TEST_F(AlgorithmsTest, APolicyMayBeListedAnew) {
  // The list takes the overrides back, and with them the name that the last ones were read by.
  const ResolvedRun run =
      Resolve(kTwo, {"multi_agent.policies=[wolves, sheep]", "multi_agent.policies.sheep.algorithm.gae_lambda=0.6"});
  EXPECT_EQ(run.algorithms[1].name, "ppo");
  EXPECT_EQ(Option<double>(run, 1, "gae_lambda"), 0.6);
  EXPECT_EQ(FirstLr(run, 1), 1e-3);
}

TEST_F(AlgorithmsTest, APolicyTrainsWithSettingsOfItsOwn) {
  const ResolvedRun run = Resolve(R"(
env: {name: mixed}
algorithm: {name: mappo, lr: 0.001, train_batch_size: 400}
multi_agent:
  policies: {wolf: {}, sheep: {algorithm: {name: maa2c, lr: 0.002}}}
  policy_mapping: {"wolf_*": wolf, sheep: sheep}
  agents: {sheep: {algorithm: {gamma: 0.9}}, "*": {}}
)");
  const auto set = [&run](size_t slot, const std::vector<std::string>& settings) {
    return AlgorithmWith(run, slot, settings);
  };
  EXPECT_EQ(*set(0, {}), run.algorithms[0]);
  EXPECT_EQ(*set(1, {}), run.algorithms[1]);
  const size_t kSlots = 2;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    policy::AlgorithmSpec expected = run.algorithms[slot];
    expected.options["lr"] = 0.5;
    expected.options["gamma"] = 0.25;
    const auto got = set(slot, {"algorithm.lr=0.5", "algorithm.gamma=0.25"});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, expected) << "nothing else changes: neither what the agent says, nor the size of minibatches";
  }
  // The sheep's own rows count, and the wolf's clip is none of maa2c's.
  EXPECT_EQ(std::get<int64_t>(set(1, {"algorithm.minibatch_size=400"})->options.at("minibatch_size")), 400);
  EXPECT_EQ(std::get<int64_t>(set(0, {"algorithm.num_minibatches=4"})->options.at("minibatch_size")), 200);
  EXPECT_EQ(std::get<ScheduleValue>(set(0, {"algorithm.lr=[[0, 1], [9, 0]]"})->options.at("lr")).points.size(), 2u);
  const auto refused = [&](size_t slot, const std::string& setting, const std::string& begins) {
    const absl::Status status = set(slot, {setting}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << setting << ": " << status;
    EXPECT_THAT(std::string(status.message()), StartsWith(begins));
  };
  refused(1, "algorithm.minibatch_size=401", "algorithm.minibatch_size: got 401, expected at most");
  refused(1, "algorithm.clip_param=0.1",
          "algorithm.clip_param: cannot change while the run trains, expected an option of a2c");
  refused(0, "algorithm.entropy_coef=0",
          "algorithm.entropy_coef: cannot change while the run trains, expected an option of ppo, as "
          "algorithm.lr; the nearest is algorithm.entropy_coeff");
  refused(0, "algorithm.train_batch_size=9", "algorithm.train_batch_size: cannot change");
  refused(0, "algorithm.name=ippo", "algorithm.name: cannot change");
  refused(0, "model.activation=relu", "model.activation: cannot change");
  refused(0, "lr=1", "lr: cannot change");
  refused(0, "algorithm.lr=-1", "algorithm.lr: got -1, expected");
  refused(0, "algorithm.lr=soon", "algorithm.lr: got");
  refused(0, "algorithm.minibatch_size=auto", "algorithm.minibatch_size: got auto, expected a value");
  const auto gamma = set(0, {"algorithm.gamma={initial: 0.9, final: 0.99, env_steps: 9}"});
  EXPECT_EQ(std::get<ScheduleValue>(gamma->options.at("gamma")).final, 0.99);
  refused(0, "algorithm.discount_by=env_step", "algorithm.gamma: got another discount per env step");
}

TEST_F(AlgorithmsTest, AResumedRunKeepsItsAlgorithm) {
  const RunConfig started = Parse(kTwo);
  // As an older Troupe wrote it: in another order, and without keys that came later.
  std::string old_text = started.ToYaml();
  for (const std::string line : {"  adam_beta1: 0.9\n", "  max_policy_lag: auto\n"}) {
    const size_t at = old_text.find(line);
    ASSERT_NE(at, std::string::npos);
    old_text.erase(at, line.size());
    if (line.find("lag") != std::string::npos) old_text.insert(old_text.find("  lr: "), line);
  }
  const absl::StatusOr<RunConfig> resumed = ResumeConfig(Parse(old_text), started);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(*resumed, started);
  const absl::Status other = ResumeConfig(started, Parse("env: {name: mixed}\nalgorithm: {name: a2c}", {})).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  const RunConfig plain = Parse("env: {name: team}");
  EXPECT_EQ(ResumeConfig(plain, Parse("env: {name: team}\nalgorithm: {name: maa2c}")).status().message().substr(0, 81),
            "run.yaml:2:19: algorithm.name: got maa2c, but the run was started with mappo; a r");
  EXPECT_EQ(
      ResumeConfig(plain, Parse("env: {name: team}\nalgorithm: {clip_param: 0.5}")).status().message().substr(0, 86),
      "run.yaml:2:25: algorithm.clip_param: got 0.5, but the run was started with 0.2; a resu");
}

// The run's own file has the keys of its algorithm, which would be another's.
TEST_F(AlgorithmsTest, AnotherAlgorithmOfAResumeIsRefusedBeforeItsKeysAre) {
  const RunConfig started = Parse("env: {name: team}");
  EXPECT_EQ(CheckAlgorithmStays(started, {"algorithm.lr=1", "algorithm.name=mappo"}), absl::OkStatus());
  const absl::Status refused = CheckAlgorithmStays(started, {"algorithm.name=mappo", "algorithm.name=a2c"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message().substr(0, 114),
            "--set algorithm.name=a2c: algorithm.name: got a2c, but the run was started with mappo; a resumed run may "
            "change st");
}

TEST(AlgorithmTextTest, PagesHaveTheKeysOfEach) {
  const std::string page = DefaultsMarkdown();
  EXPECT_NE(page.find("\n### algorithm.name: ppo, ippo, mappo\n"), std::string::npos) << page;
  const size_t a2c = page.find("\n### algorithm.name: a2c, ia2c, maa2c\n");
  ASSERT_NE(a2c, std::string::npos);
  EXPECT_NE(page.find("| `algorithm.lr` | `0.0007` |", a2c), std::string::npos);
  EXPECT_GT(page.find("clip_param", a2c), page.find("\n### algorithm.name: appo\n", a2c)) << "the next that has it";
  EXPECT_NE(DefaultsYaml().find("# With name: a2c, ia2c, maa2c"), std::string::npos) << DefaultsYaml();
}

}  // namespace
}  // namespace troupe::config
