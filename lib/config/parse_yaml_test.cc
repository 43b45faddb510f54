#include "lib/config/parse_yaml.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::HasSubstr;

std::string YamlErrorOf(const std::string& text) {
  return std::string(ParseYaml(text, "run.yaml", true).status().message());
}

TEST(ParseYamlTest, OneDocument) {
  EXPECT_EQ((*ParseYaml("a: {b: [1, 2]}", "run.yaml", true))["a"]["b"][1].as<int>(), 2);
  EXPECT_TRUE(ParseYaml("", "run.yaml", true)->IsNull());
  EXPECT_THAT(YamlErrorOf("a: 1\n---\nb: 2\n"),
              HasSubstr("run.yaml:2:1: not valid YAML: a second document begins, expected one"));
  EXPECT_THAT(YamlErrorOf("a: [1"), HasSubstr("run.yaml:1:"));
}

TEST(ParseYamlTest, TextsThatYamlCppNeverEnds) {
  for (const char* text : {",", "]", "a: 1\n,"}) EXPECT_FALSE(ParseYaml(text, "run.yaml", true).ok()) << text;
}

TEST(ParseYamlTest, DepthHasABound) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseYaml(nested(kMaxYamlDepth), "run.yaml", true).ok());
  EXPECT_THAT(YamlErrorOf(nested(kMaxYamlDepth + 1)),
              HasSubstr("run.yaml:1:65: not valid YAML: got more than 64 levels"));
  EXPECT_FALSE(ParseYaml(std::string(1 << 19, '['), "run.yaml", true).ok());
}

TEST(ParseYamlTest, AliasesCountAsWhatTheyStandFor) {
  EXPECT_EQ((*ParseYaml("a: &x {b: 1}\nc: *x", "run.yaml", true))["c"]["b"].as<int>(), 1);
  std::string laughs = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    absl::StrAppend(&laughs, "a", i, ": &a", i, " [");
    for (int k = 0; k < 9; ++k) absl::StrAppend(&laughs, k == 0 ? "" : ", ", "*a", i - 1);
    absl::StrAppend(&laughs, "]\n");
  }
  EXPECT_THAT(YamlErrorOf(laughs), HasSubstr("got more than 200000 values, expected fewer"));
  EXPECT_THAT(YamlErrorOf("a: &x [*x]"), HasSubstr("an alias stands inside of what it stands for"));
}

}  // namespace
}  // namespace troupe::config
