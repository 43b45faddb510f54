#include "lib/storage/checkpoint_format.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
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

void ExpectEqual(const LearnerState& a, const LearnerState& b) {
  EXPECT_EQ(a.iteration, b.iteration);
  EXPECT_EQ(a.env_steps, b.env_steps);
  EXPECT_EQ(a.agent_steps, b.agent_steps);
  EXPECT_EQ(a.episodes, b.episodes);
  EXPECT_EQ(a.wall_clock_s, b.wall_clock_s);
  EXPECT_EQ(a.rows.accepted, b.rows.accepted);
  EXPECT_EQ(a.rows.queued, b.rows.queued);
  ASSERT_EQ(a.lanes.size(), b.lanes.size());
  EXPECT_EQ(a.lanes[1].next_episode, b.lanes[1].next_episode);
  EXPECT_EQ(a.watermarks, b.watermarks);
  EXPECT_EQ(a.recent_return_sums, b.recent_return_sums);
  EXPECT_EQ(a.recent_agent_returns, b.recent_agent_returns);
  EXPECT_EQ(a.recent_agent_policies, b.recent_agent_policies);
  EXPECT_EQ(a.rewards_differ, b.rewards_differ);
  EXPECT_EQ(a.best_by, b.best_by);
  EXPECT_EQ(a.best_window, b.best_window);
  ASSERT_EQ(a.policies.size(), b.policies.size());
  for (size_t i = 0; i < a.policies.size(); ++i) {
    EXPECT_EQ(a.policies[i].version, b.policies[i].version);
    policy::ExpectSameBits(a.policies[i], b.policies[i]);
  }
}

class CheckpointFormatTest : public ::testing::TestWithParam<bool> {
 protected:
  absl::Status Write(const LearnerState& state) {
    return WriteCheckpointFiles(FileSystem::Posix(), scratch_.path(), state, specs_, {42, "seed: 1\n", GetParam()});
  }
  const ScratchDirectory scratch_;
  std::vector<policy::PolicySpec> specs_ = {policy::SmallSpecForTesting()};
};

TEST_P(CheckpointFormatTest, RoundTrip) {
  policy::PolicySpec second = policy::SmallSpecForTesting();
  second.id = policy::PolicyId("q");
  second.normalize_observations = true;
  specs_.push_back(second);
  LearnerState state = StateForTesting(specs_[0], 400);
  LearnerState other = StateForTesting(second, 800);
  other.policies[0].SetMoments(policy::kObservationMoments, {5.0, {1, 2, 3}, {4, 5, 6}});
  state.policies.push_back(other.policies[0]);
  ASSERT_TRUE(Write(state).ok());
  const auto read = ReadCheckpoint(FileSystem::Posix(), scratch_.path(), specs_, 42);
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectEqual(*read, state);
  EXPECT_EQ(read->policies[1].Moments(policy::kObservationMoments).variance, (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(FileSystem::Posix().Exists(scratch_.path() + "/policy_1.safetensors"), GetParam());
}

TEST_P(CheckpointFormatTest, AgedRowsAndStrangersEpisodesAreKept) {
  LearnerState state = StateForTesting(specs_[0], 400);
  state.rows.dropped += 9;
  state.rows.accepted += 9;
  state.rows.received += 9;
  state.rows.aged = 7;
  state.iterations = 11;
  state.version = 12;
  state.feed_updates = {{"", 3}, {"replay", 9}};
  state.recent_by_strangers.assign(state.recent_return_sums.size(), 1);
  ASSERT_TRUE(Write(state).ok());
  const auto read = ReadCheckpoint(FileSystem::Posix(), scratch_.path(), specs_, 42);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rows.aged, 7);
  EXPECT_EQ(read->sampled_iterations(), 11);
  EXPECT_EQ(read->published_version(), 12);
  EXPECT_EQ(read->feed_updates, state.feed_updates);
  EXPECT_EQ(read->recent_by_strangers, state.recent_by_strangers);
}

TEST_P(CheckpointFormatTest, AbsentReturnsSurviveAsNaN) {
  LearnerState state = StateForTesting(specs_[0], 400);
  state.recent_agent_returns = {{std::numeric_limits<double>::quiet_NaN(), 1.0}};
  ASSERT_TRUE(Write(state).ok());
  const auto read = ReadCheckpoint(FileSystem::Posix(), scratch_.path(), specs_, 42);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(std::isnan(read->recent_agent_returns[0][0]));
  EXPECT_EQ(read->recent_agent_returns[0][1], 1.0);
}

TEST_P(CheckpointFormatTest, WeightsAloneForAWarmStart) {
  const LearnerState state = StateForTesting(specs_[0], 400);
  ASSERT_TRUE(Write(state).ok());
  const auto weights = ReadPolicyWeights(FileSystem::Posix(), scratch_.path(), specs_[0]);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->parameters(), state.policies[0].parameters());
  EXPECT_EQ(weights->Find("adam.exp_avg"), nullptr);
  EXPECT_EQ(weights->Moments("value_moments").mean, state.policies[0].Moments("value_moments").mean);

  policy::PolicySpec wider = specs_[0];
  wider.actor.hidden_sizes = {5, 4};
  EXPECT_EQ(ReadPolicyWeights(FileSystem::Posix(), scratch_.path(), wider).status().code(),
            absl::StatusCode::kInvalidArgument);
  wider.id = policy::PolicyId("q");
  EXPECT_EQ(ReadPolicyWeights(FileSystem::Posix(), scratch_.path(), wider).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(CheckpointFormatTest, WeightsOfSeveralPoliciesInTheOrderAsked) {
  policy::PolicySpec second = specs_[0];
  second.id = policy::PolicyId("q");
  specs_.push_back(second);
  LearnerState state = StateForTesting(specs_[0], 400);
  state.policies.push_back(StateForTesting(second, 800).policies[0]);
  ASSERT_TRUE(Write(state).ok());
  const auto weights = ReadWeights(FileSystem::Posix(), scratch_.path(), {specs_[1], specs_[0]});
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(weights->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*weights)[i].id, state.policies[1 - i].id);
    EXPECT_EQ((*weights)[i].version, state.policies[1 - i].version);
    EXPECT_EQ((*weights)[i].parameters(), state.policies[1 - i].parameters());
  }
  specs_[1].id = policy::PolicyId("r");
  EXPECT_EQ(ReadWeights(FileSystem::Posix(), scratch_.path(), specs_).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(CheckpointFormatTest, AnotherRunIsRefused) {
  ASSERT_TRUE(Write(StateForTesting(specs_[0], 400)).ok());
  EXPECT_EQ(ReadCheckpoint(FileSystem::Posix(), scratch_.path(), specs_, 43).status().code(),
            absl::StatusCode::kFailedPrecondition);
  specs_[0].id = policy::PolicyId("other");
  EXPECT_EQ(ReadCheckpoint(FileSystem::Posix(), scratch_.path(), specs_, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(CheckpointFormatTest, ARunFromBeforeCriticsConvolvedAllImagesIsToldTheKey) {
  ASSERT_TRUE(Write(StateForTesting(specs_[0], 400)).ok());
  const auto error = [this] {
    return std::string(ReadCheckpoint(FileSystem::Posix(), scratch_.path(), specs_, 43).status().message());
  };
  EXPECT_THAT(error(), ::testing::Not(::testing::HasSubstr("critic_encoder"))) << "no images, no such cause";
  policy::PolicySpec& spec = specs_[0];
  spec.observation_space = *space::Space::Box(0, 255, {12, 12, 3}, tensor::DType::kUint8);
  for (policy::NetworkSpec* network : {&spec.actor, spec.mutable_critic()}) {
    network->encoder = policy::EncoderKind::kCnn;
    network->conv_layers = {{4, 3, 2}};
  }
  EXPECT_THAT(error(), ::testing::Not(::testing::HasSubstr("critic_encoder"))) << "of its own agent's image alone";
  spec.agent_id_size = 2;
  spec.SetCriticInput(policy::NetworkInput::kJointObservation, 2 * (spec.observation_size() + 1));
  EXPECT_THAT(error(), ::testing::HasSubstr("model.critic_encoder=mlp"));
}

// Every single-byte change of every file, and every eighth truncation, is found.
TEST_P(CheckpointFormatTest, EveryFlipAndTruncationIsFound) {
  ASSERT_TRUE(Write(StateForTesting(specs_[0], 400)).ok());
  FileSystem& fs = FileSystem::Posix();
  const std::vector<std::string> names = *fs.List(scratch_.path());
  int64_t tried = 0;
  for (const std::string& name : names) {
    const std::string path = scratch_.path() + "/" + name;
    const std::string good = *fs.ReadFile(path, 1 << 20);
    const auto expect_found = [&](const std::string& text, size_t at) {
      {
        std::ofstream out(path, std::ios::binary | std::ios::trunc);
        out << text;
      }
      const absl::StatusCode code = VerifyCheckpoint(fs, scratch_.path()).status().code();
      EXPECT_EQ(code, absl::StatusCode::kDataLoss) << name << " at " << at;
      ++tried;
    };
    for (size_t at = 0; at < good.size(); at += 3) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      expect_found(bad, at);
    }
    for (size_t size = 0; size < good.size(); size += 8) expect_found(good.substr(0, size), size);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << good;
  }
  EXPECT_GT(tried, 1000);
  EXPECT_TRUE(VerifyCheckpoint(fs, scratch_.path()).ok());
}

TEST_P(CheckpointFormatTest, MissingAndForeignFilesAreFound) {
  ASSERT_TRUE(Write(StateForTesting(specs_[0], 400)).ok());
  FileSystem& fs = FileSystem::Posix();
  ASSERT_TRUE(fs.WriteNewFile(scratch_.path() + "/extra", {AsPiece(std::string("x"))}).ok());
  EXPECT_EQ(VerifyCheckpoint(fs, scratch_.path()).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(fs.RemoveTree(scratch_.path() + "/extra").ok());
  ASSERT_TRUE(fs.RemoveTree(scratch_.path() + "/config.yaml").ok());
  EXPECT_EQ(VerifyCheckpoint(fs, scratch_.path()).status().code(), absl::StatusCode::kDataLoss);
}

// 200,000 entries of one file had it read 200,000 times.
TEST_P(CheckpointFormatTest, AManifestNamesSoManyFilesAndEachOnce) {
  FileSystem& fs = FileSystem::Posix();
  ASSERT_TRUE(Write(StateForTesting(specs_[0], 400)).ok());
  const auto verdict = [&](ManifestPart part) {
    return std::string(VerifyCheckpoint(fs, scratch_.path(), part).status().message());
  };
  ForgeManifest(scratch_.path(), [](nlohmann::json&) {});
  EXPECT_EQ(verdict(ManifestPart::kAll), "") << "forged, and right";
  EXPECT_EQ(verdict(ManifestPart::kPolicies), "");
  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) { manifest["files"].push_back(manifest["files"][0]); });
  for (const ManifestPart part : {ManifestPart::kAll, ManifestPart::kPolicies}) {
    EXPECT_NE(verdict(part).find("manifest.json names a file twice"), std::string::npos) << verdict(part);
  }
  const auto with_files = [&](size_t count) {
    ForgeManifest(scratch_.path(), [&](nlohmann::json& manifest) {
      nlohmann::json& files = manifest["files"];
      nlohmann::json one = files[0];
      files = nlohmann::json::array();
      for (size_t i = 0; i < count; ++i) {
        one["name"] = absl::StrCat("policy_", i, ".safetensors");
        files.push_back(one);
      }
    });
    return std::string(ReadManifest(fs, scratch_.path()).status().message());
  };
  EXPECT_EQ(with_files(2050), "");
  EXPECT_NE(with_files(2051).find("names 2051 files; expected at most 2050"), std::string::npos);
}

// A manifest of 15 MB took 382 MiB.
TEST_P(CheckpointFormatTest, OfSomebodyElsesManifestFewValuesAreRead) {
  FileSystem& fs = FileSystem::Posix();
  ASSERT_TRUE(Write(StateForTesting(specs_[0], 400)).ok());
  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) {
    manifest["policy_map"] = nlohmann::json(std::vector<nlohmann::json>(1 << 19, nlohmann::json::array()));
    manifest["state"]["lanes"] = manifest["policy_map"];
  });
  const auto left_out = VerifyCheckpoint(fs, scratch_.path(), ManifestPart::kPolicies);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_EQ(left_out->state.env_steps, 400);
  EXPECT_EQ(left_out->state.iteration, StateForTesting(specs_[0], 400).iteration);
  EXPECT_EQ(left_out->state.lanes.size(), 0u);

  ForgeManifest(scratch_.path(), [](nlohmann::json& manifest) {
    manifest.erase("policy_map");
    manifest["files"] = nlohmann::json(std::vector<nlohmann::json>(1 << 19, nlohmann::json::array()));
  });
  const absl::Status refused = VerifyCheckpoint(fs, scratch_.path(), ManifestPart::kPolicies).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(refused.message().find("holds more than 262144 values"), std::string::npos) << refused;
}

TEST_P(CheckpointFormatTest, StateThatDoesNotFitItsSpecIsNotWritten) {
  LearnerState state = StateForTesting(specs_[0], 400);
  state.policies[0].MutableFloats(policy::kParameters)[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Write(state).code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(StoreSeparately, CheckpointFormatTest, ::testing::Bool());

}  // namespace
}  // namespace troupe::storage
