#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/space/space.h"

namespace troupe::space {
namespace {

using ::testing::HasSubstr;

/// A random space of at most `depth` levels.
Space RandomSpace(base::PhiloxSequence& random, int depth) {
  using tensor::DType;
  switch (random.Below(depth > 0 ? 8 : 6)) {
    case 0:
      return *Space::Box(random.Uniform(-1e9, 0), random.Below(2) == 0 ? HUGE_VAL : random.Uniform(0, 1e-9),
                         {1 + random.Below(3), 2});
    case 1:
      return *Space::Box({random.Uniform(-1, 0), -HUGE_VAL}, {random.Uniform(), 1e300}, {2}, DType::kFloat64);
    case 2:
      return *Space::Box(0, 255, {2, 2}, random.Below(2) == 0 ? DType::kUint8 : DType::kInt64);
    case 3:
      return *Space::Discrete(1 + random.Below(9), static_cast<int64_t>(random.Below(9)) - 4);
    case 4:
      return *Space::MultiDiscrete({1 + random.Below(4), 1 + random.Below(4)});
    case 5:
      return *Space::MultiBinary(1 + random.Below(4));
    case 6:
      return *Space::Tuple({RandomSpace(random, depth - 1), RandomSpace(random, depth - 1)});
    default:
      return *Space::Dict(
          {{"a_1", RandomSpace(random, depth - 1)}, {"odd \"key\\: {", RandomSpace(random, depth - 1)}});
  }
}

TEST(ParseSpaceTest, ReadsWhatToStringWrites) {
  base::PhiloxSequence random(base::PhiloxKey::Make(3, base::RandomStream::kTest), {0, 0, 0, 0});
  for (int i = 0; i < 500; ++i) {
    const Space space = RandomSpace(random, 3);
    const absl::StatusOr<Space> parsed = ParseSpace(space.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), space.ToString());
    EXPECT_EQ(parsed->flat_size(), space.flat_size());
    EXPECT_EQ(parsed->flat_dtype(), space.flat_dtype());
  }
}

TEST(ParseSpaceTest, TakesWhatPeopleWrite) {
  EXPECT_EQ(*ParseSpace("  Discrete( 5 ,start = 1 ) "), *Space::Discrete(5, 1));
  EXPECT_EQ(*ParseSpace("Box([0, 1], [2, inf])"), *Space::Box({0, 1}, {2, HUGE_VAL}, {2}));
  EXPECT_EQ(*ParseSpace("Box(0, 1, [2,2], float32)"), *Space::Box(0, 1, {2, 2}));
  EXPECT_EQ(*ParseSpace("Box(-inf, inf, (4,), float32)"), *Space::Box(-HUGE_VAL, HUGE_VAL, {4}))
      << "as Gymnasium prints it";
  EXPECT_EQ(*ParseSpace("Box(0, 1, (2, 3))"), *Space::Box(0, 1, {2, 3}));
  EXPECT_FALSE(ParseSpace("Box(0, 1, ())").ok());
  EXPECT_FALSE(ParseSpace("Box(0, 1, (,))").ok());
  EXPECT_EQ(*ParseSpace("Dict{b: Discrete(2), a: MultiBinary(1)}"),
            *ParseSpace("Dict{a:MultiBinary(1),b:Discrete(2)}"));
}

TEST(ParseSpaceTest, SaysWhatIsWrongAndWhere) {
  const auto message = [](std::string_view text) { return std::string(ParseSpace(text).status().message()); };
  EXPECT_THAT(message("Bix(0, 1, [2])"), HasSubstr("column 1: got Bix(0, 1, [2, expected Box, Discrete"));
  EXPECT_THAT(message("Discrete(five)"), HasSubstr("column 10: got five), expected a 64-bit integer"));
  EXPECT_THAT(message("Discrete(5"), HasSubstr("got the end, expected ')'"));
  EXPECT_THAT(message("Discrete(5) x"), HasSubstr("expected the end"));
  EXPECT_THAT(message("Discrete(0)"), HasSubstr("n = 0"));
  EXPECT_THAT(message("Discrete(99999999999999999999)"), HasSubstr("64-bit integer"));
  EXPECT_THAT(message("Box(0, 1)"), HasSubstr("no shape"));
  EXPECT_THAT(message("Box(nan, 1, [1])"), HasSubstr("low <= high"));
  EXPECT_THAT(message("Box(0, 1, [2], int16)"), HasSubstr("uint8"));
  EXPECT_THAT(message("Dict{\"a: Discrete(2)}"), HasSubstr("closing quote"));
  EXPECT_THAT(message("Dict{}"), HasSubstr("a key"));
  EXPECT_THAT(message(""), HasSubstr("got the end"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "Tuple(";
  EXPECT_THAT(message(deep), HasSubstr("nested deeper"));
}

std::string Repeated(std::string_view item, int count) {
  std::string text(item);
  for (int i = 1; i < count; ++i) text.append(", ").append(item);
  return text;
}

TEST(ParseSpaceTest, PartsHaveALimit) {
  const auto message = [](std::string_view text) { return std::string(ParseSpace(text).status().message()); };
  constexpr int kMost = 65536;
  EXPECT_EQ(message("MultiDiscrete([" + Repeated("2", kMost) + "])"), "");
  EXPECT_EQ(message("MultiDiscrete([" + Repeated("2", kMost + 1) + "])"),
            "MultiDiscrete has too many parts: expected at most 65536");
  EXPECT_EQ(message("Tuple(" + Repeated("Discrete(2)", kMost - 1) + ")"), "") << "the tuple is one of them";
  EXPECT_EQ(message("Tuple(" + Repeated("Discrete(2)", kMost) + ")"),
            "space holds too many others: expected at most 65536");
  EXPECT_EQ(message("Dict{a: Tuple(" + Repeated("Discrete(2)", kMost - 2) + ")}"), "");
  EXPECT_EQ(message("Dict{a: Tuple(" + Repeated("Discrete(2)", kMost - 1) + ")}"),
            "space holds too many others: expected at most 65536");
  const std::string half = "MultiDiscrete([" + Repeated("2", kMost / 2) + "])";
  EXPECT_EQ(message("Tuple(" + half + ", " + half + ")"), "Dict or Tuple has too many parts: expected at most 65536");
  EXPECT_EQ(message("MultiBinary(8388608)"), "") << "one part, whatever its size";
}

/// No text may crash the reader: every cut and every changed character of a good one is either read or refused.
TEST(ParseSpaceTest, SurvivesDamagedText) {
  const std::string good =
      "Dict{a: Box([0, 1], [2, inf], [2], int32), \"b\\\"\": Tuple(Discrete(5, 1), MultiDiscrete([3, 4]), "
      "MultiBinary(2))}";
  for (size_t i = 0; i <= good.size(); ++i) {
    if (i < good.size()) {
      EXPECT_FALSE(ParseSpace(good.substr(0, i)).ok());
    }
    for (const char c : {'\0', ' ', '(', '}', '[', '9', 'x', '"', '\\', '-'}) {
      std::string damaged = good;
      if (i < good.size()) damaged[i] = c;
      const absl::StatusOr<Space> parsed = ParseSpace(damaged);
      EXPECT_TRUE(parsed.ok() || !parsed.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace troupe::space
