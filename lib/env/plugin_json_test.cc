#include "lib/env/plugin_json.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/env_spec.h"

namespace troupe::env {
namespace {

using ::testing::HasSubstr;

constexpr char kAgent[] =
    R"json({"id": "a", "observation_space": "Box(0, 1, [1])", "action_space": "Discrete(2)"})json";

std::string SpecError(const std::string& json) {
  const absl::StatusOr<EnvSpec> spec = ParsePluginSpec("mine", json);
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << json;
  return std::string(spec.status().message());
}

TEST(PluginJsonTest, ASpecComesThroughWhole) {
  EnvSpec spec;
  spec.name = "mine";
  spec.possible_agents = {{.id = AgentId("a \"b\""),
                           .observation_space = *space::ParseSpace(
                               "Dict{\"x y\": Box([0, -inf], [1, inf], [2]), z: Discrete(3, start=-1)}"),
                           .action_space = *space::ParseSpace("Tuple(MultiDiscrete([2, 3]), MultiBinary(4))"),
                           .has_action_mask = true},
                          {.id = AgentId("c"),
                           .observation_space = *space::ParseSpace("Box(0, 255, [4, 4, 3], uint8)"),
                           .action_space = *space::ParseSpace("Box(-0.1, 0.3, [2])")}};
  spec.state_kind = StateKind::kPerAgent;
  spec.state_space = *space::ParseSpace("Box(-1, 1, [7])");
  spec.has_agent_mask = true;
  spec.info_columns = {"one", "two"};
  spec.max_episode_steps = 25;
  const absl::StatusOr<EnvSpec> read = ParsePluginSpec("mine", PluginSpecJson(spec));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToString(), spec.ToString());
}

TEST(PluginJsonTest, WhatMayBeLeftOut) {
  const absl::StatusOr<EnvSpec> spec = ParsePluginSpec("mine", std::string(R"({"agents": [)") + kAgent + "]}");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->ToString(),
            "env: mine\nagent a: observation Box(0, 1, [1]), action Discrete(2)\nstate: none None\nagent mask: no\n"
            "info columns: []\nmax episode steps: 0\n");
}

TEST(PluginJsonTest, WrongSpecsAreErrorsWithTheKey) {
  const std::string agents = std::string(R"({"agents": [)") + kAgent + "]";
  EXPECT_THAT(SpecError(""), HasSubstr("spec: not valid JSON"));
  EXPECT_THAT(SpecError("[1, 2]"), HasSubstr("spec: expected an object, got a list"));
  EXPECT_THAT(SpecError("{}"), HasSubstr("spec: agents is missing, expected a list of"));
  EXPECT_THAT(SpecError(R"({"agents": 3})"), HasSubstr("spec: agents is 3, expected a list"));
  EXPECT_THAT(SpecError(R"({"agents": []})"), HasSubstr("has no agents"));
  EXPECT_THAT(SpecError(R"({"agents": [5]})"), HasSubstr("spec: agents[0] is 5, expected an object"));
  EXPECT_THAT(SpecError(R"({"agents": [{}]})"), HasSubstr("spec: agents[0].id is missing, expected a text"));
  EXPECT_THAT(SpecError(R"({"agents": [{"id": 7}]})"), HasSubstr("spec: agents[0].id is 7, expected a text"));
  EXPECT_THAT(
      SpecError(R"json({"agents": [{"id": "a", "observation_space": "Bx(3)", "action_space": "Discrete(2)"}]})json"),
      HasSubstr("spec: agents[0].observation_space is 'Bx(3)': "));
  EXPECT_THAT(SpecError(std::string(R"({"agents": [)") + kAgent + ", " + kAgent + "]}"),
              HasSubstr("'a' is there twice"));
  EXPECT_THAT(SpecError(agents + R"(, "state": "global"})"),
              HasSubstr("spec: state is 'global', expected none, per_env"));
  EXPECT_THAT(SpecError(agents + R"(, "state": "per_env"})"), HasSubstr("expected both or neither"));
  EXPECT_THAT(SpecError(agents + R"(, "agent_mask": 1})"), HasSubstr("spec: agent_mask is 1, expected true or false"));
  EXPECT_THAT(SpecError(agents + R"(, "max_episode_steps": 2.5})"),
              HasSubstr("max_episode_steps is 2.5, expected an integer"));
  EXPECT_THAT(SpecError(agents + R"(, "max_episode_steps": 18446744073709551615})"), HasSubstr("expected at most"));
  EXPECT_THAT(SpecError(agents + R"(, "max_episode_steps": -1})"), HasSubstr("max_episode_steps is -1"));
  EXPECT_THAT(SpecError(agents + R"(, "info_columns": [1]})"), HasSubstr("spec: info_columns holds 1"));
  EXPECT_THAT(SpecError(agents + R"(, "info_columns": ["x", "x"]})"), HasSubstr("info columns must have different"));
  EXPECT_THAT(SpecError(agents + R"(, "info_colums": []})"),
              HasSubstr("spec: info_colums is unknown, did you mean 'info_columns'?"));
}

TEST(PluginJsonTest, ArgumentsComeThroughWithTheirTypes) {
  const ArgMap values = {{"flag", true},
                         {"least", std::numeric_limits<int64_t>::min()},
                         {"nested", ArgMap{{"list", ArgList{int64_t{1}, 2.0, ArgList{}, ArgMap{}, ArgValue()}}}},
                         {"nothing", ArgValue()},
                         {"number", 0.1},
                         {"text", std::string("\"\\\n\xc3\xa9")},
                         {"whole", 2.0}};
  const absl::StatusOr<EnvArgs> read = ParseEnvArgsJson(*ArgsJson(values));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->values(), values);
  const ArgMap ordered = {{"z", ArgMap{{"red", int64_t{2}}, {"blue", ArgList{ArgMap{{"y", true}, {"b", true}}}}}},
                          {"a", true}};
  EXPECT_EQ(ParseEnvArgsJson(*ArgsJson(ordered))->values(), ordered) << "mappings keep their order";
  EXPECT_TRUE(ParseEnvArgsJson("")->values().empty());
  const std::string deep(16, '['), deep_end(16, ']');
  EXPECT_TRUE(ParseEnvArgsJson("{\"a\": " + deep + deep_end + "}").ok());
  for (const std::string& json : {std::string("3"), std::string("{"), "{\"a\": [" + deep + deep_end + "]}"}) {
    EXPECT_EQ(ParseEnvArgsJson(json).status().code(), absl::StatusCode::kInvalidArgument) << json;
  }
}

}  // namespace
}  // namespace troupe::env
