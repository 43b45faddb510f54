// Recorded episodes of mpe2 1.1.1 must come out of the native environments. record_simple_spread.py made the traces.

#include "lib/envs/mpe/replay.h"

#include <fstream>
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

std::vector<std::string> ReadTraces() {
  std::ifstream file(std::string(TROUPE_SOURCE_DIR) + "/tests/conformance/traces/simple_spread_options.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(ReplayTest, EveryOptionOfSimpleSpreadEqualsTheOriginal) {
  const std::vector<std::string> lines = ReadTraces();
  ASSERT_EQ(lines.size(), 17u);
  for (const std::string& line : lines) {
    const json trace = json::parse(line);
    SCOPED_TRACE(trace.at("args").dump());
    const absl::StatusOr<ReplayReport> report = ReplayTrace(line);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->flags_equal) << report->where;
    EXPECT_LE(report->max_obs_diff, kTolerance) << report->where;
    EXPECT_LE(report->max_reward_diff, kTolerance) << report->where;
    EXPECT_LE(report->max_info_diff, 1e-12) << report->where;
    EXPECT_TRUE(report->Within(1e-5));
    EXPECT_EQ(report->steps, static_cast<int64_t>(trace.at("steps").size()));
    EXPECT_GT(report->steps, 0);
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
