#include "lib/config/foreign_code.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

std::string Lines(const std::vector<ForeignCode>& code) {
  std::string lines;
  for (const ForeignCode& each : code) absl::StrAppend(&lines, each.key, ": ", each.text, "\n");
  return lines;
}

std::string CodeOf(const std::string& yaml) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  return Lines(ForeignCodeOf(*config));
}

TEST(ForeignCodeTest, ANativeRunHasNone) {
  EXPECT_EQ(CodeOf("env: {name: cartpole, python: {interpreter: /opt/python3}}"), "");
}

TEST(ForeignCodeTest, EverythingThatWouldBeExecutedIsNamed) {
  EXPECT_EQ(CodeOf("env: {name: mine, plugin: /opt/mine.so}"), "env.plugin: /opt/mine.so\n");
  EXPECT_EQ(CodeOf("env: {name: 'python:mpe2:env', python: {interpreter: /opt/python3, path: /opt/more}}"),
            "env.python.interpreter: /opt/python3\nenv.python.path: /opt/more\nenv.name: python:mpe2:env\n");
  EXPECT_EQ(CodeOf("env: {name: cartpole, python: {interpreter: py}}\n"
                   "multi_agent: {policies: {a: {class: 'python:m:f'}, b: {}},\n"
                   "              policy_mapping: {function: 'python:m:g'}}"),
            "env.python.interpreter: py\nmulti_agent.policies.a.class: python:m:f\n"
            "multi_agent.policy_mapping: python:m:g\n");
}

TEST(ForeignCodeTest, CallbacksAreExecutedWhereARunIsTrainedAlone) {
  const RunConfig config = *RunConfig::FromYaml("env: {name: cartpole}\ncallbacks: ['python:m:C']", "run.yaml");
  EXPECT_EQ(Lines(ForeignCodeOf(config)), "");
  EXPECT_EQ(Lines(TrainingCodeOf(config)), "env.python.interpreter: (the default)\ncallbacks: python:m:C\n");
  const RunConfig chosen =
      *RunConfig::FromYaml("multi_agent: {policies_to_train: 'python:m:f', observation_fn: 'python:m:g'}", "run.yaml");
  EXPECT_EQ(Lines(ForeignCodeOf(chosen)),
            "env.python.interpreter: (the default)\nmulti_agent.observation_fn: python:m:g\n");
  EXPECT_EQ(Lines(TrainingCodeOf(chosen)),
            "env.python.interpreter: (the default)\nmulti_agent.observation_fn: python:m:g\n"
            "multi_agent.policies_to_train: python:m:f\n");
}

TEST(ForeignCodeTest, TheEnvironmentOfEvaluationsIsExecutedWhereARunTrains) {
  const RunConfig python =
      *RunConfig::FromYaml("env: {name: cartpole}\nevaluation: {env: {name: 'python:m:Env'}}", "run.yaml");
  EXPECT_EQ(Lines(TrainingCodeOf(python)),
            "evaluation.env.python.interpreter: (the default)\nevaluation.env.name: python:m:Env\n");
  const RunConfig plugin = *RunConfig::FromYaml("evaluation: {env: {plugin: /x.so}}", "run.yaml");
  EXPECT_EQ(Lines(TrainingCodeOf(plugin)), "evaluation.env.plugin: /x.so\n");
}

}  // namespace
}  // namespace troupe::config
