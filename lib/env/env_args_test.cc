#include "lib/env/env_args.h"

#include <cmath>
#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace troupe::env {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

EnvArgs Args() {
  return EnvArgs(
      {{"flag", true}, {"count", int64_t{3}}, {"ratio", 0.5}, {"name", std::string("x")}, {"none", std::monostate()}});
}

TEST(EnvArgsTest, ReadsTypesAndFallsBack) {
  EnvArgs args = Args();
  EXPECT_TRUE(*args.GetBool("flag", false));
  EXPECT_EQ(*args.GetInt("count", 1, 1, 3), 3);
  EXPECT_EQ(*args.GetDouble("ratio", 0, 0, 1), 0.5);
  EXPECT_EQ(*args.GetDouble("count", 0, 0, 5), 3.0);  // an integer is a number too
  EXPECT_EQ(*args.GetString("name", ""), "x");
  EXPECT_EQ(*args.GetOptionalInt("none", 1, 5), -1);
  EXPECT_EQ(*args.GetOptionalInt("count", 1, 5), 3);
  EXPECT_TRUE(args.CheckAllKnown("env").ok());
  EXPECT_EQ(*args.GetInt("absent", 7, 0, 1), 7);
  EXPECT_EQ(*args.GetOptionalInt("absent", 1, 5), -1);
  EXPECT_EQ(*args.GetString("absent", "y"), "y");
}

TEST(EnvArgsTest, SaysWhatIsWrong) {
  EnvArgs args = Args();
  EXPECT_THAT(std::string(args.GetInt("count", 1, 4, 9).status().message()),
              HasSubstr("argument count is 3, expected an integer in [4, 9]"));
  EXPECT_THAT(std::string(args.GetInt("ratio", 1, 0, 9).status().message()),
              HasSubstr("argument ratio is 0.5, expected an integer"));
  EXPECT_THAT(std::string(args.GetInt("none", 1, 0, 9).status().message()), HasSubstr("argument none is null"));
  EXPECT_THAT(std::string(args.GetBool("name", true).status().message()),
              HasSubstr("argument name is 'x', expected true or false"));
  EXPECT_THAT(std::string(args.GetDouble("flag", 0, 0, 1).status().message()),
              HasSubstr("argument flag is true, expected a number in [0, 1]"));
  EXPECT_THAT(std::string(args.GetString("count", "").status().message()), HasSubstr("expected a text"));
  EXPECT_THAT(std::string(args.GetOptionalInt("ratio", 1, 2).status().message()),
              HasSubstr("expected an integer in [1, 2] or null"));
  EnvArgs nan(ArgMap{{"ratio", std::nan("")}});
  EXPECT_FALSE(nan.GetDouble("ratio", 0, 0, 1).ok());
}

TEST(EnvArgsTest, NamesTheNearestKnownArgument) {
  EnvArgs args(ArgMap{{"local_ration", 0.5}});
  EXPECT_THAT(std::string(args.CheckAllKnown("spread").message()),
              HasSubstr("spread has no argument 'local_ration', it takes none"));
  ASSERT_TRUE(args.GetDouble("local_ratio", 0.5, 0, 1).ok());
  ASSERT_TRUE(args.GetInt("N", 3, 1, 5).ok());
  EXPECT_THAT(std::string(args.CheckAllKnown("spread").message()), HasSubstr("did you mean 'local_ratio'?"));
  EnvArgs far(ArgMap{{"zzzzzzzz", true}});
  ASSERT_TRUE(far.GetInt("N", 3, 1, 5).ok());
  EXPECT_THAT(std::string(far.CheckAllKnown("spread").message()), HasSubstr("expected one of N"));
}

ArgValue Row(std::initializer_list<ArgValue> values) { return ArgValue(std::in_place_type<ArgList>, values); }

TEST(EnvArgsTest, ReadsNumbersFromNestedLists) {
  EnvArgs args({{"matrix", Row({Row({int64_t{1}, 2.5, int64_t{-3}}), Row({int64_t{4}, int64_t{5}, int64_t{6}})})},
                {"row", Row({int64_t{7}, 0.5})}});
  const absl::StatusOr<NumberTable> matrix = args.GetNumbers("matrix", {}, {2, 3}, -10, 10);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_THAT(matrix->shape, ElementsAre(2, 3));
  EXPECT_THAT(matrix->values, ElementsAre(1, 2.5, -3, 4, 5, 6));
  constexpr int64_t kAny = EnvArgs::kAnyLength;
  EXPECT_THAT(args.GetNumbers("matrix", {}, {kAny, kAny}, -10, 10)->shape, ElementsAre(2, 3));
  EXPECT_THAT(args.GetNumbers("matrix", {}, {}, -10, 10)->shape, ElementsAre(2, 3)) << "as deep as it is";
  EXPECT_THAT(args.GetNumbers("row", {}, {kAny}, -10, 10)->values, ElementsAre(7, 0.5));
  EXPECT_TRUE(args.CheckAllKnown("env").ok());
  const NumberTable fallback = {.shape = {1}, .values = {9}};
  EXPECT_THAT(args.GetNumbers("absent", fallback, {kAny}, 0, 1)->values, ElementsAre(9));
}

TEST(EnvArgsTest, SaysWhichNumberOfATableIsWrong) {
  EnvArgs args({{"ragged", Row({Row({int64_t{1}, int64_t{2}}), Row({int64_t{3}})})},
                {"word", Row({Row({int64_t{1}, std::string("x")})})},
                {"large", Row({Row({int64_t{1}, int64_t{11}})})},
                {"nan", Row({std::nan("")})},
                {"scalar", int64_t{3}},
                {"deep", Row({Row({Row({int64_t{1}})})})},
                {"empty", ArgList()},
                {"hollow", Row({ArgList()})},
                {"map", ArgMap{{"a", int64_t{1}}}}});
  constexpr int64_t kAny = EnvArgs::kAnyLength;
  const auto error = [&args](std::string_view name, const std::vector<int64_t>& shape) {
    return std::string(args.GetNumbers(name, {}, shape, -10, 10).status().message());
  };
  EXPECT_EQ(error("ragged", {}), "argument ragged[1] is a list of 1, expected a list of 2 numbers in [-10, 10]");
  EXPECT_EQ(error("ragged", {3, 2}),
            "argument ragged is a list of 2, expected a list of 3 lists of 2 numbers in [-10, 10]");
  EXPECT_EQ(error("word", {kAny, kAny}), "argument word[0][1] is 'x', expected a number in [-10, 10]");
  EXPECT_EQ(error("large", {kAny, kAny}), "argument large[0][1] is 11, expected a number in [-10, 10]");
  EXPECT_EQ(error("nan", {}), "argument nan[0] is nan, expected a number in [-10, 10]");
  EXPECT_EQ(error("scalar", {}), "argument scalar is 3, expected a list of numbers in [-10, 10]");
  EXPECT_EQ(error("scalar", {kAny, 2}), "argument scalar is 3, expected a list of lists of 2 numbers in [-10, 10]");
  EXPECT_EQ(error("deep", {1, 1}), "argument deep[0][0] is a list of 1, expected a number in [-10, 10]");
  EXPECT_EQ(error("large", {1, 2, kAny}), "argument large[0][0] is 1, expected a list of numbers in [-10, 10]");
  EXPECT_EQ(error("empty", {}), "argument empty is a list of 0, expected a list of 0 numbers in [-10, 10]");
  EXPECT_EQ(error("hollow", {1, kAny}), "argument hollow[0] is a list of 0, expected a list of numbers in [-10, 10]");
  EXPECT_EQ(error("map", {2}), "argument map is a mapping, expected a list of 2 numbers in [-10, 10]");
  EXPECT_THAT(std::string(args.GetInt("ragged", 0, 0, 1).status().message()),
              HasSubstr("argument ragged is a list of 2, expected an integer"));
  EXPECT_THAT(std::string(args.GetString("map", "").status().message()), HasSubstr("argument map is a mapping"));
}

TEST(ArgTextTest, ScalarsAsTheyAreAndTheRestAsJson) {
  EXPECT_EQ(ArgText(std::monostate()), "null");
  EXPECT_EQ(ArgText(true), "true");
  EXPECT_EQ(ArgText(int64_t{-3}), "-3");
  EXPECT_EQ(ArgText(0.5), "0.5");
  EXPECT_EQ(ArgText(std::string("abc")), "abc");
  EXPECT_EQ(ArgText(Row({Row({int64_t{1}, 2.5}), std::string("a\"b"), std::monostate()})), R"([[1,2.5],"a\"b",null])");
  EXPECT_EQ(ArgText(ArgMap{{"b", Row({})}, {"a", false}}), R"({"b":[],"a":false})");
  EXPECT_EQ(ArgText(Row({kInfinity, std::string("\xff")})), "[null,\"\xEF\xBF\xBD\"]");
}

TEST(ArgsJsonTest, IsExactJson) {
  EXPECT_EQ(*ArgsJson({}), "{}");
  EXPECT_EQ(
      *ArgsJson({{"z", int64_t{9007199254740993}},
                 {"real", 3.0},
                 {"third", 1.0 / 3},
                 {"text", std::string("\xC3\xA4\n\"\0", 5)},
                 {"a b", ArgMap{{"list", Row({true, std::monostate()})}}}}),
      R"({"z":9007199254740993,"real":3.0,"third":0.3333333333333333,"text":"ä\n\"\u0000","a b":{"list":[true,null]}})");
}

TEST(ArgsJsonTest, RefusesWhatJsonCannotHold) {
  EXPECT_EQ(ArgsJson({{"ok", 1.0}, {"x", Row({1.0, ArgMap{{"y", kInfinity}}})}}).status().message(),
            "argument x holds inf, expected finite numbers: JSON has no others");
  EXPECT_EQ(ArgsJson({{"x", std::nan("")}}).status().message(),
            "argument x holds nan, expected finite numbers: JSON has no others");
  EXPECT_EQ(ArgsJson({{"x", Row({std::string("\xff")})}}).status().message(),
            "argument x holds a text that is not UTF-8, expected UTF-8");
}

}  // namespace
}  // namespace troupe::env
