#include "lib/storage/checkpoint_weights.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "lib/base/crc32c.h"
#include "lib/policy/testing.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::storage {
namespace {

using testing::HasSubstr;

/// Three policies, the second with a normalizer; the parameter: whether each has a file of its own.
class CheckpointWeightsTest : public ::testing::TestWithParam<bool> {
 protected:
  CheckpointWeightsTest() {
    learner::LearnerState state;
    for (int p = 0; p < 3; ++p) {
      policy::PolicySpec spec = policy::SmallSpecForTesting();
      spec.id = policy::PolicyId(absl::StrCat("p", p));
      spec.normalize_observations = p == 1;
      spec.normalize_state = p == 2;
      if (p == 2) spec.SetCriticInput(policy::NetworkInput::kState, 2);
      learner::LearnerState its = StateForTesting(spec, 400 + 100 * p);
      if (p == 1) its.policies[0].SetMoments(policy::kObservationMoments, {5.0, {1, 2, 3}, {4, 5, 6}});
      if (p == 2) {
        its.policies[0].Set("state_moments.count", std::vector<double>{7, 0});
        its.policies[0].Set("state_moments.mean", std::vector<double>{0.1, 0.2});
        its.policies[0].Set("state_moments.variance", std::vector<double>{1.5, 1});
      }
      if (p == 0) state = its;
      if (p > 0) state.policies.push_back(its.policies[0]);
      specs_.push_back(spec);
    }
    EXPECT_EQ(WriteCheckpointFiles(FileSystem::Posix(), folder(), state, specs_, {42, "seed: 1\n", GetParam()}),
              absl::OkStatus());
  }

  std::string folder() const { return scratch_.path(); }
  std::string WeightsPath(int policy) const {
    return folder() + (GetParam() ? absl::StrCat("/policy_", policy, ".safetensors") : "/policies.safetensors");
  }
  std::unique_ptr<CheckpointWeights> Open() const {
    auto weights = CheckpointWeights::Open(FileSystem::Posix(), folder());
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }
  absl::StatusCode CodeOf(const CheckpointWeights& weights, size_t policy) const {
    return weights.Read(specs_[policy]).status().code();
  }

  const ScratchDirectory scratch_;
  std::vector<policy::PolicySpec> specs_;
};

std::string ReadAll(const std::string& path) { return *FileSystem::Posix().ReadFile(path, 1 << 20); }

/// In place, as a bad disk or a careless program would.
void Overwrite(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST_P(CheckpointWeightsTest, ReadsWhatAWholeReadGives) {
  const auto weights = Open();
  for (const size_t p : {2, 0, 1, 2}) {
    const auto one = weights->Read(specs_[p]);
    const auto whole = ReadPolicyWeights(FileSystem::Posix(), folder(), specs_[p]);
    ASSERT_TRUE(one.ok() && whole.ok()) << one.status();
    EXPECT_EQ(one->id, specs_[p].id);
    EXPECT_EQ(one->version, whole->version);
    EXPECT_EQ(one->parameters(), whole->parameters());
    const auto moments = [](const policy::PolicyState& state) { return state.Moments(policy::kObservationMoments); };
    EXPECT_EQ(moments(*one).mean, moments(*whole).mean);
    EXPECT_EQ(moments(*one).mean.empty(), p != 1);
    EXPECT_EQ(one->Moments("value_moments").variance, whole->Moments("value_moments").variance);
    for (const char* part : {"count", "mean", "variance"}) {
      const std::string block = absl::StrCat("state_moments.", part);
      EXPECT_EQ(one->Doubles(block), whole->Doubles(block));
      EXPECT_EQ(one->Doubles(block).size(), p == 2 ? 2u : 0u) << "they lie with the weights";
    }
    EXPECT_EQ(one->Find("adam.exp_avg"), nullptr);
  }
}

TEST_P(CheckpointWeightsTest, ReadsWhatTheReaderDoesNotNormalize) {
  const auto weights = Open();
  policy::PolicySpec spec = specs_[2];
  spec.normalize_state = false;
  const absl::StatusOr<policy::PolicyState> state = weights->Read(spec);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->parameters(), weights->Read(specs_[2])->parameters());
}

TEST_P(CheckpointWeightsTest, AnotherPolicyOrNetworkIsRefused) {
  const auto weights = Open();
  policy::PolicySpec spec = specs_[0];
  spec.id = policy::PolicyId("p");
  EXPECT_EQ(weights->Read(spec).status(), absl::NotFoundError("checkpoint has no policy \"p\""));
  spec = specs_[0];
  spec.actor.hidden_sizes = {5, 4};
  EXPECT_EQ(weights->Read(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(CheckpointWeightsTest, EveryFlippedBitIsTheLossOfItsPolicyOrFoundAtTheOpening) {
  const std::string good = ReadAll(WeightsPath(1));
  int lost = 0;
  for (size_t at = 0; at < good.size(); at += 7) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    Overwrite(WeightsPath(1), bad);
    const auto weights = CheckpointWeights::Open(FileSystem::Posix(), folder());
    if (!weights.ok()) {
      EXPECT_EQ(weights.status().code(), absl::StatusCode::kDataLoss) << at;
      continue;
    }
    int failed = 0;
    for (size_t p = 0; p < 3; ++p) {
      const absl::StatusCode code = CodeOf(**weights, p);
      failed += code == absl::StatusCode::kDataLoss ? 1 : 0;
      EXPECT_TRUE(code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kOk) << at;
    }
    EXPECT_EQ(failed, 1) << "byte " << at;
    lost += failed;
  }
  EXPECT_GT(lost, 20);
}

TEST_P(CheckpointWeightsTest, WhatIsDamagedWhileItIsOpenIsLostAlone) {
  const auto weights = Open();
  const std::string good = ReadAll(WeightsPath(2));
  std::filesystem::resize_file(WeightsPath(2), good.size() - 1);
  EXPECT_EQ(CodeOf(*weights, 0), absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(*weights, 1), absl::StatusCode::kOk);
  const absl::Status status = weights->Read(specs_[2]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is damaged: "));
  Overwrite(WeightsPath(2), good);
  EXPECT_EQ(CodeOf(*weights, 2), absl::StatusCode::kOk) << "nothing is remembered";
}

TEST_P(CheckpointWeightsTest, ACheckpointThatIsRemovedIsReadOnWhereItIsOpen) {
  const auto weights = Open();
  ASSERT_EQ(FileSystem::Posix().RemoveTree(folder()), absl::OkStatus());
  EXPECT_EQ(CodeOf(*weights, 1), GetParam() ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
  EXPECT_EQ(CheckpointWeights::Open(FileSystem::Posix(), folder()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_P(CheckpointWeightsTest, FilesWithoutAChecksumAPolicyAreVerifiedWhole) {
  nlohmann::json manifest = nlohmann::json::parse(ReadAll(folder() + "/manifest.json"));
  manifest.erase("weights_crc32c");
  manifest["manifest_crc32c"] = "00000000";
  std::string text = manifest.dump(1) + "\n";
  char crc[9];
  std::snprintf(crc, sizeof(crc), "%08x", base::Crc32c(text.data(), text.size()));
  const std::string key = "\"manifest_crc32c\": \"";
  text.replace(text.find(key) + key.size(), 8, crc);
  Overwrite(folder() + "/manifest.json", text);
  const auto weights = Open();
  EXPECT_EQ(CodeOf(*weights, 1), absl::StatusCode::kOk);
  const std::string good = ReadAll(WeightsPath(1));
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  Overwrite(WeightsPath(1), bad);
  EXPECT_EQ(CodeOf(*weights, 1), absl::StatusCode::kDataLoss);
  Overwrite(WeightsPath(1), good);
  std::filesystem::resize_file(WeightsPath(2), 100);
  EXPECT_EQ(CodeOf(*weights, 2), absl::StatusCode::kDataLoss);
  EXPECT_EQ(CodeOf(*weights, 1), GetParam() ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss);
}

INSTANTIATE_TEST_SUITE_P(Files, CheckpointWeightsTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Separate" : "Together"); });

}  // namespace
}  // namespace troupe::storage
