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
  EnvArgs nan(std::map<std::string, ArgValue>{{"ratio", std::nan("")}});
  EXPECT_FALSE(nan.GetDouble("ratio", 0, 0, 1).ok());
}

TEST(EnvArgsTest, NamesTheNearestKnownArgument) {
  EnvArgs args(std::map<std::string, ArgValue>{{"local_ration", 0.5}});
  EXPECT_THAT(std::string(args.CheckAllKnown("spread").message()),
              HasSubstr("spread has no argument 'local_ration', it takes none"));
  ASSERT_TRUE(args.GetDouble("local_ratio", 0.5, 0, 1).ok());
  ASSERT_TRUE(args.GetInt("N", 3, 1, 5).ok());
  EXPECT_THAT(std::string(args.CheckAllKnown("spread").message()), HasSubstr("did you mean 'local_ratio'?"));
  EnvArgs far(std::map<std::string, ArgValue>{{"zzzzzzzz", true}});
  ASSERT_TRUE(far.GetInt("N", 3, 1, 5).ok());
  EXPECT_THAT(std::string(far.CheckAllKnown("spread").message()), HasSubstr("expected one of N"));
}

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
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("no environment 'mpe/simple_spred', did you mean 'mpe/simple_spread'?"));
  EXPECT_THAT(std::string(registry.Make("q", EnvArgs()).status().message()),
              HasSubstr("expected one of cartpole, mpe/simple_spread"));

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
