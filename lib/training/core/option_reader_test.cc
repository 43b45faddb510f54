#include "lib/training/core/option_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "lib/policy/algorithm_spec.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

struct Read {
  bool flag = true;
  int64_t count = 3;
  double number = 0.5;
  std::string text = "a";
  LinearSchedule rate{1, 1, 0};
  absl::Status status;
};

Read Parse(const policy::AlgorithmSpec& spec) {
  Read read;
  OptionReader reader(spec);
  reader.Read("flag", &read.flag);
  reader.Read("number", &read.number);
  reader.Read("text", &read.text);
  reader.Read("rate", &read.rate);
  reader.Require("count", &read.count);
  read.status = reader.Finish();
  return read;
}

TEST(OptionReaderTest, ReadsWhatIsThereAndKeepsTheRest) {
  const Read all = Parse({.name = "x",
                          .options = {{"flag", false},
                                      {"count", int64_t{7}},
                                      {"number", 2.5},
                                      {"text", std::string("b")},
                                      {"rate", policy::ScheduleValue{1, 2, 30}}}});
  EXPECT_TRUE(all.status.ok()) << all.status;
  EXPECT_FALSE(all.flag);
  EXPECT_EQ(all.count, 7);
  EXPECT_EQ(all.number, 2.5);
  EXPECT_EQ(all.text, "b");
  EXPECT_EQ(all.rate.At({15, 0}), 1.5);

  const Read few = Parse({.name = "x", .options = {{"count", int64_t{7}}}});
  EXPECT_TRUE(few.status.ok()) << few.status;
  EXPECT_TRUE(few.flag);
  EXPECT_EQ(few.number, 0.5);
  EXPECT_EQ(few.text, "a");
  EXPECT_EQ(few.rate.At({15, 0}), 1);
}

TEST(OptionReaderTest, SaysWhatIsWrongFirst) {
  const auto message = [](policy::AlgorithmSpec spec) {
    spec.name = "x";
    const absl::Status status = Parse(spec).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message({}), "algorithm.count is absent; expected a value (algorithm \"x\")");
  EXPECT_EQ(message({.options = {{"count", 7.0}}}),
            "algorithm.count is a number; expected an integer (algorithm \"x\")");
  EXPECT_EQ(message({.options = {{"count", int64_t{7}}, {"rate", 1.0}}}),
            "algorithm.rate is a number; expected a schedule (algorithm \"x\")");
  EXPECT_EQ(message({.options = {{"count", int64_t{7}}, {"clip", true}}}),
            "algorithm.clip is a bool; algorithm \"x\" has no such option, expected one of count, flag, number, rate, "
            "text");
}

TEST(OptionReaderTest, PointsOfASchedule) {
  const auto check = [](std::vector<policy::SchedulePoint> points) {
    return CheckSchedule(
        "lr", LinearSchedule(policy::ScheduleValue::OfPoints(std::move(points), policy::ScheduleUnit::kEnvSteps)));
  };
  std::vector<policy::SchedulePoint> many;
  for (int64_t i = 0; i < 64; ++i) many.push_back({i, 1});
  EXPECT_TRUE(check(many).ok());
  many.push_back({64, 1});
  EXPECT_EQ(check(many).message(), "algorithm.lr.points is 65; expected at most 64");
  EXPECT_EQ(check({{3, 1}, {3, 2}}).message(),
            "algorithm.lr.points is 3; expected times that ascend, the next one above 3");
  EXPECT_EQ(check({{-1, 1}}).message(), "algorithm.lr.points is -1; expected times that ascend, the next one above -1");
  EXPECT_EQ(check({{1, 1}, {2, -1}}).message(), "algorithm.lr is -1; expected a finite number of at least 0");
}

}  // namespace
}  // namespace troupe::training
