// Configurations in files, and the files that they name.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "lib/config/run_config.h"
#include "proto/troupe/v1/config.pb.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

TEST(RunConfigTest, APluginsPathIsRelativeToWhereItIsWritten) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "troupe_plugin_path";
  fs::create_directories(folder / "runs");
  const auto plugin_of = [&](const std::string& text, const std::vector<std::string>& overrides) {
    const fs::path path = folder / "runs" / "run.yaml";
    std::ofstream(path) << text;
    const absl::StatusOr<RunConfig> config = RunConfig::FromFile(path.string(), overrides);
    EXPECT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(*RunConfig::FromYaml(config->ToYaml(), "welcome"), *config) << "a worker reads the same path";
    return config->proto().env().plugin();
  };
  EXPECT_EQ(plugin_of("env: {name: a, plugin: ../lib/a.so}", {}), folder / "lib" / "a.so");
  EXPECT_EQ(plugin_of("env: {name: a, plugin: /opt/a.so}", {}), "/opt/a.so");
  EXPECT_EQ(plugin_of("env: {name: a, plugin: x.so}", {"env.plugin=lib/a.so"}), fs::current_path() / "lib" / "a.so");
  EXPECT_EQ(plugin_of("env: {name: a}", {}), "");
  EXPECT_EQ(RunConfig::FromYaml("env: {name: a, plugin: a.so}", "text")->proto().env().plugin(), "a.so");
  fs::remove_all(folder);
}

TEST(RunConfigTest, FilesOfPythonAreRelativeToWhereTheyAreWritten) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "troupe_python_files";
  fs::create_directories(folder / "runs");
  const auto read = [&](const std::string& text, const std::vector<std::string>& overrides) {
    const fs::path path = folder / "runs" / "run.yaml";
    std::ofstream(path) << text;
    const absl::StatusOr<RunConfig> config = RunConfig::FromFile(path.string(), overrides);
    EXPECT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(RunConfig::FromYaml(config->ToYaml(), "again")->ToYaml(), config->ToYaml());
    std::pair<std::string, std::string> name_and_folder(config->proto().env().name(),
                                                        config->proto().env().python().folder());
    return name_and_folder;
  };
  using Pair = std::pair<std::string, std::string>;
  const std::string runs = (folder / "runs").string();
  const std::string here = fs::current_path().string();
  EXPECT_EQ(read("env: {name: 'python:my/env.py:Env'}", {}), Pair("python:my/env.py:Env", runs))
      << "the name stays as workers permit it";
  EXPECT_EQ(read("env: {name: cartpole}", {"env.name='python:env.py'"}), Pair("python:env.py", here));
  const std::string mapped =
      "env: {name: a}\nmulti_agent: {policies: [p], policy_mapping: {function: 'python:choose.py:f'}}";
  EXPECT_EQ(read(mapped, {}), Pair("a", runs));
  EXPECT_EQ(read(mapped, {"env.name='python:env.py:E'"}), Pair("python:" + here + "/env.py:E", runs));
  EXPECT_EQ(read("env: {name: a}\nmulti_agent: {policies: {p: {class: 'python:act.py:f'}}}", {}), Pair("a", runs));
  EXPECT_EQ(read("env: {name: a}\ncallbacks: ['python:watch.py:Watch']", {}), Pair("a", runs));
  // Those of evaluations, and of commands that evaluate, are not found otherwise.
  const auto of_evaluations = [&](const std::string& key, const std::vector<std::string>& overrides) {
    std::ofstream(folder / "runs" / "run.yaml") << "env: {name: a}\nevaluation: {env: {" << key << "}}";
    return RunConfig::FromFile((folder / "runs" / "run.yaml").string(), overrides)->EvaluationOverrides()[0];
  };
  EXPECT_EQ(of_evaluations("name: 'python:env.py:E'", {}), "env.name=\"python:" + runs + "/env.py:E\"");
  EXPECT_EQ(of_evaluations("name: 'python:env:E'", {}), "env.name=\"python:env:E\"");
  EXPECT_EQ(of_evaluations("plugin: a.so", {}), "env.plugin=\"" + runs + "/a.so\"");
  // Nothing to look for, or somebody has said where.
  EXPECT_EQ(read("env: {name: 'python:my_env:Env'}", {}), Pair("python:my_env:Env", ""));
  EXPECT_EQ(read("env: {name: 'python:/abs/env.py'}", {}), Pair("python:/abs/env.py", ""));
  EXPECT_EQ(read("env: {name: 'python:env.py', python: {folder: /there}}", {}), Pair("python:env.py", "/there"));
  fs::remove_all(folder);
}

TEST(RunConfigTest, FileErrors) {
  const absl::StatusOr<RunConfig> missing = RunConfig::FromFile("/nonexistent/run.yaml");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(
      missing.status().message(),
      "/nonexistent/run.yaml: cannot be read: No such file or directory, expected a configuration (YAML); `troupe "
      "config defaults` prints one, and examples/ has some");
  EXPECT_EQ(RunConfig::FromFile("/").status().message(),
            "/: is a directory, expected a YAML file; name one of the files in it");
  const std::string path = testing::TempDir() + "/run_config_test.yaml";
  std::ofstream(path) << "seed: 5\n";
  const absl::StatusOr<RunConfig> config = RunConfig::FromFile(path, {"num_workers=0"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->proto().seed(), 5);
  EXPECT_EQ(config->Where("seed"), path + ":1:7");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace troupe::config
