#include "lib/config/permits.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/exit_code.h"
#include "lib/config/schema.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_spec.h"
#include "proto/troupe/v1/config.pb.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

RunConfig ConfigOf(const std::string& yaml) {
  absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "the learner's configuration");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : RunConfig();
}

/// What a worker with this file, and these flags, says to a learner that asks for `asked`.
absl::StatusOr<RunConfig> Admit(const std::string& own, const std::string& asked,
                                const std::vector<std::string>& allowed = {}) {
  absl::StatusOr<Permits> permits = Permits::Make(own.empty() ? RunConfig() : ConfigOf(own), allowed);
  if (!permits.ok()) return permits.status();
  return permits->Admit(ConfigOf(asked));
}

void ExpectRefused(const absl::Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(base::ExitCodeOf(status), base::ExitCode::kRefused);
  EXPECT_TRUE(absl::StrContains(status.message(), words)) << status << "\nexpected: " << words;
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << "more than a line";
}

TEST(PermitsTest, WhatIsNativeNeedsNoPermission) {
  for (const char* asked :
       {"env: {name: mpe/simple_spread, args: {N: 4}}", "env: {name: matrix_game, args: {kind: zero_sum}}",
        "{env: {name: cartpole, frame_stack: 3, groups: {all: [agent_0]}}, multi_agent: {observation_fn: "
        "joint_observation, policies: {a: {class: random}, b: {class: 'scripted:rock'}, c: {class: "
        "'checkpoint:runs/x'}}, policy_mapping: {'*': {function: round_robin}}}}"}) {
    EXPECT_TRUE(Admit("", asked).ok()) << asked;
  }
}

/// The texts below a field, as paths of the schema.
void AddTexts(const google::protobuf::FieldDescriptor& field, const std::string& path, std::set<std::string>* texts) {
  if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) texts->insert(path);
  if (field.message_type() == nullptr || field.message_type() == v1::Argument::descriptor()) return;
  for (int i = 0; i < field.message_type()->field_count(); ++i) {
    AddTexts(*field.message_type()->field(i), absl::StrCat(path, ".", field.message_type()->field(i)->name()), texts);
  }
}

// A text that names code and is no statement would be run by every worker for any learner. Whoever adds one decides.
TEST(PermitsTest, EveryTextThatAWorkerIsToldIsAStatementOrNoCode) {
  const std::map<std::string, std::string> code = {
      {"env.name", "env: {name: 'python:mine:x'}"},
      {"env.plugin", "env: {name: x, plugin: /mine.so}"},
      {"model.torchscript", "{env: {name: x}, model: {torchscript: /mine.pt}}"},
      {"model.critic_torchscript", "{env: {name: x}, model: {critic_torchscript: /mine.pt}}"},
      {"multi_agent.agents.model.torchscript", "multi_agent: {agents: {a: {model: {torchscript: /mine.pt}}}}"},
      {"multi_agent.agents.model.critic_torchscript",
       "multi_agent: {agents: {a: {model: {critic_torchscript: /mine.pt}}}}"},
      {"multi_agent.policies.model.torchscript", "multi_agent: {policies: {a: {model: {torchscript: /mine.pt}}}}"},
      {"multi_agent.policies.model.critic_torchscript",
       "multi_agent: {policies: {a: {model: {critic_torchscript: /mine.pt}}}}"},
      {"algorithm.loss", "{env: {name: x}, algorithm: {name: custom, loss: /mine.pt}}"},
      {"multi_agent.agents.algorithm.custom.loss",
       "multi_agent: {agents: {a: {algorithm: {name: custom, loss: /mine.pt}}}}"},
      {"multi_agent.policies.algorithm.custom.loss",
       "multi_agent: {policies: {a: {algorithm: {name: custom, loss: /mine.pt}}}}"},
      {"multi_agent.observation_fn", "multi_agent: {observation_fn: 'python:mine:x'}"},
      {"multi_agent.policies.class", "multi_agent: {policies: {a: {class: 'python:mine:x'}}}"},
      {"multi_agent.policy_mapping.rules.function",
       "multi_agent: {policy_mapping: {'*': {function: 'python:mine:x'}}}"}};
  // Names of agents, policies, parameters, leaves and spaces, keys of an environment's infos, functions that are looked
  // up in a table.
  const std::set<std::string> no_code = {"env.action_mask_key",
                                         "env.external.state_space",
                                         "env.groups.act_space",
                                         "env.groups.agents",
                                         "env.groups.name",
                                         "env.groups.obs_space",
                                         "env.state_key",
                                         "model.leaf_encoders.encoders.leaf",
                                         "multi_agent.agents.agents",
                                         "multi_agent.agents.algorithm.a2c.frozen_parameters.values",
                                         "multi_agent.agents.algorithm.appo.frozen_parameters.values",
                                         "multi_agent.agents.algorithm.impala.frozen_parameters.values",
                                         "multi_agent.agents.algorithm.custom.frozen_parameters.values",
                                         "multi_agent.agents.algorithm.ppo.frozen_parameters.values",
                                         "multi_agent.agents.model.leaf_encoders.encoders.leaf",
                                         "multi_agent.policies.action_space",
                                         "multi_agent.policies.algorithm.a2c.frozen_parameters.values",
                                         "multi_agent.policies.algorithm.appo.frozen_parameters.values",
                                         "multi_agent.policies.algorithm.impala.frozen_parameters.values",
                                         "multi_agent.policies.algorithm.custom.frozen_parameters.values",
                                         "multi_agent.policies.algorithm.ppo.frozen_parameters.values",
                                         "multi_agent.policies.id",
                                         "multi_agent.policies.load",
                                         "multi_agent.policies.model.leaf_encoders.encoders.leaf",
                                         "multi_agent.policies.observation_space",
                                         "multi_agent.policy_mapping.rules.agents",
                                         "multi_agent.policy_mapping.rules.policies.policy"};
  std::set<std::string> texts;
  for (const std::string& key : WorkerKeys()) {
    const std::vector<std::string> parts = absl::StrSplit(key, '.');
    const google::protobuf::Descriptor* section = v1::RunConfig::descriptor();
    for (const std::string& part : parts) {
      const std::vector<const google::protobuf::FieldDescriptor*> fields = FieldsOf(*section, part);
      ASSERT_FALSE(fields.empty()) << key;
      if (&part == &parts.back()) {
        for (const google::protobuf::FieldDescriptor* const field : fields) AddTexts(*field, key, &texts);
      }
      section = fields[0]->message_type();
    }
  }
  for (const std::string& text : texts) {
    EXPECT_NE(code.count(text), no_code.count(text)) << text << " is in both lists, or in none";
  }
  EXPECT_EQ(texts.size(), code.size() + no_code.size()) << "a list names a text that there is not";
  for (const auto& [text, asked] : code) {
    EXPECT_EQ(Admit("", asked).status().code(), absl::StatusCode::kPermissionDenied) << text;
  }
}

TEST(PermitsTest, EveryStatementOfTheLearnersMustStandInTheWorkersFile) {
  const std::string env = "env: {name: 'python:mine.env:make'}";
  const std::string plugin = "env: {name: mine, plugin: /learner/libmine.so}";
  const std::string policy = "multi_agent: {policies: {a: {class: 'python:mine:act'}}}";
  const std::string mapping = "multi_agent: {policy_mapping: {'*': {function: 'python:mine:choose'}}}";
  ExpectRefused(
      Admit("", env).status(),
      "the learner asks for the environment python:mine.env:make, which this worker does not permit; to permit "
      "it start it with --allow-python python:mine.env:make or --config FILE");
  ExpectRefused(Admit("", plugin).status(), "the environment mine of the plug-in libmine.so");
  ExpectRefused(Admit("", policy).status(), "the policy class python:mine:act");
  ExpectRefused(Admit("", mapping).status(), "the mapping function python:mine:choose");
  const std::string callback = "callbacks: ['python:mine:Watch']";
  const std::string observation = "multi_agent: {observation_fn: 'python:mine:observe'}";
  ExpectRefused(Admit("", callback).status(), "the callback python:mine:Watch");
  ExpectRefused(Admit("", observation).status(), "the observation function python:mine:observe");
  EXPECT_TRUE(Admit("", callback, {"python:mine:Watch"}).ok());
  EXPECT_TRUE(Admit("", observation, {"python:mine:observe"}).ok());
  for (const std::string& asked : {env, plugin, policy, mapping, callback, observation}) {
    EXPECT_TRUE(Admit(asked, asked).ok()) << asked;
    // The file of another run permits nothing of this one.
    ExpectRefused(Admit("env: {name: 'python:mine.env:other'}", asked).status(), "does not permit");
  }
  // What stands there as one thing is not permitted as another: gymnasium:make as a mapping function imports what
  // agents are called.
  ExpectRefused(Admit(env, "multi_agent: {policy_mapping: {'*': {function: 'python:mine.env:make'}}}").status(),
                "the mapping function python:mine.env:make");
  ExpectRefused(Admit(policy, "env: {name: 'python:mine:act'}").status(), "the environment python:mine:act");
  ExpectRefused(Admit(policy, "callbacks: ['python:mine:act']").status(), "the callback python:mine:act");
}

TEST(PermitsTest, AFlagPermitsOneExactName) {
  const std::string asked = "env: {name: 'python:mine:make', args: {n: 3, deep: [1, [true, null]]}}";
  EXPECT_TRUE(Admit("", asked, {"python:mine:make"}).ok());
  for (const char* other :
       {"python:mine:mak", "python:mine:make2", "python:mine", "python:Mine:make", "python:mine:"}) {
    ExpectRefused(Admit("", asked, {other}).status(), "python:mine:make");
  }
  const std::string dotted = "env: {name: 'python:mpe2._mpe_utils.simple_env:os.system'}";
  ExpectRefused(Admit("", dotted, {"python:mpe2._mpe_utils.simple_env"}).status(), "simple_env:os.system");
  for (const char* bad : {"mine:make", "python:", "python:mpe2.*", "python:mine:mak?", ""}) {
    EXPECT_EQ(Admit("", asked, {bad}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  // Text in the arguments has no file that it could stand in.
  ExpectRefused(Admit("", "env: {name: 'python:mine:make', args: {path: /etc}}", {"python:mine:make"}).status(),
                "env.args.path: /etc");
  const std::vector<std::string> many(100, "python:a");
  EXPECT_TRUE(Admit("", asked, {many[0], many[1], "python:mine:make"}).ok()) << "said twice";
  std::vector<std::string> too_many;
  for (int i = 0; i < 90; ++i) too_many.push_back(absl::StrCat("python:m", i));
  EXPECT_EQ(Admit("", asked, too_many).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PermitsTest, TextInArgumentsMustBeTheWorkersAndNumbersMayDiffer) {
  const auto config = [](const std::string& args) {
    return absl::StrCat("env: {name: 'python:gymnasium:make', args: ", args, "}");
  };
  const std::string own = config("{id: 'CartPole-v1', n: 3, deep: {mode: a, size: [1, 2]}, list: [x, 1, y]}");
  for (const char* same :
       {"{id: 'CartPole-v1', n: 4.5, deep: {mode: a, size: [7]}, list: [x, 2, y]}",
        "{id: 'CartPole-v1', deep: {mode: a, size: null}, list: [x, true, y], more: 1, most: [2]}"}) {
    EXPECT_TRUE(Admit(own, config(same)).ok()) << same;
  }
  const auto other = [](const char* id, const char* deep, const char* list, const char* more) {
    return absl::StrCat("{id: ", id, ", n: 3, deep: ", deep, ", list: ", list, more, "}");
  };
  const char *const id = "CartPole-v1", *const deep = "{mode: a, size: [1, 2]}", *const list = "[x, 1, y]";
  EXPECT_TRUE(Admit(own, config(other(id, deep, list, ""))).ok());
  ExpectRefused(Admit(own, config(other("'stranger:X-v0'", deep, list, ""))).status(), "env.args.id: stranger:X-v0");
  ExpectRefused(Admit(own, config(other("7", deep, list, ""))).status(), "env.args.id: 7");
  ExpectRefused(Admit(own, config(other(id, "{mode: b, size: [1, 2]}", list, ""))).status(), "env.args.deep");
  ExpectRefused(Admit(own, config(other(id, "{mode: a, size: [stranger]}", list, ""))).status(), "env.args.deep");
  ExpectRefused(Admit(own, config(other(id, "{mode: a, sizes: [1]}", list, ""))).status(), "env.args.deep");
  ExpectRefused(Admit(own, config(other(id, deep, "[x, 1, y, z]", ""))).status(), "env.args.list");
  ExpectRefused(Admit(own, config(other(id, deep, "[y, 1, x]", ""))).status(), "env.args.list");
  ExpectRefused(Admit(own, config(other(id, deep, list, ", entry_point: 'os:system'"))).status(),
                "env.args.entry_point: os:system");
  EXPECT_TRUE(Admit(own, config(other(id, "{size: [3], mode: a}", list, ""))).ok()) << "an order is no text";
  ExpectRefused(Admit(own, config("{n: 3}")).status(), "env.args.id: nothing");
  // Arguments of an environment in a plug-in are text to code that nobody of ours wrote.
  const std::string plugin = "env: {name: mine, plugin: libmine.so, args: {map: a}}";
  EXPECT_TRUE(Admit(plugin, plugin).ok());
  ExpectRefused(Admit(plugin, "env: {name: mine, plugin: libmine.so, args: {map: ../b}}").status(), "env.args.map");
}

TEST(PermitsTest, InterpreterModulePathAndPlugInComeFromTheWorkersSideAlone) {
  const auto admitted = Admit("env: {name: 'python:mine', python: {interpreter: venv, path: /own}}",
                              "env: {name: 'python:mine', python: {interpreter: /tmp/evil, path: /tmp}}");
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  EXPECT_EQ(admitted->proto().env().python().interpreter(), "venv");
  EXPECT_EQ(admitted->proto().env().python().path(), "/own");
  // A native run may ask Python later on, for a policy that comes: its interpreter is the worker's, too.
  const auto native = Admit("", "env: {name: cartpole, python: {interpreter: /tmp/evil, path: /tmp}}");
  ASSERT_TRUE(native.ok()) << native.status();
  EXPECT_EQ(native->proto().env().python().interpreter(), "");
  EXPECT_EQ(native->proto().env().python().path(), "");
  const auto plugin = Admit("env: {name: mine, plugin: /own/libmine.so}", "env: {name: mine, plugin: /tmp/libmine.so}");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_EQ(plugin->proto().env().plugin(), "/own/libmine.so");
  ExpectRefused(
      Admit("env: {name: mine, plugin: /own/libmine.so}", "env: {name: mine, plugin: /tmp/libevil.so}").status(),
      "libevil.so");
  ExpectRefused(Admit("env: {name: mine, plugin: libmine.so}", "env: {name: other, plugin: libmine.so}").status(),
                "the environment other of the plug-in libmine.so");
}

TEST(PermitsTest, ARefusalIsSafeToReadAndToCopy) {
  const std::string evil = "python:x; rm -rf ~\\n\\e[2J";
  const absl::Status status = Admit("", absl::StrCat("env: {name: \"", evil, "\"}")).status();
  ExpectRefused(status, "does not permit");
  EXPECT_FALSE(absl::StrContains(status.message(), "--allow-python")) << "a line to copy that would be run";
  EXPECT_EQ(status.message().find('\x1b'), absl::string_view::npos);
  const absl::Status long_one = Admit("", absl::StrCat("env: {name: 'python:", std::string(5000, 'x'), "'}")).status();
  EXPECT_LT(long_one.message().size(), 600u);
}

TEST(PermitsTest, ATableIsCheckedLikeAConfiguration) {
  const auto table = [](const std::string& policy_class, const std::string& function) {
    policy::PolicySpec spec;
    spec.id = policy::PolicyId("main");
    spec.observation_space = *space::ParseSpace("Box(-1, 1, [4])");
    spec.action_space = *space::ParseSpace("Discrete(3)");
    spec.policy_class = *policy::ParsePolicyClass(policy_class);
    const auto made = policy::PolicyTable::Make({spec}, {false}, {{"*", {{spec.id}}, function}}, {"agent_0"});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : nullptr;
  };
  const Permits none;
  EXPECT_TRUE(none.Check(*table("random", "")).ok());
  EXPECT_TRUE(none.Check(*table("ppo", "round_robin")).ok());
  ExpectRefused(none.Check(*table("python:mine:act", "")), "the policy class python:mine:act");
  ExpectRefused(none.Check(*table("ppo", "python:mine:choose")), "the mapping function python:mine:choose");
  const auto permits = Permits::Make(RunConfig(), {"python:mine:act", "python:mine:choose"});
  ASSERT_TRUE(permits.ok());
  EXPECT_TRUE(permits->Check(*table("python:mine:act", "python:mine:choose")).ok());
}

TEST(PermitsTest, DigestsSayWhatIsPermittedAndNothingElse) {
  const auto of = [](const std::string& yaml, const std::vector<std::string>& allowed = {}) {
    return Permits::Make(ConfigOf(yaml), allowed)->Digests();
  };
  const std::string mapping = "multi_agent: {policy_mapping: {'*': {function: 'python:mine:choose'}}}";
  EXPECT_TRUE(of("seed: 1").empty());
  EXPECT_EQ(of("env: {name: cartpole}"), of("seed: 1"));
  EXPECT_EQ(of(mapping), of(absl::StrCat("{seed: 9, ", mapping, "}")));
  EXPECT_NE(of(mapping), of("env: {name: 'python:mine:choose'}"));
  EXPECT_EQ(of("seed: 1", {"python:a", "python:b"}), of("seed: 1", {"python:b", "python:a", "python:a"}));
  const std::vector<uint64_t> permitted = of("seed: 1", {"python:mine:choose"});
  EXPECT_EQ(permitted.size(), 3u);
  EXPECT_TRUE(std::is_sorted(permitted.begin(), permitted.end()));
  for (const Statement& asked : StatementsOf(ConfigOf(mapping))) {
    EXPECT_TRUE(std::binary_search(permitted.begin(), permitted.end(), asked.Digest()));
  }
  EXPECT_NE(CombineDigests(permitted), CombineDigests({}));
  EXPECT_NE(CombineDigests({}), 0u) << "0 is a worker that does not say";
}

TEST(PermitsTest, WhatTrainGivesItsWorkersPermitsWhatItsLearnerAsks) {
  const RunConfig config = ConfigOf(R"({env: {name: "python:gymnasium:make", args: {id: CartPole-v1, n: 3},
      python: {interpreter: venv, path: /mine}},
      multi_agent: {policies: {a: {}, b: {class: "python:mine:act"}}, policy_mapping: {"*": {function: "python:mine:f"}}}})");
  const auto admitted = Admit(WorkerFileYaml(config), WelcomeYaml(config));
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  EXPECT_EQ(admitted->proto().env().python().interpreter(), "venv");
  EXPECT_EQ(admitted->proto().env().python().path(), "/mine");
}

// The learner asks for those alone that have something to do beside environments.
TEST(PermitsTest, CallbacksThatAreNotCalledForEpisodesNeedNoPermission) {
  const RunConfig config = ConfigOf("callbacks: ['python:mine:A', 'python:mine:B']");
  EXPECT_TRUE(Admit("", WelcomeYaml(config)).ok());
  EXPECT_EQ(WelcomeYaml(config).find("python:mine"), std::string::npos);
  const auto admitted = Admit(WorkerFileYaml(config), WelcomeYaml(config, {"python:mine:B"}));
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  ASSERT_EQ(admitted->proto().callbacks().values_size(), 1);
  EXPECT_EQ(admitted->proto().callbacks().values(0), "python:mine:B");
  ExpectRefused(Admit("callbacks: ['python:mine:A']", WelcomeYaml(config, {"python:mine:B"})).status(),
                "the callback python:mine:B");
}

}  // namespace
}  // namespace troupe::config
