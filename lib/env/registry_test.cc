#include "lib/env/registry.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_args.h"
#include "lib/env/testing/scripted_env.h"

namespace troupe::env {
namespace {

using ::testing::HasSubstr;

EnvRegistry::Entry Entry(std::string name, int agents) {
  return {.name = std::move(name),
          .description = "d",
          .factory = [agents](EnvArgs args) -> absl::StatusOr<std::unique_ptr<MultiAgentEnv>> {
            TROUPE_ASSIGN_OR_RETURN(const int64_t n, args.GetInt("N", agents, 0, 5));
            TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("it"));
            return std::make_unique<testing::ScriptedEnv>(
                testing::SmallSpec(static_cast<int>(n)),
                [](int64_t, ActionRows, StepWriter&) { return absl::OkStatus(); });
          }};
}

TEST(EnvRegistryTest, MakesByNameAndExplainsItself) {
  EnvRegistry registry;
  registry.Register(Entry("mpe/simple_spread", 2));
  registry.Register(Entry("cartpole", 1));
  ASSERT_EQ(registry.entries().size(), 2u);
  EXPECT_EQ(registry.entries()[0].name, "cartpole");  // sorted
  EXPECT_EQ((*registry.Make("mpe/simple_spread", EnvArgs()))->spec().num_agents(), 2);

  const absl::Status unknown = registry.Make("mpe/simple_spred", EnvArgs()).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(unknown.message()),
      HasSubstr("no environment 'mpe/simple_spred', expected one that `troupe envs ls` shows, or python:MODULE:NAME; "
                "did you mean 'mpe/simple_spread'?"));
  EXPECT_THAT(std::string(registry.Make("q", EnvArgs()).status().message()),
              HasSubstr("your own is python:FILE.py:CLASS"));

  const absl::Status bad = registry.Make("cartpole", EnvArgs({{"N", int64_t{9}}})).status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("environment cartpole: argument N is 9"));
  // A spec that is none is the environment's fault and is found before anything runs.
  EXPECT_THAT(std::string(registry.Make("cartpole", EnvArgs({{"N", int64_t{0}}})).status().message()),
              HasSubstr("has no agents"));
}

TEST(EnvRegistryDeathTest, ANameTwiceIsOurOwnBug) {
  EnvRegistry registry;
  registry.Register(Entry("a", 1));
  EXPECT_DEATH(registry.Register(Entry("a", 1)), "CHECK|entries_");
}

}  // namespace
}  // namespace troupe::env
