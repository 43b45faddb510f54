// Every registered environment, once native and once through libtroupe_envs.so and the plug-in loader: the same bytes.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/checked_env.h"
#include "lib/env/conformance.h"
#include "lib/env/plugin_env.h"
#include "lib/env/registry.h"
#include "lib/env/vector_env.h"
#include "lib/envs/register_all.h"

namespace troupe {
namespace {

using env::ArgValue;
using ::testing::HasSubstr;
using Args = env::ArgMap;

env::EnvRegistry Registry() {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  return registry;
}

std::shared_ptr<const env::EnvPlugin> Library() {
  absl::StatusOr<std::shared_ptr<const env::EnvPlugin>> plugin = env::EnvPlugin::Load(TROUPE_ENVS_LIBRARY);
  EXPECT_TRUE(plugin.ok()) << plugin.status();
  return *std::move(plugin);
}

/// Native environments and those of the library, taking turns: CheckConformance makes two and compares them step by
/// step, so it compares one of each kind.
env::ConformanceReport Compare(const std::string& name, const Args& args, uint64_t seed) {
  const env::EnvRegistry registry = Registry();
  const std::shared_ptr<const env::EnvPlugin> library = Library();
  bool native = false;
  return env::CheckConformance(
      [&] {
        native = !native;
        return native ? registry.Make(name, env::EnvArgs(args)) : library->Make(name, env::EnvArgs(args));
      },
      {.seed = seed, .num_envs = 3, .episodes = 6});
}

TEST(PluginRoundTripTest, TheLibraryOffersTheWholeRegistry) {
  const env::EnvRegistry registry = Registry();
  const std::shared_ptr<const env::EnvPlugin> library = Library();
  ASSERT_EQ(library->entries().size(), registry.entries().size());
  for (size_t i = 0; i < registry.entries().size(); ++i) {
    EXPECT_EQ(library->entries()[i].name, registry.entries()[i].name);
    EXPECT_EQ(library->entries()[i].description, registry.entries()[i].description);
  }
}

TEST(PluginRoundTripTest, EveryEnvironmentIsTheSameThroughTheBorder) {
  const env::EnvRegistry registry = Registry();
  for (const env::EnvRegistry::Entry& entry : registry.entries()) {
    for (const uint64_t seed : {0, 77}) {
      const env::ConformanceReport report = Compare(entry.name, {}, seed);
      EXPECT_TRUE(report.ok()) << entry.name << "\n" << report.ToString();
      EXPECT_EQ(report.episodes(), 18) << entry.name;
    }
  }
}

TEST(PluginRoundTripTest, WithOptions) {
  const std::vector<std::pair<std::string, Args>> cases = {
      {"mpe/simple_spread", {{"continuous_actions", true}, {"benchmark_data", true}, {"local_ratio", 0.1}}},
      {"mpe/simple_spread", {{"num_agent_neighbors", int64_t{1}}, {"num_landmark_neighbors", ArgValue()}}},
      {"testing/turn_based", {{"state", std::string("none")}}},
      {"testing/turn_based", {{"state", std::string("per_agent")}}},
  };
  for (const auto& [name, args] : cases) {
    const env::ConformanceReport report = Compare(name, args, 1);
    EXPECT_TRUE(report.ok()) << name << "\n" << report.ToString();
  }
}

TEST(PluginRoundTripTest, ErrorsComeThroughAsTheyAre) {
  const std::shared_ptr<const env::EnvPlugin> library = Library();
  const absl::Status range = library->Make("mpe/simple_spread", env::EnvArgs(Args{{"N", int64_t{0}}})).status();
  EXPECT_EQ(range.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(range.message()), HasSubstr("argument N is 0, expected an integer in [1, 512]"));
  for (const std::string fault : {"throw", "bad_status"}) {
    const Args args = {{"fault", fault}, {"at_step", int64_t{3}}};
    const auto check = [&](const auto& source) {
      const env::ConformanceReport report =
          env::CheckConformance([&] { return source.Make("testing/faulty", env::EnvArgs(args)); });
      EXPECT_FALSE(report.ok());
      return report.ToString();
    };
    EXPECT_EQ(check(*library), check(Registry())) << fault;
  }
}

}  // namespace
}  // namespace troupe
