#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lib/config/key_effects.h"
#include "lib/config/resolved_run.h"
#include "lib/config/worker_yaml.h"
#include "lib/envs/register_all.h"
#include "lib/policy/policy_spec.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

std::vector<std::string> Examples(const std::string& folder = TROUPE_SOURCE_DIR "/examples") {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  return paths;
}

absl::StatusOr<ResolvedRun> Resolve(const std::string& path, const std::vector<std::string>& overrides = {}) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const absl::StatusOr<RunConfig> config = RunConfig::FromFile(path, overrides);
  if (!config.ok()) return config.status();
  return ResolveRun(*config, registry);
}

TEST(ExamplesTest, EveryExampleResolvesAndItsCanonicalTextIsTheSameRun) {
  ASSERT_GE(Examples().size(), 3u);
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  for (const std::string& path : Examples()) {
    const absl::StatusOr<ResolvedRun> run = Resolve(path);
    ASSERT_TRUE(run.ok()) << run.status();
    const auto effects = CheckEffects(*run, registry, FileOf::kUser);
    EXPECT_TRUE(effects.ok()) << effects.status();
    const absl::StatusOr<RunConfig> again = RunConfig::FromYaml(run->config.ToYaml(), "welcome");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, run->config);
    const absl::StatusOr<RunConfig> welcome = RunConfig::FromYaml(WelcomeYaml(run->config), "welcome");
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    const absl::StatusOr<ResolvedRun> worker = ResolveRun(*welcome, registry);
    ASSERT_TRUE(worker.ok()) << worker.status();
    EXPECT_EQ(worker->schema.WorkerHash(), run->schema.WorkerHash()) << "a worker would be refused";
  }
}

// Resolving them takes the packages of their environments; reading them does not.
TEST(ExamplesTest, PythonExamplesAreRead) {
  const std::vector<std::string> paths = Examples(TROUPE_SOURCE_DIR "/examples/python");
  EXPECT_GE(paths.size(), 6u);
  for (const std::string& path : paths) {
    const absl::StatusOr<RunConfig> config = RunConfig::FromFile(path, {});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_NE(config->ToYaml().find("python:"), std::string::npos) << path;
  }
}

// The settings that other implementations are measured with; bench/peers compares at exactly these.
TEST(ExamplesTest, SimpleSpreadMappoHasThePeersSetting) {
  const absl::StatusOr<ResolvedRun> run = Resolve(TROUPE_SOURCE_DIR "/examples/simple_spread_mappo.yaml");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->learner.num_envs, 160);
  EXPECT_EQ(run->learner.train_batch_size, 4000);
  EXPECT_EQ(run->algorithms[0].name, "ppo");
  EXPECT_EQ(run->algorithms[0].options.at("minibatch_size"), policy::OptionValue(int64_t{1000}));
  EXPECT_EQ(run->algorithms[0].options.at("num_epochs"), policy::OptionValue(int64_t{10}));
  EXPECT_EQ(run->learner.max_policy_lag, 0);
  ASSERT_EQ(run->policies.size(), 1u);
  EXPECT_EQ(run->policies[0].actor_input_size(), 18);
  EXPECT_EQ(run->policies[0].critic_input_size(), 3 * 18 + 3);
  EXPECT_EQ(run->policies[0].actor.hidden_sizes, (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(run->learner.common_reward, learner::CommonReward::kMean);
}

TEST(ExamplesTest, EnvironmentArgumentOutOfRange) {
  const absl::StatusOr<ResolvedRun> run =
      Resolve(TROUPE_SOURCE_DIR "/examples/simple_spread_mappo.yaml", {"env.args.local_ratio=1.5"});
  EXPECT_EQ(run.status().message(),
            "--set env.args.local_ratio=1.5: env.args.local_ratio: environment mpe/simple_spread: argument local_ratio "
            "is 1.5, expected a number in [0, 1]; the default is 0.5");
}

TEST(DocumentationTest, ConfigurationPageIsWhatTheSchemaSays) {
  std::ifstream file(TROUPE_SOURCE_DIR "/docs/configuration.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(page.find(DefaultsMarkdown()), std::string::npos)
      << "replace the tables of docs/configuration.md by what 'troupe config defaults --markdown' prints";
}

}  // namespace
}  // namespace troupe::config
