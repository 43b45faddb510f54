#include "lib/storage/checkpoint_blocks.h"

#include <filesystem>

#include "lib/policy/policy_entry.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/forge_manifest.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::storage {
namespace {

using learner::LearnerState;
using testing::HasSubstr;

// Written by the last version before format 2: rock_paper_scissors, "main" trained for two updates against "dice",
// which plays at random; hidden layers of 4, normalize_observations, seed 7.
constexpr char kFormat1[] = TROUPE_SOURCE_DIR "/lib/storage/testing/format_1";

void CheckFormat1(const LearnerState& state) {
  EXPECT_EQ(state.env_steps, 128);
  ASSERT_EQ(state.policies.size(), 2u);
  const policy::PolicyState& main = state.policies[0];
  EXPECT_EQ(main.id, policy::PolicyId("main"));
  EXPECT_EQ(main.version, (policy::WeightVersion{1, 2}));
  EXPECT_EQ(main.parameters().size(), 160u);
  EXPECT_EQ(main.parameters()[0], 1.1118203401565552f);
  EXPECT_EQ(main.Floats("adam.exp_avg")[0], 3.892710509489916e-08f);
  EXPECT_EQ(main.Floats("adam.exp_avg_sq")[0], 7.147627216659569e-13f);
  EXPECT_EQ(main.Integer("adam.steps"), 4);
  EXPECT_EQ(main.Integer("trained_rows"), 128);
  EXPECT_EQ(main.Moments("value_moments").mean, std::vector<double>{0.5936090531467926});
  EXPECT_EQ(main.Moments("value_moments").count, 128);
  EXPECT_EQ(main.Moments(policy::kObservationMoments).variance[0], 0.21771240234375);
  EXPECT_EQ(main.blocks.size(), 13u);
  EXPECT_TRUE(state.policies[1].parameters().empty());
}

TEST(CheckpointBlocksTest, ACheckpointOfFormat1IsReadAndWrittenAgainAsTheNewest) {
  FileSystem& fs = FileSystem::Posix();
  const auto old = ReadCheckpoint(fs, kFormat1, {}, 0xbce1952cf3c01079u);
  ASSERT_TRUE(old.ok()) << old.status();
  CheckFormat1(*old);
  EXPECT_EQ(ReadManifest(fs, kFormat1)->format, 1);
  ASSERT_NE(old->table, nullptr);
  const policy::PolicySpec spec = old->table->Find(policy::PolicySlot(0))->spec;
  EXPECT_TRUE(old->policies[0].Validate(spec).ok());
  const auto weights = CheckpointWeights::Open(fs, kFormat1);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto whole = (*weights)->ReadWhole(spec);
  ASSERT_TRUE(whole.ok()) << whole.status();
  policy::ExpectSameBits(*whole, old->policies[0]);

  const ScratchDirectory scratch;
  ASSERT_TRUE(WriteCheckpointFiles(fs, scratch.path(), *old, {}, {1, "", false}).ok());
  EXPECT_EQ(ReadManifest(fs, scratch.path())->format, 2);
  const auto again = ReadCheckpoint(fs, scratch.path(), {}, 1);
  ASSERT_TRUE(again.ok()) << again.status();
  CheckFormat1(*again);
  policy::ExpectSameBits(again->policies[0], old->policies[0]);
}

TEST(CheckpointBlocksTest, TheTensorsOfWeightsAreNamedAsInFormat1) {
  const ScratchDirectory scratch;
  FileSystem& fs = FileSystem::Posix();
  const auto old = ReadCheckpoint(fs, kFormat1, {}, 0);
  ASSERT_TRUE(old.ok()) << old.status();
  ASSERT_TRUE(WriteCheckpointFiles(fs, scratch.path(), *old, {}, {1, "", false}).ok());
  const std::string name = "/policies.safetensors";
  EXPECT_EQ(*fs.ReadFile(scratch.path() + name, 1 << 20), *fs.ReadFile(kFormat1 + name, 1 << 20)) << "byte for byte";
}

class BlocksOfCheckpointTest : public ::testing::TestWithParam<bool> {
 protected:
  BlocksOfCheckpointTest() : state_(StateForTesting(spec_, 400)) {}
  absl::Status Write() { return WriteCheckpointFiles(fs_, scratch_.path(), state_, {&spec_, 1}, {42, "", GetParam()}); }
  absl::StatusOr<LearnerState> Read() { return ReadCheckpoint(fs_, scratch_.path(), {&spec_, 1}, 42); }

  FileSystem& fs_ = FileSystem::Posix();
  const ScratchDirectory scratch_;
  policy::PolicySpec spec_ = policy::SmallSpecForTesting();
  LearnerState state_;
};

TEST_P(BlocksOfCheckpointTest, WhateverAPolicyKeepsComesBack) {
  policy::PolicyState& policy = state_.policies[0];
  policy.blocks.push_back({"target.parameters", {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}});
  policy.blocks.push_back({"temperature", {}, std::vector<double>{0.2}});
  policy.blocks.push_back({"history", {2}, std::vector<int64_t>{INT64_MAX, INT64_MIN}});
  policy.blocks.push_back({"value_moments.counts", {0}, std::vector<int64_t>{}});
  policy.SetInteger("sampled", INT64_MIN);
  ASSERT_TRUE(Write().ok());
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  policy::ExpectSameBits(read->policies[0], policy);
  const auto weights = CheckpointWeights::Open(fs_, scratch_.path());
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto whole = (*weights)->ReadWhole(spec_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  policy::ExpectSameBits(*whole, policy);
}

TEST_P(BlocksOfCheckpointTest, GroupsComeBackBesideThePolicies) {
  spec_.id = policy::PolicyId("groups");  // which is a policy's name as any other
  state_ = StateForTesting(spec_, 400);
  policy::GroupState team{policy::GroupId("team"), {{"mixer", {2}, std::vector<float>{1, 2}}}};
  team.blocks.push_back({"updates", {}, std::vector<int64_t>{9}});
  policy::GroupState other{policy::GroupId("team.2"), {{"mixer", {1}, std::vector<double>{3}}}};
  const policy::GroupState counts_only{policy::GroupId("z"), {{"updates", {}, std::vector<int64_t>{1}}}};
  state_.groups = {team, other, counts_only};
  ASSERT_TRUE(Write().ok());
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  policy::ExpectSameBits(read->policies[0], state_.policies[0]);
  ASSERT_EQ(read->groups.size(), 3u);
  EXPECT_EQ(read->groups[0].id, team.id);
  for (const policy::StateBlock& block : team.blocks) {
    const policy::StateBlock* const found = policy::FindBlock(read->groups[0].blocks, block.name);
    ASSERT_NE(found, nullptr) << block.name;
    EXPECT_EQ(*found, block);
  }
  EXPECT_EQ(read->groups[1], other);
  EXPECT_EQ(read->groups[2], counts_only);
  EXPECT_TRUE(VerifyCheckpoint(fs_, scratch_.path()).ok());

  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) { manifest["state"]["groups"].erase(1); });
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("groups.safetensors holds 1 arrays of no group"));
  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) {
    manifest["state"]["groups"].push_back(manifest["state"]["groups"][1]);
  });
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("names a group twice"));
}

TEST_P(BlocksOfCheckpointTest, AGroupThatNoneCanBeIsNotWritten) {
  state_.groups = {{policy::GroupId("a/b"), {}}};
  EXPECT_EQ(Write().code(), absl::StatusCode::kInvalidArgument);
  state_.groups = {{policy::GroupId("team"), {{"mixer", {2}, std::vector<float>{1}}}}};
  const absl::Status status = Write();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("group \"team\": block \"mixer\" has 1 values"));
}

TEST_P(BlocksOfCheckpointTest, ANewerFormatIsRefusedByName) {
  ASSERT_TRUE(Write().ok());
  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) { manifest["format_version"] = 3; });
  const absl::Status newer = Read().status();
  EXPECT_EQ(newer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(newer.message(), "checkpoint: got format 3, expected 1 or 2: written by a newer troupe");
  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) { manifest["format_version"] = 0; });
  EXPECT_EQ(Read().status().message(), "checkpoint: got format 0, expected 1 or 2");
}

TEST_P(BlocksOfCheckpointTest, ABlockThatIsTwiceThereIsRefused) {
  ASSERT_TRUE(Write().ok());
  ForgeManifest(scratch_.path(),
                [](nlohmann::json& manifest) { manifest["state"]["policies"][0]["integers"]["adam.exp_avg"] = 1; });
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("block \"adam.exp_avg\" is there twice"));
  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) {
    manifest["state"]["policies"][0]["integers"] = {{"Bad name", 1}};
  });
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("has a bad name"));
}

INSTANTIATE_TEST_SUITE_P(StoreSeparately, BlocksOfCheckpointTest, ::testing::Bool());

}  // namespace
}  // namespace troupe::storage
