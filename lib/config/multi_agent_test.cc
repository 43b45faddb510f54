// multi_agent: forms, inference, overrides and bad input.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/resolved_run.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using MultiAgentTest = ResolveFixture;

/// What is written reads back as the same.
void ExpectRoundTrip(const RunConfig& config) {
  const auto again = RunConfig::FromYaml(config.ToYaml(), "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << config.ToYaml();
  EXPECT_EQ(again->ToYaml(), config.ToYaml());
}

std::vector<std::string> Players(const ResolvedRun& run, size_t agent) {
  std::vector<std::string> ids;
  for (const MappedPolicy& mapped : run.policies_of_agent[agent]) {
    ids.push_back(run.policies[static_cast<size_t>(mapped.policy.value())].id.value());
  }
  return ids;
}

TEST_F(MultiAgentTest, PoliciesPairWithAgentsInOrder) {
  const ResolvedRun run = Resolve("env: {name: mixed}\nmulti_agent: {policies: [a, b, c]}");
  EXPECT_EQ(Players(run, 0), (std::vector<std::string>{"a"}));
  EXPECT_EQ(Players(run, 1), (std::vector<std::string>{"b"}));
  EXPECT_EQ(Players(run, 2), (std::vector<std::string>{"c"}));
  EXPECT_EQ(run.policies[2].observation_size(), 2);
  EXPECT_EQ(ErrorOf("env: {name: mixed}\nmulti_agent:\n  policies: [a, b]"),
            "run.yaml:3:3: multi_agent.policy_mapping: is missing, and 2 policies do not pair with 3 agents (wolf_0, "
            "wolf_1, sheep), expected as many, or rules; per_agent gives every agent its own");
}

TEST_F(MultiAgentTest, OverridesOfPoliciesAndAgents) {
  const ResolvedRun run = Resolve(R"(
env: {name: mixed}
algorithm: {lr: 1.0e-3, gamma: 0.9, num_epochs: 4, minibatch_size: 100}
model: {actor_hidden_sizes: [8], activation: relu}
multi_agent:
  policies:
    wolves: {algorithm: {lr: {initial: 2.0e-3, final: 0, env_steps: 10}, num_minibatches: 8, name: ippo}}
    sheep: {algorithm: {lr: 3.0e-3, clip_param: 0.3}, model: {actor_hidden_sizes: [4, 4]}}
  policy_mapping: {"wolf_*": wolves, "*": sheep}
  agents:
    sheep: {algorithm: {lr: 4.0e-3, entropy_coeff: 0.5}, model: {activation: tanh}}
    "*": {}
)");
  constexpr size_t kWolves = 0;
  constexpr size_t kSheep = 1;
  // The run's, copied to all.
  EXPECT_EQ(Option<double>(run, kWolves, "gamma"), 0.9);
  EXPECT_EQ(Option<double>(run, kSheep, "gamma"), 0.9);
  EXPECT_EQ(Option<int64_t>(run, kSheep, "num_epochs"), 4);
  EXPECT_EQ(MinibatchSize(run, kSheep), 100);
  // The policy's before the run's.
  EXPECT_EQ(Option<policy::ScheduleValue>(run, kWolves, "lr"), (policy::ScheduleValue{2e-3, 0, 10}));
  EXPECT_EQ(MinibatchSize(run, kWolves), 1000) << "2 wolves of 4000 env steps in 8 minibatches";
  EXPECT_EQ(Option<double>(run, kWolves, "clip_param"), 0.2);
  EXPECT_EQ(Option<double>(run, kSheep, "clip_param"), 0.3);
  EXPECT_EQ(run.policies[0].critic_input(), policy::NetworkInput::kObservation) << "ippo beside mappo";
  EXPECT_EQ(run.policies[1].critic_input(), policy::NetworkInput::kJointObservation);
  // The agent's before the policy's.
  EXPECT_EQ(FirstLr(run, kSheep), 4e-3);
  EXPECT_EQ(Option<double>(run, kSheep, "entropy_coeff"), 0.5);
  EXPECT_EQ(run.policies[0].actor.activation, policy::Activation::kRelu);
  EXPECT_EQ(run.policies[1].actor.activation, policy::Activation::kTanh);
  EXPECT_EQ(run.policies[1].actor.hidden_sizes, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(run.policies[0].actor.hidden_sizes, (std::vector<int64_t>{8}));
  ExpectRoundTrip(run.config);
}

TEST_F(MultiAgentTest, OverridesMergeFromTheCommandLine) {
  const std::string yaml = "env: {name: team}\nmulti_agent: {policies: {a: {algorithm: {lr: 1.0e-3, gamma: 0.5}}}}";
  const ResolvedRun run = Resolve(yaml, {"multi_agent.policies.a.algorithm.gamma=0.6"});
  EXPECT_EQ(FirstLr(run, 0), 1e-3);
  EXPECT_EQ(Option<double>(run, 0, "gamma"), 0.6);
}

TEST_F(MultiAgentTest, WhatHoldsForTheWholeRunIsNotOverridden) {
  for (const std::string key :
       {"train_batch_size: 9", "max_policy_lag: 1", "common_reward: sum", "use_parameter_sharing: false"}) {
    const std::string name = key.substr(0, key.find(':'));
    EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policies: {a: {algorithm: {" + key + "}}}"),
              "run.yaml:3:30: multi_agent.policies.a.algorithm." + name +
                  ": is one for the whole run, expected it in algorithm." + name +
                  " alone; immutable are train_batch_size, max_policy_lag, common_reward, use_parameter_sharing");
    EXPECT_NE(ErrorOf("env: {name: team}\nmulti_agent:\n  agents: {\"*\": {algorithm: {" + key + "}}}")
                  .find("run.yaml:3:30: multi_agent.agents.*.algorithm." + name + ": is one for the whole run"),
              std::string::npos);
  }
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policies: {a: {algorithm: {minibatch_size: auto}}}"),
            "run.yaml:3:46: multi_agent.policies.a.algorithm.minibatch_size: got \"auto\", expected a value: an "
            "override cannot take one back");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policies: {a: {algorithm: {gama: 1}}}"),
            "run.yaml:3:30: unknown key \"multi_agent.policies.a.algorithm.gama\"; the nearest is "
            "\"multi_agent.policies.a.algorithm.gamma\"");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policies: {a: {algorithm: {gamma: 2}}}"),
            "run.yaml:3:37: multi_agent.policies.a.algorithm.gamma: got 2, expected a number in [0, 1] or a schedule "
            "({initial, final, env_steps}); the default is 0.99");
  EXPECT_EQ(
      ErrorOf("env: {name: team}\nmulti_agent:\n  policies: {a: {algorithm: {minibatch_size: 20000}}}"),
      "run.yaml:3:46: multi_agent.policies.a.algorithm.minibatch_size: got 20000, expected at most the 12000 rows "
      "that a policy has in a batch of 4000 env steps; lower it, or raise algorithm.train_batch_size");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policies: {a: {class: random, algorithm: {lr: 1}}}"),
            "run.yaml:3:14: multi_agent.policies.a.algorithm: got overrides, but class random has no networks");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policies: {a: {algorithm: {use_global_state: true}}}"),
            "run.yaml:3:48: multi_agent.policies.a.algorithm.use_global_state: got true, but team has no global state; "
            "expected false (the critic sees all observations)");
}

TEST_F(MultiAgentTest, OverridesOfAgentsCoverAllAndAreForTheirOwnPolicy) {
  const std::string start = "env: {name: mixed}\nmulti_agent:\n  ";
  EXPECT_EQ(ErrorOf(start + "policy_mapping: per_agent\n  agents: {sheep: {algorithm: {lr: 1}}}"),
            "run.yaml:4:11: multi_agent.agents: says nothing of agent \"wolf_0\", expected an entry for every agent; a "
            "last \"*\": {} is for those that are left");
  EXPECT_EQ(ErrorOf(start + "policy_mapping: per_agent\n  agents: {\"goat_*\": {}, \"*\": {}}"),
            "run.yaml:4:12: multi_agent.agents.goat_*: matches no agent; the agents are wolf_0, wolf_1, sheep");
  EXPECT_EQ(
      ErrorOf(start + "policy_mapping: {\"wolf_*\": wolves, \"*\": sheep}\n  agents: {wolf_1: {algorithm: {lr: 1}}, "
                      "\"*\": {}}"),
      "run.yaml:4:12: multi_agent.agents.wolf_1: policy \"wolves\" of agent \"wolf_1\" plays wolf_0, wolf_1, "
      "expected a policy of the agent's own; override multi_agent.policies instead");
  EXPECT_EQ(ErrorOf(start + "policy_mapping: {sheep: {a: 1, b: 2}, \"*\": c}\n  agents: {sheep: {algorithm: {lr: 1}}, "
                            "\"*\": {}}"),
            "run.yaml:4:12: multi_agent.agents.sheep: agent \"sheep\" may be played by 2 policies, expected one of its "
            "own; override multi_agent.policies instead");
  EXPECT_EQ(
      ErrorOf(start + "agents: {sheep: {class: random}}"),
      "run.yaml:3:20: unknown key \"multi_agent.agents.sheep.class\"; an agent may have model and algorithm only");
  // The first glob that matches decides.
  const ResolvedRun run = Resolve(start +
                                  "policy_mapping: per_agent\n  agents: {\"wolf_0\": {algorithm: {lr: 0.5}}, \"*\": "
                                  "{algorithm: {lr: 0.25}}}");
  EXPECT_EQ(FirstLr(run, 0), 0.5);
  EXPECT_EQ(FirstLr(run, 1), 0.25);
  EXPECT_EQ(FirstLr(run, 2), 0.25);
}

TEST_F(MultiAgentTest, SwappableStatesNeedOneNormalizer) {
  EXPECT_EQ(
      ErrorOf("env: {name: team}\nmulti_agent:\n  policy_mapping: per_agent\n  policies: {agent_0: {}, agent_1: "
              "{algorithm: {use_value_norm: false}}, agent_2: {}}\n  policy_states_are_swappable: true"),
      "run.yaml:5:32: multi_agent.policy_states_are_swappable: got true, but policies \"agent_0\" and \"agent_1\" "
      "differ in use_value_norm or use_popart (true and false)");
}

TEST_F(MultiAgentTest, SpacesAsText) {
  const std::string start = "env: {name: mixed}\nmulti_agent:\n  policies:\n    wolves: ";
  const std::string rest = "\n    sheep: {}\n  policy_mapping: {\"wolf_*\": wolves, \"*\": sheep}";
  const ResolvedRun run =
      Resolve(start + "{observation_space: \"Box(-1, 1, (3,), float32)\", action_space: Discrete(5)}" + rest);
  EXPECT_EQ(run.policies[0].observation_size(), 3);
  ExpectRoundTrip(run.config);
  EXPECT_EQ(ErrorOf(start + "{observation_space: \"Box(-1, 1, [2])\"}" + rest),
            "run.yaml:4:33: multi_agent.policies.wolves.observation_space: got Box(-1, 1, [2]), expected Box(-1, 1, "
            "[3]) of agent \"wolf_0\", which policy \"wolves\" plays");
  EXPECT_EQ(ErrorOf(start + "{action_space: Discrete(6)}" + rest),
            "run.yaml:4:28: multi_agent.policies.wolves.action_space: got Discrete(6), expected Discrete(5) of agent "
            "\"wolf_0\", which policy \"wolves\" plays");
  EXPECT_EQ(ErrorOf(start + "{action_space: Discret(6)}" + rest).substr(0, 75),
            "run.yaml:4:28: multi_agent.policies.wolves.action_space: space 'Discret(6)'");
  EXPECT_EQ(ErrorOf(start + "{action_space: [6]}" + rest),
            "run.yaml:4:28: multi_agent.policies.wolves.action_space: got a list, expected a space as text (\"Box(-1, "
            "1, [4])\", \"Discrete(3)\")");
}

TEST_F(MultiAgentTest, PoliciesThatPlayNobodyYet) {
  // All agents share their spaces, or the policy says which it has.
  const ResolvedRun shared =
      Resolve("env: {name: team}\nmulti_agent: {policies: [a, spare], policy_mapping: {\"*\": a}}");
  EXPECT_EQ(shared.policies[1].observation_size(), 3);
  EXPECT_EQ(shared.policies[1].agent_id_size, 3) << "it may come to play all three";
  EXPECT_EQ(MinibatchSize(shared, 1), MinibatchSize(shared, 0));
  const std::string start = "env: {name: mixed}\nmulti_agent:\n  policies: {a: {}, b: {}, spare: ";
  const std::string rest = "}\n  policy_mapping: {\"wolf_*\": a, \"*\": b}";
  EXPECT_EQ(Resolve(start + "{observation_space: \"Box(-1, 1, [2])\"}" + rest).policies[2].observation_size(), 2);
  EXPECT_EQ(
      ErrorOf(start + "{}" + rest),
      "run.yaml:3:28: multi_agent.policies.spare: policy \"spare\" plays no agent; the agents are wolf_0, wolf_1, "
      "sheep, whose spaces differ, so that it needs observation_space and action_space of its own");
  EXPECT_EQ(ErrorOf(start + "{observation_space: Discrete(3)}" + rest),
            "run.yaml:3:55: multi_agent.policies.spare.observation_space: policy \"spare\" has spaces of no agent: got "
            "Discrete(3) and None, expected those of one of wolf_0, wolf_1, sheep");
}

TEST_F(MultiAgentTest, WhoTrainsOnWhat) {
  const std::string start =
      "env: {name: team}\nmulti_agent:\n  policies: {main: {}, hunter_a: {}, hunter_b: {}, dice: {class: random}}\n  "
      "policy_mapping: {\"*\": {main: 1, hunter_a: 1, hunter_b: 1, dice: 1}}\n  policies_to_train: ";
  const ResolvedRun league = Resolve(start + "[main, {policies: [\"hunter_*\"], only_against: [main]}]");
  EXPECT_EQ(league.learner.trains, (std::vector<bool>{true, true, true, false}));
  ASSERT_EQ(league.learner.train_rules.size(), 2u);
  EXPECT_EQ(league.learner.train_rules[0].policies, (std::vector<std::string>{"main"}));
  EXPECT_EQ(league.learner.train_rules[1].only_against, (std::vector<std::string>{"main"}));
  ExpectRoundTrip(league.config);
  const ResolvedRun one = Resolve(start + "{only_newest: 2, function: against_others}");
  EXPECT_EQ(one.learner.trains, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(one.learner.train_rules[0].only_newest, 2);
  EXPECT_EQ(one.learner.train_rules[0].function, "against_others");
  ExpectRoundTrip(one.config);
  EXPECT_TRUE(Resolve(start + "[main]").learner.train_rules.empty());

  const std::string at = "run.yaml:5:";
  EXPECT_EQ(ErrorOf(start + "{only_against: [mian]}"),
            at + "37: multi_agent.policies_to_train.only_against: got policy \"mian\", expected one that "
                 "multi_agent.policies lists; the nearest is \"main\"");
  EXPECT_EQ(ErrorOf(start + "{only_newest: 0}"),
            at + "36: multi_agent.policies_to_train.only_newest: got 0, expected an integer >= 1");
  EXPECT_EQ(ErrorOf(start + "{function: against_othrs}"),
            at + "33: multi_agent.policies_to_train.function: there is no predicate \"against_othrs\"; the nearest is "
                 "\"against_others\"");
  EXPECT_EQ(ErrorOf(start + "{only: [main]}"),
            at + "23: unknown key \"multi_agent.policies_to_train.only\"; expected policies, only_against, only_newest "
                 "or function");
  EXPECT_EQ(ErrorOf(start + "{only_against: []}"),
            at + "37: multi_agent.policies_to_train.only_against: got a list of 0, expected a list of 1 to 1024 policy "
                 "ids or globs over them");
}

TEST_F(MultiAgentTest, MappingByFunction) {
  const std::string start = "env: {name: team}\nmulti_agent:\n  policies: [a, b, c]\n  policy_mapping: ";
  const ResolvedRun all = Resolve(start + "{function: round_robin}");
  ASSERT_EQ(all.mapping_rules.size(), 1u);
  EXPECT_EQ(all.mapping_rules[0].agent_glob, "*");
  EXPECT_EQ(all.mapping_rules[0].function, "round_robin");
  EXPECT_EQ(Players(all, 1), (std::vector<std::string>{"a", "b", "c"}));
  ExpectRoundTrip(all.config);
  const ResolvedRun some = Resolve(start + "{agent_0: c, \"*\": {function: self_play, policies: [b, a]}}");
  EXPECT_EQ(Players(some, 0), (std::vector<std::string>{"c"}));
  EXPECT_EQ(Players(some, 2), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(some.mapping_rules[1].function, "self_play");
  ExpectRoundTrip(some.config);
  // A policy may be called so, too.
  EXPECT_EQ(Resolve("env: {name: team}\nmulti_agent: {policy_mapping: {\"*\": {function: 1, b: 2}}}").policies.size(),
            2u);
  EXPECT_EQ(ErrorOf(start + "{function: round_robbin}"),
            "run.yaml:4:30: multi_agent.policy_mapping.*.function: there is no mapping function \"round_robbin\"; the "
            "nearest is \"round_robin\"");
  EXPECT_EQ(
      ErrorOf(start + "{\"*\": {function: self_play, policies: [d]}}"),
      "run.yaml:4:25: multi_agent.policy_mapping.*: got policy \"d\", expected one that multi_agent.policies lists; "
      "these are a, b, c");
  EXPECT_EQ(ErrorOf(start + "{\"*\": {function: self_play, plicies: [a]}}"),
            "run.yaml:4:47: unknown key \"multi_agent.policy_mapping.*.plicies\"; beside a function there may be "
            "policies only");
  EXPECT_EQ(
      ErrorOf(start + "{\"*\": {function: [a]}}"),
      "run.yaml:4:36: multi_agent.policy_mapping.*.function: got a list, expected the name of a function, at most 1024 "
      "characters");
}

// As RLlib's example has it: one function for cars and a traffic light.
TEST_F(MultiAgentTest, AFunctionChoosesAmongPoliciesWithTheAgentsSpaces) {
  const std::string start =
      "env: {name: mixed}\nmulti_agent:\n  policy_mapping: {function: round_robin}\n  policies:\n"
      "    wolf1: {observation_space: \"Box(-1, 1, [3])\"}\n    wolf2: {observation_space: \"Box(-1, 1, [3])\"}\n";
  const ResolvedRun run = Resolve(start + "    sheep: {observation_space: \"Box(-1, 1, [2])\"}");
  EXPECT_EQ(Players(run, 0), (std::vector<std::string>{"wolf1", "wolf2"}));
  EXPECT_EQ(Players(run, 1), (std::vector<std::string>{"wolf1", "wolf2"}));
  EXPECT_EQ(Players(run, 2), (std::vector<std::string>{"sheep"}));
  EXPECT_EQ(run.policies_of_agent[0][1].probability, 0.5);
  EXPECT_EQ(run.policies[2].observation_size(), 2);
  ExpectRoundTrip(run.config);
  // The function is asked with no others.
  const auto mapping = policy::MakeRuleMapping(run.mapping_rules, run.agent_ids(), run.policy_ids());
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  for (uint32_t episode = 0; episode < 6; ++episode) {
    for (int32_t agent = 0; agent < 3; ++agent) {
      const base::AgentSlot slot(agent);
      const auto chosen = (*mapping)->Map(run.env_spec.possible_agents[static_cast<size_t>(agent)].id, slot,
                                          {.env_id = base::EnvId(1), .episode = episode});
      ASSERT_TRUE(chosen.ok()) << chosen.status();
      EXPECT_EQ(chosen->value() == 2, agent == 2) << episode;
    }
  }
  const std::string none = ErrorOf(start);
  EXPECT_EQ(none.substr(0, none.find(" and ")),
            "run.yaml:5:5: multi_agent.policies: no policy has the spaces of agent \"sheep\", for which a function "
            "chooses one: expected one with Box(-1, 1, [2])");
}

TEST_F(MultiAgentTest, ObservationFunction) {
  const ResolvedRun run = Resolve("env: {name: mixed}\nmulti_agent: {observation_fn: joint_observation}");
  // Wolves and sheep see the same now, so that one policy plays them all.
  ASSERT_EQ(run.policies.size(), 1u);
  EXPECT_EQ(run.policies[0].observation_size(), 3 + 3 + 2 + 3);
  EXPECT_EQ(run.schema.agent_observation_sizes, (std::vector<int64_t>{11, 11, 11}));
  EXPECT_EQ(run.policies[0].critic_state_size(), 3 * 11 + 3);
  ExpectRoundTrip(run.config);
  EXPECT_EQ(
      ErrorOf("env: {name: mixed}\nmulti_agent: {observation_fn: joint_obs}"),
      "run.yaml:2:31: multi_agent.observation_fn: there is no observation function \"joint_obs\"; expected one of "
      "joint_observation");
}

TEST_F(MultiAgentTest, AnObservationFunctionInPythonIsForEnvironmentsInPython) {
  EXPECT_EQ(
      ErrorOf("env: {name: mixed}\nmulti_agent: {observation_fn: 'python:m:f'}"),
      "run.yaml:2:31: multi_agent.observation_fn: got python:m:f, but the environment mixed is not in Python, and a "
      "function in Python sees observations in its environment's process alone; expected a function in C++, or an "
      "environment in Python");
  EXPECT_EQ(ErrorOf("env: {name: mixed}\nmulti_agent: {observation_fn: 'python:m'}"),
            "run.yaml:2:31: multi_agent.observation_fn: got \"python:m\", expected python:MODULE:NAME");
}

TEST_F(MultiAgentTest, AFunctionInPythonSaysByItselfWhoTrains) {
  const std::string start =
      "env: {name: mixed}\nmulti_agent:\n  policies: [wolf, sheep]\n  policy_mapping: {\"wolf_*\": wolf, sheep: "
      "sheep}\n"
      "  policies_to_train: ";
  for (const char* const text : {"python:m:f", "{function: 'python:m:f'}", "[{function: 'python:m:f'}]"}) {
    const ResolvedRun run = Resolve(start + text);
    EXPECT_EQ(run.train_function, "python:m:f");
    EXPECT_TRUE(run.learner.train_rules.empty());
    EXPECT_EQ(run.learner.trains, (std::vector<bool>{true, true})) << "all are asked about";
    ExpectRoundTrip(run.config);
  }
  EXPECT_EQ(Resolve(start + "[wolf]").train_function, "");
  for (const char* const text :
       {"[wolf, {function: 'python:m:f'}]", "{policies: [wolf], function: 'python:m:f'}",
        "[{function: against_others}, {function: 'python:m:f'}]", "{only_newest: 1, function: 'python:m:f'}"}) {
    EXPECT_NE(ErrorOf(start + text).find("got python:m:f beside other conditions or entries"), std::string::npos)
        << text;
  }
  EXPECT_NE(ErrorOf(start + "python:m").find("policies_to_train: got \"python:m\", expected python:MODULE:NAME"),
            std::string::npos);
}

TEST_F(MultiAgentTest, IdsThatAreNone) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"../x", "starts with a forbidden character: got 4 characters starting with \"../x\""},
      {"a/b", "holds a forbidden character: got 3 characters starting with \"a/b\""},
      {"a..b", "holds \"..\": got 4 characters starting with \"a..b\""},
      {std::string(200, 'a'), "is too long: got 200 characters starting with \"" + std::string(32, 'a') + "\""},
      {"a\\x01", "holds a forbidden character: got 2 characters starting with \"a\\x01\""},
      {"a\\n", "holds a forbidden character: got 2 characters starting with \"a\\n\""},
  };
  const std::string expected = "; expected 1 to 64 of [A-Za-z0-9_.-], the first a letter or digit, without \"..\"";
  for (const auto& [id, text] : cases) {
    const std::string start = "env: {name: team}\nmulti_agent:\n";
    const std::string quoted = "\"" + id + "\"";
    EXPECT_EQ(ErrorOf(start + "  policies: [" + quoted + "]"),
              "run.yaml:3:14: multi_agent.policies: policy id " + text + expected);
    EXPECT_EQ(ErrorOf(start + "  policies: {" + quoted + ": {}}"),
              "run.yaml:3:14: multi_agent.policies: policy id " + text + expected);
    EXPECT_EQ(ErrorOf(start + "  policy_mapping: {x: " + quoted + "}"),
              "run.yaml:3:23: multi_agent.policy_mapping.x: policy id " + text + expected);
    EXPECT_EQ(ErrorOf(start + "  policies_to_train: [" + quoted + "]"),
              "run.yaml:3:23: multi_agent.policies_to_train: policy id " + text + expected);
  }
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policies: [\"\"]"),
            "run.yaml:3:14: got \"\" as a key in multi_agent.policies, expected a name");
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policy_mapping: {\"*\": \"\"}"),
            "run.yaml:3:25: got \"\" as a key in multi_agent.policy_mapping.*, expected a name");
}

TEST_F(MultiAgentTest, NumbersThatAreNone) {
  for (const std::string value : {"0", "-1", "1.5", "many"}) {
    const std::string got = value == "many" ? "\"many\"" : value;
    EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policy_map_capacity: " + value),
              "run.yaml:3:24: multi_agent.policy_map_capacity: got " + got +
                  ", expected an integer in [1, 1000000]; the default is 100");
  }
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent:\n  policy_mapping: {\"*\": {a: 1, b: 0}}"),
            "run.yaml:3:35: multi_agent.policy_mapping.*.b: got 0, expected a weight, a number above 0");
}

using ReturnsTest = ResolveFixture;

TEST_F(ReturnsTest, OfPoliciesAndAgentsThatThereAre) {
  const std::string rivals =
      "env: {name: mixed}\nmulti_agent: {policies: [wolf, sheep], policy_mapping: {\"wolf_*\": wolf, \"*\": sheep}}\n";
  const ResolvedRun run = Resolve(rivals +
                                  "experiment: {best_by: policy:wolf}\n"
                                  "stop: {episode_return: {agent:wolf_*: 2, mean: 1}}");
  ASSERT_TRUE(run.experiment.best_by.has_value());
  EXPECT_EQ(run.experiment.best_by->Text(), "policy:wolf");
  ASSERT_EQ(run.stop.episode_return.size(), 2u);
  EXPECT_EQ(run.stop.episode_return[0].score.Text(), "agent:wolf_*");
  EXPECT_EQ(run.stop.env_steps, 0) << "as with every other limit";
  EXPECT_EQ(Resolve(rivals).experiment.best_by, std::nullopt);
  EXPECT_EQ(Resolve(rivals + "experiment: {best_by: auto}").experiment.best_by, std::nullopt);

  EXPECT_EQ(ErrorOf(rivals + "experiment: {best_by: wolf}"),
            "run.yaml:3:23: experiment.best_by: got \"wolf\", expected sum, mean, policy:ID or agent:GLOB; write "
            "policy:wolf");
  EXPECT_EQ(ErrorOf(rivals + "experiment: {best_by: policy:wolv}"),
            "run.yaml:3:23: experiment.best_by: got the policy \"wolv\", expected one of wolf, sheep; the nearest is "
            "\"wolf\"");
  EXPECT_EQ(ErrorOf(rivals + "stop: {episode_return: {agent:cow_*: 3}}"),
            "run.yaml:3:24: stop.episode_return: got the agents \"cow_*\", expected one of wolf_0, wolf_1, sheep");
  EXPECT_EQ(ErrorOf(rivals, {"stop.episode_return={policy:wolfs: 1}"}),
            "--set stop.episode_return={policy:wolfs: 1}: stop.episode_return: got the policy \"wolfs\", expected one "
            "of wolf, sheep; the nearest is \"wolf\"");
  // One that is there and plays nobody never has a return.
  EXPECT_EQ(ErrorOf("env: {name: team}\nmulti_agent: {policies: [a, b], policy_mapping: {\"*\": a}}\n"
                    "experiment: {best_by: policy:b}"),
            "run.yaml:3:23: experiment.best_by: got the policy \"b\", expected one of a");
}

TEST_F(ReturnsTest, AutoWritesALineEveryFewSecondsWhateverTheRunIsPlanned) {
  const ExperimentOptions experiment = Resolve("env: {name: team}\nstop: {env_steps: 100000000}").experiment;
  EXPECT_EQ(experiment.write_interval_env_steps, 1000000);
  EXPECT_EQ(experiment.longest_write_pause, absl::Seconds(5));
  EXPECT_EQ(Resolve("env: {name: team}\nexperiment: {write_interval: 400}").experiment.longest_write_pause,
            absl::InfiniteDuration());
  EXPECT_EQ(Resolve("env: {name: team}\nexperiment: {write_interval: 0}").experiment.longest_write_pause,
            absl::InfiniteDuration());
}

}  // namespace
}  // namespace troupe::config
