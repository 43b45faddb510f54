#include "lib/run/episode_door.h"

#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>

#include "lib/base/await.h"
#include "lib/base/exit_code.h"
#include "lib/config/run_config.h"
#include "lib/env/registry.h"
#include "lib/policy/policy_spec.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

class EpisodeDoorTest : public ::testing::Test {
 protected:
  static config::ResolvedRun Run(const std::string& address) {
    const absl::StatusOr<config::RunConfig> config = config::RunConfig::FromYaml(
        "env: {external: {address: \"" + address +
            "\", spaces: {cart: {obs_space: \"Box(-1, 1, [4])\", act_space: \"Discrete(2)\"}}}}",
        "run.yaml", {});
    EXPECT_TRUE(config.ok()) << config.status();
    const env::EnvRegistry registry;
    absl::StatusOr<config::ResolvedRun> run = config::ResolveRun(*config, registry);
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  }

  const storage::ScratchDirectory scratch_;
  const std::string folder_ = scratch_.path() + "/external";
};

TEST_F(EpisodeDoorTest, EachWorkerHasASocketOfItsOwnThatIsTheUsersAlone) {
  const config::ResolvedRun run = Run("");
  const std::string address = "unix:" + folder_ + "/episodes.sock";
  const absl::StatusOr<std::unique_ptr<EpisodeDoor>> first = EpisodeDoor::Open(run, address, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::StatusOr<std::unique_ptr<EpisodeDoor>> second = EpisodeDoor::Open(run, address, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*first)->address(), address);
  EXPECT_EQ((*second)->address(), "unix:" + folder_ + "/episodes-2.sock");
  EXPECT_EQ(ModeOf(folder_), 0700u);
  EXPECT_EQ(ModeOf(folder_ + "/episodes.sock"), 0600u);
  EXPECT_EQ(ModeOf(folder_ + "/episodes-2.sock"), 0600u);
}

TEST_F(EpisodeDoorTest, WhoKnowsNoAddressIsToldTheKey) {
  const absl::Status none = EpisodeDoor::Open(Run(""), "", {}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(none.message().find("env.external.address is empty"), std::string::npos) << none;
  const absl::Status elsewhere = EpisodeDoor::Open(Run("0.0.0.0:0"), "", {}).status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kFailedPrecondition) << "plain text for other machines: " << elsewhere;
  EXPECT_EQ(elsewhere.message().find("env.external.address: "), 0u) << elsewhere;
}

TEST_F(EpisodeDoorTest, ATendedDoorClosesItsBookWhereNobodyWantsWhatIsPlayed) {
  std::atomic<bool> is_over{false};
  TendedDoor door;
  EXPECT_EQ(door.book(), nullptr);
  ASSERT_TRUE(door.Open(Run("unix:" + folder_ + "/episodes.sock"), {},
                        [&is_over] { return is_over ? std::optional(outside::Closing::kRunEnded) : std::nullopt; })
                  .ok());
  ASSERT_NE(door.book(), nullptr);
  EXPECT_TRUE(door.book()->Start({}, "mine").ok());
  EXPECT_FALSE(door.book()->closed());
  is_over = true;
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(absl::Seconds(20)),
                                 [&door] { return door.book()->closed(); }));
  EXPECT_EQ(door.book()->Start({}, "another").status().code(), absl::StatusCode::kUnavailable);
  door.Close();
  door.Close();
}

TEST_F(EpisodeDoorTest, AWorkerThatCannotOpenItDoesNotComeAgain) {
  TendedDoor door;
  const absl::Status refused = door.Open(Run(""), {}, [] { return std::nullopt; });
  EXPECT_EQ(base::ExitCodeOf(refused), base::ExitCode::kRefused) << refused;
  EXPECT_EQ(door.book(), nullptr);
}

// Clients that act by themselves see what the worker sees, or hear that they do not.
TEST_F(EpisodeDoorTest, AWorldThatIsChangedForPoliciesIsRefusedToClientsThatAct) {
  const std::string address = "unix:" + folder_ + "/episodes.sock";
  const absl::StatusOr<std::unique_ptr<EpisodeDoor>> plain = EpisodeDoor::Open(Run(address), "", {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto now = (*plain)->book()->acting().Now();
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_FALSE(now->has_value()) << "nothing has weights yet";
  config::ResolvedRun run = Run(address);
  run.env.wrappers.frame_stack = 2;
  const absl::StatusOr<std::unique_ptr<EpisodeDoor>> stacked = EpisodeDoor::Open(run, "", {});
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  const absl::Status refused = (*stacked)->book()->acting().Now().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("env.crop, grayscale, resize, frame_stack"), std::string::npos) << refused;
}

}  // namespace
}  // namespace troupe::run
