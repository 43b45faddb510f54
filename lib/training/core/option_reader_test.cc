#include "lib/training/core/option_reader.h"

#include <optional>
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
  double rate = 1;
  std::optional<double> other_rate;
  absl::Status status;
};

Read Parse(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {}) {
  Read read;
  OptionReader reader(spec, now);
  reader.Read("flag", &read.flag);
  reader.Read("number", &read.number);
  reader.Read("text", &read.text);
  reader.Read("rate", &read.rate);
  reader.Read("other_rate", &read.other_rate);
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
                                      {"rate", policy::ScheduleValue{1, 2, 30}},
                                      {"other_rate", 4.0}}},
                         {.env_steps = 15});
  EXPECT_TRUE(all.status.ok()) << all.status;
  EXPECT_FALSE(all.flag);
  EXPECT_EQ(all.count, 7);
  EXPECT_EQ(all.number, 2.5);
  EXPECT_EQ(all.text, "b");
  EXPECT_EQ(all.rate, 1.5);
  EXPECT_EQ(all.other_rate, 4);

  const Read few = Parse({.name = "x", .options = {{"count", int64_t{7}}}});
  EXPECT_TRUE(few.status.ok()) << few.status;
  EXPECT_TRUE(few.flag);
  EXPECT_EQ(few.number, 0.5);
  EXPECT_EQ(few.text, "a");
  EXPECT_EQ(few.rate, 1);
  EXPECT_FALSE(few.other_rate.has_value());
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
  EXPECT_EQ(message({.options = {{"count", int64_t{7}}, {"rate", true}}}),
            "algorithm.rate is a bool; expected a number, or a schedule (algorithm \"x\")");
  EXPECT_EQ(message({.options = {{"count", int64_t{7}}, {"clip", true}}}),
            "algorithm.clip is a bool; algorithm \"x\" has no such option, expected one of count, flag, number, "
            "other_rate, rate, text");
}

}  // namespace
}  // namespace troupe::training
