// Recorded episodes of mpe2 1.1.1 must come out of the native environments. record_simple_spread.py and
// record_mpe_options.py made the traces.

#include "lib/envs/mpe/replay.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

namespace troupe::envs {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Observations are float32 on both sides and rewards of this size are exact to 2e-6 in float32. What is left is the
/// last digit of a float32 in the trace.
constexpr double kTolerance = 2e-6;

std::vector<std::string> ReadTraces(const std::string& name = "simple_spread_options") {
  std::ifstream file(std::string(TROUPE_SOURCE_DIR) + "/tests/conformance/traces/" + name + ".jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

void ExpectEqualsTheOriginal(const std::string& line) {
  const json trace = json::parse(line);
  SCOPED_TRACE(trace.at("env").get<std::string>() + " " + trace.at("args").dump());
  const absl::StatusOr<ReplayReport> report = ReplayTrace(line);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->flags_equal) << report->where;
  EXPECT_LE(report->max_obs_diff, kTolerance) << report->where;
  EXPECT_LE(report->max_reward_diff, kTolerance) << report->where;
  // Recorded words of continuous actions have the digits of a float32.
  EXPECT_LE(report->max_info_diff, trace.at("env") == "simple_crypto_v3" ? 1e-7 : 1e-12) << report->where;
  EXPECT_TRUE(report->Within(1e-5));
  EXPECT_EQ(report->steps, static_cast<int64_t>(trace.at("steps").size()));
  EXPECT_EQ(report->steps_left_out, 0);
  EXPECT_GT(report->steps, 0);
}

TEST(ReplayTest, EveryOptionOfSimpleSpreadEqualsTheOriginal) {
  const std::vector<std::string> lines = ReadTraces();
  ASSERT_EQ(lines.size(), 17u);
  for (const std::string& line : lines) ExpectEqualsTheOriginal(line);
}

TEST(ReplayTest, EveryOptionOfTheOthersEqualsTheOriginal) {
  const std::map<std::string, size_t> episodes = {{"collect_treasure_v1", 7},
                                                  {"simple_adversary_v3", 6},
                                                  {"simple_crypto_v3", 5},
                                                  {"simple_formation_v1", 6},
                                                  {"simple_line_v1", 6},
                                                  {"simple_push_v3", 4},
                                                  {"simple_reference_v3", 5},
                                                  {"simple_speaker_listener_v4", 4},
                                                  {"simple_tag_v3", 16},
                                                  {"simple_world_comm_v3", 9},
                                                  {"simple_v3", 3}};
  for (const auto& [name, count] : episodes) {
    const std::vector<std::string> lines = ReadTraces("mpe_options/" + name);
    EXPECT_EQ(lines.size(), count) << name;
    for (const std::string& line : lines) ExpectEqualsTheOriginal(line);
  }
}

TEST(ReplayTest, TracesTouchWhatTheOptionsDo) {
  bool terminated = false, truncated = false, touched = false;
  for (const std::string& line : ReadTraces()) {
    const json trace = json::parse(line);
    for (const json& step : trace.at("steps")) {
      terminated = terminated || step.at("terminations").at("agent_0").get<bool>();
      truncated = truncated || step.at("truncations").at("agent_0").get<bool>();
      touched = touched || (trace.at("args").value("local_ratio", 0.5) == 1.0 &&
                            step.at("rewards").at("agent_0").get<double>() < 0);
    }
  }
  EXPECT_TRUE(terminated);
  EXPECT_TRUE(truncated);
  EXPECT_TRUE(touched);
}

/// Every value that a key of the steps takes for an agent, over all episodes of a file.
std::vector<double> Values(const std::string& name, const std::string& key, const std::string& agent) {
  std::vector<double> values;
  for (const std::string& line : ReadTraces("mpe_options/" + name)) {
    const json trace = json::parse(line);
    for (const json& step : trace.at("steps")) {
      if (!step.contains(key) || !step.at(key).contains(agent)) continue;
      const json& value = step.at(key).at(agent);
      values.push_back(value.is_boolean() ? (value.get<bool>() ? 1 : 0)
                                          : (value.is_array() ? value.at(0) : value).get<double>());
    }
  }
  return values;
}

double Most(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }
double Least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

TEST(ReplayTest, TracesTouchWhatTheOthersDo) {
  EXPECT_GE(Most(Values("simple_tag_v3", "rewards", "adversary_0")), 20);  // two touches at once
  EXPECT_LE(Least(Values("simple_tag_v3", "rewards", "agent_0")), -20);
  EXPECT_EQ(Most(Values("simple_tag_v3", "terminations", "agent_0")), 1);
  EXPECT_GE(Most(Values("simple_tag_v3", "benchmark_data", "adversary_0")), 1);
  EXPECT_GE(Most(Values("simple_world_comm_v3", "rewards", "leadadversary_0")), 4);
  EXPECT_GE(Most(Values("simple_world_comm_v3", "rewards", "agent_0")), 1.5);   // food
  EXPECT_LE(Least(Values("simple_world_comm_v3", "rewards", "agent_0")), -20);  // far outside
  EXPECT_EQ(Most(Values("simple_formation_v1", "terminations", "agent_2")), 1);
  EXPECT_EQ(Most(Values("simple_line_v1", "terminations", "agent_2")), 1);
  EXPECT_GE(Most(Values("collect_treasure_v1", "rewards", "deposit_0")), 4);
  EXPECT_LE(Least(Values("collect_treasure_v1", "rewards", "collector_0")), -10);
  // A collector held something and then nothing: it was delivered.
  const std::vector<double> holding = Values("collect_treasure_v1", "benchmark_data", "collector_0");
  const auto held = std::find_if(holding.begin(), holding.end(), [](double type) { return type >= 0; });
  EXPECT_NE(std::find(held, holding.end(), -1), holding.end());
  size_t respawns = 0;
  for (const std::string& line : ReadTraces("mpe_options/collect_treasure_v1")) {
    respawns += json::parse(line).value("respawns", json::array()).size();
  }
  EXPECT_GE(respawns, 10u);

  // Stages of the curriculum are different episodes from the same start.
  std::vector<std::string> stages;
  for (const std::string& line : ReadTraces("mpe_options/simple_tag_v3")) {
    const json trace = json::parse(line);
    if (trace.at("args").contains("curriculum") && trace.at("seed") == 8)
      stages.push_back(trace.at("steps").at(9).at("obs").dump());
  }
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0], stages[1]);
  EXPECT_NE(stages[1], stages[2]);
  EXPECT_NE(stages[2], stages[3]);
}

/// Forests hide: some observed position is (0, 0), for nobody can stand exactly where another one stands.
TEST(ReplayTest, TracesHaveHiddenAgents) {
  bool hidden = false, seen_inside = false;
  for (const std::string& line : ReadTraces("mpe_options/simple_world_comm_v3")) {
    const json trace = json::parse(line);
    if (!trace.at("args").empty()) continue;
    for (const json& step : trace.at("steps")) {
      // 4 own, 5 landmarks, 5 others, 1 other good agent's velocity, 2 forests.
      const json& row = step.at("obs").at("agent_0");
      hidden = hidden || (row.at(14) == 0.0 && row.at(15) == 0.0);
      seen_inside = seen_inside || ((row.at(24) == 1.0 || row.at(25) == 1.0) && row.at(18) != 0.0);
    }
  }
  EXPECT_TRUE(hidden);
  EXPECT_TRUE(seen_inside);
}

/// Where the recording does not say how a treasure came back, the comparison ends, wherever that is.
TEST(ReplayTest, StopsAtTheFirstRespawnThatIsNotRecorded) {
  json trace = json::parse(ReadTraces("mpe_options/collect_treasure_v1").at(2));
  ASSERT_GE(trace.at("respawns").size(), 3u);
  const size_t steps = trace.at("steps").size();
  const auto compared = [&](size_t respawns) {
    json known = trace;
    known["respawns"] = json::array();
    for (size_t i = 0; i < respawns; ++i) known["respawns"].push_back(trace.at("respawns").at(i));
    const absl::StatusOr<ReplayReport> report = ReplayTrace(known.dump());
    EXPECT_TRUE(report.ok() && report->Within(1e-5)) << report.status();
    EXPECT_EQ(static_cast<size_t>(report->steps + report->steps_left_out), steps);
    return report->steps;
  };
  EXPECT_GT(compared(0), 0);
  EXPECT_LT(compared(0), compared(1));
  EXPECT_LT(compared(1), compared(2));
  EXPECT_EQ(static_cast<size_t>(compared(trace.at("respawns").size())), steps);

  trace["respawns"][0][0] = trace["respawns"][0][0].get<double>() + 0.01;
  EXPECT_FALSE(ReplayTrace(trace.dump())->Within(1e-5));
  trace["respawns"][0][2] = 6;
  EXPECT_THAT(std::string(ReplayTrace(trace.dump()).status().message()),
              HasSubstr("a respawn has treasure type 6, expected one in [0, 1]"));
}

TEST(ReplayTest, RefusesAWorldWithoutItsGoals) {
  for (const auto& [name, key] : std::map<std::string, std::string>{{"simple_adversary_v3", "goal_a"},
                                                                    {"simple_push_v3", "goal_a"},
                                                                    {"simple_crypto_v3", "goal_a"},
                                                                    {"simple_reference_v3", "goal_b"},
                                                                    {"simple_speaker_listener_v4", "goal_b"}}) {
    json trace = json::parse(ReadTraces("mpe_options/" + name).at(0));
    const std::string agent = trace["world"]["agents"][0]["name"];
    trace["world"]["agents"][0][key] = "landmark 9";
    EXPECT_THAT(std::string(ReplayTrace(trace.dump()).status().message()),
                HasSubstr("world: the goal of " + agent + " is 'landmark 9', expected the name of a landmark"));
    trace["world"]["agents"][0].erase(key);
    EXPECT_EQ(ReplayTrace(trace.dump()).status().code(), absl::StatusCode::kInvalidArgument);
  }
  json trace = json::parse(ReadTraces("mpe_options/simple_crypto_v3").at(0));
  trace["world"]["agents"][2].erase("key");
  EXPECT_THAT(std::string(ReplayTrace(trace.dump()).status().message()),
              HasSubstr("the key of alice_0 has 0 numbers, expected 4"));
  trace = json::parse(ReadTraces("mpe_options/collect_treasure_v1").at(0));
  trace["world"]["landmarks"][1]["type"] = 2;
  EXPECT_THAT(std::string(ReplayTrace(trace.dump()).status().message()),
              HasSubstr("treasure_1 has treasure type 2, expected one in [0, 1]"));
}

/// Each alteration of a good trace must be found.
TEST(ReplayTest, FindsAnAlteredTrace) {
  const json good = json::parse(ReadTraces().at(0));
  const auto replay = [](const json& trace) { return ReplayTrace(trace.dump()); };
  ASSERT_TRUE(replay(good)->Within(1e-5));

  json trace = good;
  trace["steps"][3]["obs"]["agent_1"][2] = trace["steps"][3]["obs"]["agent_1"][2].get<double>() + 3e-5;
  EXPECT_FALSE(replay(trace)->Within(1e-5));
  EXPECT_NEAR(replay(trace)->max_obs_diff, 3e-5, 1e-6);
  EXPECT_THAT(replay(trace)->where, HasSubstr("step 3: observation element 2 of agent_1"));

  trace = good;
  trace["steps"][24]["rewards"]["agent_2"] = 0.5;
  EXPECT_FALSE(replay(trace)->Within(1e-5));
  EXPECT_GT(replay(trace)->max_reward_diff, 0.1);

  trace = good;
  trace["steps"][0]["actions"]["agent_0"] = (good["steps"][0]["actions"]["agent_0"].get<int>() + 1) % 5;
  EXPECT_FALSE(replay(trace)->Within(1e-5));

  trace = good;
  trace["world"]["landmarks"][2]["p_pos"][0] = 0.123;
  EXPECT_FALSE(replay(trace)->Within(1e-5));

  trace = good;
  trace["reset_obs"]["agent_0"][17] = nullptr;  // not a number
  EXPECT_FALSE(replay(trace).ok());

  trace = good;
  trace["steps"][24]["truncations"]["agent_0"] = false;
  EXPECT_FALSE(replay(trace)->flags_equal);
  EXPECT_FALSE(replay(trace)->Within(1e9));

  trace = good;
  trace["steps"].push_back(trace["steps"][24]);
  EXPECT_THAT(replay(trace)->where, HasSubstr("the trace goes on"));

  trace = good;
  trace["args"]["max_cycles"] = 24;
  EXPECT_FALSE(replay(trace)->flags_equal);
}

TEST(ReplayTest, RefusesWhatIsNoTrace) {
  const json good = json::parse(ReadTraces().at(0));
  const auto error = [](const std::string& line) { return std::string(ReplayTrace(line).status().message()); };
  EXPECT_THAT(error(""), HasSubstr("trace: "));
  EXPECT_THAT(error("{}"), HasSubstr("expected a line of record_mpe.py's form"));
  EXPECT_THAT(error("[1, 2"), HasSubstr("trace: "));
  for (const auto& [key, value] : good.items()) {
    json trace = good;
    trace.erase(key);
    const bool needed = key != "seed" && key != "package";
    EXPECT_EQ(ReplayTrace(trace.dump()).ok(), !needed) << key;
  }
  json trace = good;
  trace["env"] = "simple_spreed_v3";
  EXPECT_THAT(error(trace.dump()), HasSubstr("no native environment for 'simple_spreed_v3'"));
  EXPECT_EQ(ReplayTrace(trace.dump()).status().code(), absl::StatusCode::kNotFound);
  trace = good;
  trace["args"]["N"] = 2.5;
  EXPECT_THAT(error(trace.dump()), HasSubstr("argument N is 2.5, expected an integer"));
  trace = good;
  trace["args"]["N"] = 2;
  EXPECT_THAT(error(trace.dump()), HasSubstr("agents are not those"));
  trace = good;
  trace["world"]["agents"].erase(0);
  EXPECT_THAT(error(trace.dump()), HasSubstr("world has 2 agents and 3 landmarks"));
  trace = good;
  trace["steps"][0]["actions"]["agent_0"] = 5;
  EXPECT_THAT(error(trace.dump()), HasSubstr("action of agent_0"));
  trace["steps"][0]["actions"]["agent_0"] = json::array({1.0, 0.0, 0.0, 0.0, 0.0});
  EXPECT_THAT(error(trace.dump()), HasSubstr("expected one of Discrete(5)"));
}

}  // namespace
}  // namespace troupe::envs
