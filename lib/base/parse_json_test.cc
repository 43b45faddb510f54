#include "lib/base/parse_json.h"

#include <malloc.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

using testing::HasSubstr;

std::string ErrorOf(std::string_view text, JsonLimits limits) {
  if (limits.max_bytes == 0) limits.max_bytes = 1 << 20;
  const auto parsed = ParseJson(text, limits);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(ParseJsonTest, GivesWhatTheTextSays) {
  const auto parsed = ParseJson(R"({"a": [1, 2.5, null], "b": {"c": "d"}})", {.max_bytes = 100});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->dump(), R"({"a":[1,2.5,null],"b":{"c":"d"}})");
}

TEST(ParseJsonTest, LimitsAreExact) {
  EXPECT_TRUE(ParseJson("[[[]]]", {.max_bytes = 6, .max_depth = 3, .max_values = 3}).ok());
  EXPECT_THAT(ErrorOf("[[[]]]", {.max_bytes = 5}), HasSubstr("has 6 bytes, expected at most 5"));
  EXPECT_THAT(ErrorOf("[[[]]]", {.max_depth = 2}), HasSubstr("nested more than 2 deep"));
  EXPECT_THAT(ErrorOf(R"({"a":{"b":{"c":1}}})", {.max_depth = 2}), HasSubstr("nested more than 2 deep"));
  EXPECT_THAT(ErrorOf("[[[]]]", {.max_values = 2}), HasSubstr("more than 2 values"));
  EXPECT_THAT(ErrorOf(R"({"a": 1})", {.max_values = 2}), HasSubstr("more than 2 values")) << "a key counts";
  EXPECT_THAT(ErrorOf(std::string(5000000, '['), {.max_bytes = 10000000}), HasSubstr("nested"));
}

// nlohmann's parser with a callback goes through a whole object after each container in it: hours for this text.
TEST(ParseJsonTest, AnObjectOfManyContainersIsReadInOneGo) {
  constexpr int kMembers = 1000000;
  std::string text = "{";
  for (int i = 0; i < kMembers; ++i) absl::StrAppend(&text, i == 0 ? "\"" : ",\"", i, "\":{}");
  text += "}";
  {
    const auto parsed = ParseJson(text, {.max_bytes = text.size(), .max_values = 2 * kMembers + 1});
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->size(), static_cast<size_t>(kMembers));
    EXPECT_TRUE(parsed->at("77").is_object());
  }
  ::malloc_trim(0);  // other tests of this program measure its memory
}

TEST(ParseJsonTest, TheLastOfTwoMembersOfOneNameCounts) {
  const auto parsed = ParseJson(R"({"a": [1, {"b": 2}], "a": {"c": 3}, "d": []})", {.max_bytes = 100});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->dump(), R"({"a":{"c":3},"d":[]})");
}

TEST(ParseJsonTest, WhatIsNotWantedCostsNothing) {
  JsonLimits limits{.max_bytes = 1000, .max_values = 11};
  limits.keep = [](int depth, const std::string& key) { return depth != 1 || key != "skip"; };
  const std::string many = "[" + std::string(300, '1') + R"(,[1,2,3,4,5,6,7,8,9],{"x":1,"y":{"skip":2}},1,2,3,4,5])";
  for (const std::string& skipped : {many, R"({"x": )" + many + "}", std::string("1"), std::string("\"text\"")}) {
    const auto parsed = ParseJson(R"({"a": [1, {"skip": 2}], "skip": )" + skipped + R"(, "b": {"c": 3}})", limits);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << skipped;
    EXPECT_EQ(parsed->dump(), R"({"a":[1,{"skip":2}],"b":{"c":3}})");
    // Behind it everything counts again.
    EXPECT_FALSE(ParseJson(R"({"skip": )" + skipped + R"(, "b": [1,2,3,4,5,6,7,8,9,10,11]})", limits).ok());
    EXPECT_FALSE(ParseJson(R"([{"a": 0, "b": [1, 2, 3, 4, 5], "skip": )" + skipped + R"(}, 4, 5, 6, 7])", limits).ok());
  }
  EXPECT_THAT(ErrorOf(R"({"skip": )" + std::string(20, '[') + std::string(20, ']') + "}", limits), HasSubstr("nested"));
}

TEST(ParseJsonTest, AnIntegerIsWrittenAsOne) {
  const auto parsed = ParseJson(R"({"least": -9223372036854775808, "most": 9223372036854775807})", {.max_bytes = 100});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(JsonInteger(parsed->at("least")), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(JsonInteger(parsed->at("most")), std::numeric_limits<int64_t>::max());
  for (const char* text : {"1e300", "33333333333333333333333333333333", "1.0", "true", "\"1\"", "null", "[1]"}) {
    const auto other = ParseJson(text, {.max_bytes = 100});
    ASSERT_TRUE(other.ok()) << text;
    EXPECT_THROW(JsonInteger(*other), nlohmann::json::exception) << text;
  }
}

TEST(ParseJsonTest, NothingOfTheTextIsInAnError) {
  for (const std::string& text : {std::string("root:x:0"), std::string("{\"root\" root}"), std::string("[1, \"root"),
                                  std::string("[1e999, \"root\"]"), std::string("\"root\xff\""), std::string()}) {
    EXPECT_THAT(ErrorOf(text, {}), testing::Not(HasSubstr("root"))) << text;
  }
  EXPECT_THAT(ErrorOf("[1, 2 root]", {}), HasSubstr("is not JSON from byte "));
}

}  // namespace
}  // namespace troupe::base
