// The schema's defaults, as a trainer gets them, and those of algorithms' structs: one default a key.

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "lib/config/resolved_run.h"
#include "lib/envs/register_all.h"
#include "lib/training/a2c/a2c_options.h"
#include "lib/training/algorithm_options.h"
#include "lib/training/appo/appo.h"
#include "lib/training/custom/custom_options.h"
#include "lib/training/impala/impala.h"
#include "lib/training/ppo/ppo_options.h"
#include "lib/training/pqn/pqn_options.h"
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

/// What a policy of cartpole is trained by, with nothing but the algorithm's name given.
policy::AlgorithmSpec Configured(const std::string& name, const std::string& more = "") {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const auto config =
      config::RunConfig::FromYaml("env: {name: cartpole}\nalgorithm: {name: " + name + more + "}", "run.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  const auto run = config::ResolveRun(*config, registry);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? run->algorithms[0] : policy::AlgorithmSpec();
}

/// A loss, which is nowhere, as a worker is told one.
const std::string kLoss = ", loss: 'sha256:" + std::string(64, 'a') + "'";

/// Defaults that are worked out for a policy.
constexpr const char* kAuto[] = {"minibatch_size", "minibatch_by", "entropy_coeff"};

void ExpectSame(const policy::AlgorithmSpec& configured, const policy::AlgorithmSpec& of_struct) {
  EXPECT_EQ(configured.name, of_struct.name);
  for (const auto& [key, value] : configured.options) {
    const auto found = of_struct.options.find(key);
    ASSERT_NE(found, of_struct.options.end()) << key << " is the schema's alone";
    if (std::find(std::begin(kAuto), std::end(kAuto), key) == std::end(kAuto)) {
      EXPECT_TRUE(found->second == value) << key;
    }
  }
  for (const auto& [key, value] : of_struct.options) {
    EXPECT_EQ(configured.options.count(key), 1u) << key << " is the struct's alone";
  }
}

TEST(AlgorithmDefaultsTest, StructsHaveTheDefaultsOfTheSchema) {
  ExpectSame(Configured("ppo"), training::PpoSpec(training::PpoOptions()));
  ExpectSame(Configured("a2c"), training::A2cSpec(training::A2cOptions()));
  ExpectSame(Configured("appo"), training::AppoSpec(training::AppoOptions()));
  ExpectSame(Configured("impala"), training::ImpalaSpec(training::VtraceOptions()));
  training::CustomOptions custom;
  custom.loss = std::string(64, 'a');
  ExpectSame(Configured("custom", kLoss), training::CustomSpec(custom));
  ExpectSame(Configured("pqn"), training::PqnSpec(training::PqnOptions()));
  // One more is missed above: add it.
  EXPECT_EQ(training::AlgorithmNames(), (std::vector<std::string>{"a2c", "appo", "custom", "impala", "ppo", "pqn"}));
}

TEST(AlgorithmDefaultsTest, EveryNameIsReadByItsAlgorithm) {
  for (const char* name : {"ppo", "ippo", "mappo", "a2c", "ia2c", "maa2c", "pqn", "impala", "appo"}) {
    EXPECT_EQ(training::CheckAlgorithm(Configured(name)), absl::OkStatus()) << name;
  }
  for (const char* name : {"custom", "macustom"}) {
    EXPECT_EQ(training::CheckAlgorithm(Configured(name, kLoss)), absl::OkStatus()) << name;
  }
}

}  // namespace
}  // namespace troupe::integration
