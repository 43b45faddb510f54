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

TEST(ParseYamlTest, ErrorsShowTheLineAndWhatToDo) {
  EXPECT_EQ(
      YamlErrorOf("algorithm:\n\tlr: 1\n"),
      "run.yaml:2:1: not valid YAML: a tab indents the line: got \"\\x09lr: 1\", expected spaces; put two spaces in "
      "the tab's place");
  EXPECT_THAT(YamlErrorOf("a: {b: 1\nc: 2\n"), HasSubstr("; close every [ and {"));
  EXPECT_THAT(
      YamlErrorOf("a: b: c\n"),
      HasSubstr("run.yaml:1:5: not valid YAML: illegal map value: got \"a: b: c\", expected KEY: VALUE a line; put "
                "a space behind the colon of a key, and write text with a colon in quotes"));
  EXPECT_THAT(YamlErrorOf("a:\n  b: 1\n c: 2\n"),
              HasSubstr("got \" c: 2\", expected KEY: VALUE a line; indent the keys"));
  EXPECT_LT(YamlErrorOf("a: b: " + std::string(10000, 'x')).size(), 400u);
}

TEST(ParseYamlTest, ErrorsHideWhatOthersSignInWith) {
  const std::string text = "experiment: {wandb_kwargs: {api_key: secret}\n";
  EXPECT_EQ(YamlErrorOf(text).find("secret"), std::string::npos);
  const absl::Status overriding = ParseYaml("[secret", "--set experiment.wandb_kwargs", false).status();
  EXPECT_EQ(std::string(overriding.message()).find("secret"), std::string::npos) << overriding;
}

TEST(ParseYamlTest, ATabIsFoundInALongTextAtOnce) {
  std::string text;
  for (int i = 0; i < 90000; ++i) text += "a: 1\n";
  EXPECT_THAT(YamlErrorOf(text + "b: [\n\t}"), HasSubstr("a tab indents the line"));
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
