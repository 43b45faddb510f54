#include "lib/envhost/describe_env.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envhost/shared_layout.h"

namespace troupe::envhost {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json Agent(const char* id) {
  return {{"id", id},
          {"observation_space", {{"type", "Box"}, {"shape", {3}}, {"dtype", "float32"}, {"low", "-inf"}, {"high", 2}}},
          {"action_space", {{"type", "Discrete"}, {"n", 5}, {"start", 0}}},
          {"has_action_mask", false}};
}

Json Description() {
  return {{"agents", {Agent("a"), Agent("b")}},
          {"state_kind", "none"},
          {"state_space", nullptr},
          {"has_agent_mask", false},
          {"info_columns", Json::array()},
          {"max_episode_steps", 25}};
}

TEST(RecognizedAsTest, IsWordsInOneLine) {
  Json description = Description();
  EXPECT_EQ(RecognizedAs(description), "") << "an older package says nothing";
  description["recognized_as"] = "PettingZoo parallel, 2 agents";
  EXPECT_EQ(RecognizedAs(description), "PettingZoo parallel, 2 agents");
  description["recognized_as"] = "two\nlines";
  EXPECT_EQ(RecognizedAs(description), "two\\x0alines");
  description["recognized_as"] = std::string(5000, 'x');
  EXPECT_LT(RecognizedAs(description).size(), 400u);
  for (const Json& wrong : {Json(3), Json(nullptr), Json::array({"a"})}) {
    description["recognized_as"] = wrong;
    EXPECT_EQ(RecognizedAs(description), "");
  }
}

TEST(ReadSpaceTest, EveryKind) {
  const auto text = [](const char* json) { return ReadSpace(Json::parse(json))->ToString(); };
  EXPECT_EQ(text(R"({"type": "Box", "shape": [2], "dtype": "float64", "low": [0, "-inf"], "high": "inf"})"),
            "Box([0, -inf], [inf, inf], [2], float64)");
  EXPECT_EQ(text(R"({"type": "Discrete", "n": 4, "start": 2})"), "Discrete(4, 2)");
  EXPECT_EQ(text(R"({"type": "MultiDiscrete", "nvec": [2, 3], "python": {"shape": [2]}})"), "MultiDiscrete([2, 3])");
  EXPECT_EQ(text(R"({"type": "MultiBinary", "n": 6})"), "MultiBinary(6)");
  EXPECT_EQ(
      text(R"({"type": "Dict", "spaces": {"b": {"type": "Discrete", "n": 2}, "a": {"type": "MultiBinary", "n": 1}}})"),
      "Dict{a: MultiBinary(1), b: Discrete(2)}");
  EXPECT_EQ(text(R"({"type": "Tuple", "spaces": [{"type": "Discrete", "n": 2}]})"), "Tuple(Discrete(2))");
}

TEST(ReadSpaceTest, WhatIsWrongIsSaid) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("Box")", "a space is"},
      {R"({"type": "Sequence"})", "the type of a space is"},
      {R"({"type": "Discrete", "n": 2.5})", "n of a Discrete is 2.5"},
      {R"({"type": "Discrete", "n": 0})", "0"},
      {R"({"type": "Box", "shape": [2, -1], "dtype": "float32", "low": 0, "high": 1})", "the shape of a Box"},
      {R"({"type": "Box", "shape": [99999, 99999], "dtype": "float32", "low": 0, "high": 1})", "the shape of a Box"},
      {R"({"type": "Box", "shape": [2], "dtype": "complex64", "low": 0, "high": 1})", "the dtype of a Box"},
      {R"({"type": "Box", "shape": [2], "dtype": "float32", "low": "low", "high": 1})", "a bound of a Box"},
      {R"({"type": "Box", "shape": [2], "dtype": "float32", "low": [0], "high": 1})", "1 low and 2 high"},
      {R"({"type": "MultiDiscrete", "nvec": 3})", "nvec"},
      {R"({"type": "Dict", "spaces": []})", "spaces is []"},
  };
  for (const auto& [json, says] : cases) {
    EXPECT_THAT(std::string(ReadSpace(Json::parse(json)).status().message()), HasSubstr(says)) << json;
  }
  Json deep = {{"type", "Discrete"}, {"n", 2}};
  for (int i = 0; i < 40; ++i) deep = {{"type", "Tuple"}, {"spaces", {deep}}};
  EXPECT_THAT(std::string(ReadSpace(deep).status().message()), HasSubstr("deeper than 32"));
}

TEST(ReadDescriptionTest, GivesTheSpec) {
  const auto spec = ReadDescription("python:x", Description());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_agents(), 2);
  EXPECT_EQ(spec->possible_agents[1].id.value(), "b");
  EXPECT_EQ(spec->max_episode_steps, 25);
}

TEST(ReadDescriptionTest, WhatIsWrongIsSaid) {
  const auto says = [](const char* pointer, Json value) {
    Json description = Description();
    description[Json::json_pointer(pointer)] = std::move(value);
    return std::string(ReadDescription("python:x", description).status().message());
  };
  EXPECT_THAT(says("/agents", 3), HasSubstr("agents is 3"));
  EXPECT_THAT(says("/agents/1/id", "a"), HasSubstr("agent 'a' is there twice"));
  EXPECT_THAT(says("/agents/1/id", 7), HasSubstr("an agent's id is 7"));
  EXPECT_THAT(says("/agents/1/action_space", nullptr), HasSubstr("agent 'b', action_space: a space is null"));
  EXPECT_THAT(says("/state_kind", "global"), HasSubstr("state_kind is \"global\""));
  EXPECT_THAT(says("/state_kind", "per_env"), HasSubstr("a space is null"));
  EXPECT_THAT(says("/info_columns", Json::array({"x", "x"})), HasSubstr("info columns"));
  EXPECT_THAT(says("/max_episode_steps", "many"), HasSubstr("max_episode_steps is"));
  EXPECT_THAT(std::string(ReadDescription("python:x", Json()).status().message()), HasSubstr("agents is null"));
}

TEST(BlockLayoutTest, RowsDoNotOverlapAndBeginCacheLines) {
  Json description = Description();
  description["state_kind"] = "per_agent";
  description["state_space"] = {{"type", "Box"}, {"shape", {5}}, {"dtype", "float32"}, {"low", 0}, {"high", 1}};
  description["info_columns"] = {"score"};
  description["agents"][0]["has_action_mask"] = true;
  const auto spec = ReadDescription("python:x", description);
  ASSERT_TRUE(spec.ok());
  const BlockLayout layout(*spec);
  std::vector<std::pair<size_t, size_t>> places = {
      {layout.acts, 2}, {layout.agent_flags, 2}, {layout.rewards, 8}, {layout.infos, 16}};
  for (const BlockLayout::Agent& agent : layout.agents) {
    EXPECT_EQ(agent.observation % 64, 0u);
    places.emplace_back(agent.observation, agent.observation_bytes());
    places.emplace_back(agent.action, 4);
    if (agent.mask_size > 0) places.emplace_back(agent.mask, agent.mask_size);
  }
  ASSERT_EQ(layout.states.size(), 2u);
  for (const size_t state : layout.states) places.emplace_back(state, 20);
  std::sort(places.begin(), places.end());
  size_t end = sizeof(BlockHeader);
  for (const auto& [begin, bytes] : places) {
    EXPECT_GE(begin, end);
    end = begin + bytes;
  }
  EXPECT_LE(end, layout.block_bytes);
  EXPECT_EQ(layout.block_bytes % 4096, 0u);
}

}  // namespace
}  // namespace troupe::envhost
