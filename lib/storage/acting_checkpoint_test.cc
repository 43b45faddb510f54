#include "lib/storage/acting_checkpoint.h"

#include <cmath>
#include <fstream>
#include <random>

#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_state.h"
#include "lib/policy/testing.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Weights as a learner publishes them, with numbers that have all their digits.
policy::WeightSnapshotPtr Published(const policy::PolicySpec& spec, std::mt19937* random) {
  policy::PolicyState state = StateForTesting(spec, 400).policies[0];
  std::vector<float> parameters(state.parameters().begin(), state.parameters().end());
  for (float& each : parameters) each = each == 0 ? 0 : std::normal_distribution<float>(0, 0.4f)(*random);
  state.Set(policy::kParameters, std::move(parameters));
  if (spec.normalize_observations) {
    policy::RunningMoments moments = {.count = 100};
    for (int64_t i = 0; i < spec.observation_size(); ++i) {
      moments.mean.push_back(std::normal_distribution<double>(0, 1)(*random));
      // The first never changed; others over many sizes.
      moments.variance.push_back(i == 0 ? 0 : std::exp(std::uniform_real_distribution<double>(-20, 20)(*random)));
    }
    state.SetMoments(policy::kObservationMoments, std::move(moments));
  }
  return *policy::SnapshotOf(state, spec);
}

/// The files in a folder, as a client that was given them has them.
class ActingCheckpointTest : public testing::Test {
 protected:
  absl::Status Write(const std::vector<policy::PolicySpec>& specs,
                     const std::vector<policy::WeightSnapshotPtr>& weights) {
    absl::StatusOr<std::vector<NamedFile>> files =
        ActingCheckpoint(specs, weights, {{"*", {{specs[0].id}}}}, {"a", "b"});
    if (!files.ok()) return files.status();
    files_ = *std::move(files);
    for (const NamedFile& file : files_) {
      std::ofstream(scratch_.path() + "/" + file.name, std::ios::binary | std::ios::trunc) << file.bytes;
    }
    return absl::OkStatus();
  }

  const ScratchDirectory scratch_;
  std::vector<NamedFile> files_;
};

TEST_F(ActingCheckpointTest, GivesTheBitsThatAct) {
  std::mt19937 random(7);
  std::vector<policy::PolicySpec> specs = {
      policy::SmallSpecForTesting(),
      policy::SmallSpecWithCoresForTesting(policy::CoreKind::kLstm, policy::CoreKind::kGru),
      policy::AttendingSpecForTesting(), policy::SharedSpecForTesting(), policy::SmallSpecForTesting()};
  specs[1].normalize_observations = true;
  specs[4].observation_space = *space::Space::Box(-1e9, 1e9, {2000});
  specs[4].normalize_observations = true;
  specs[4].policy_class = {.kind = policy::PolicyClass::Kind::kCheckpoint, .path = "/home/somebody/runs/secret"};
  std::vector<policy::WeightSnapshotPtr> weights;
  for (size_t i = 0; i < specs.size(); ++i) {
    specs[i].id = policy::PolicyId(absl::StrCat("p", i));
    weights.push_back(Published(specs[i], &random));
  }
  ASSERT_EQ(Write(specs, weights), absl::OkStatus());
  ASSERT_EQ(files_.size(), 2u);
  const auto read = CheckpointWeights::Open(FileSystem::Posix(), scratch_.path());
  ASSERT_TRUE(read.ok()) << read.status();
  const policy::PolicyTablePtr table = *(*read)->Policies();
  ASSERT_EQ(table->num_slots(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const policy::PolicySpec& spec = table->Find(policy::PolicySlot(static_cast<int32_t>(i)))->spec;
    const auto state = (*read)->Read(spec);
    ASSERT_TRUE(state.ok()) << state.status();
    const policy::WeightSnapshotPtr got = *policy::SnapshotOf(*state, spec);
    EXPECT_EQ(got->version, weights[i]->version);
    EXPECT_EQ(got->actor, weights[i]->actor) << i;
    EXPECT_EQ(got->observation_mean, weights[i]->observation_mean) << i;
    EXPECT_EQ(got->observation_inverse_std, weights[i]->observation_inverse_std) << i;
    EXPECT_EQ(spec.actor, specs[i].actor);
    EXPECT_EQ(spec.agent_id_size, specs[i].agent_id_size);
  }
}

TEST_F(ActingCheckpointTest, TellsNothingElse) {
  std::mt19937 random(7);
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.SetCriticInput(policy::NetworkInput::kState, 2);
  spec.policy_class = {.kind = policy::PolicyClass::Kind::kCheckpoint, .path = "/home/somebody/runs/secret"};
  ASSERT_EQ(Write({spec}, {Published(spec, &random)}), absl::OkStatus());
  for (const NamedFile& file : files_) {
    for (const char* const secret : {"critic", "secret", "somebody", "adam", "config", "yaml", "moments"}) {
      if (file.name == "manifest.json" && std::string(secret) == "config") continue;  // that there is an empty one
      if (file.name == "manifest.json" && std::string(secret) == "yaml") continue;
      EXPECT_THAT(file.bytes, Not(HasSubstr(secret))) << file.name;
    }
  }
}

TEST_F(ActingCheckpointTest, WeightsOfAnotherAreRefused) {
  std::mt19937 random(7);
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  const policy::WeightSnapshotPtr weights = Published(spec, &random);
  spec.actor.hidden_sizes = {5};
  EXPECT_EQ(Write({spec}, {weights}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Write({spec}, {nullptr}).code(), absl::StatusCode::kInvalidArgument);
  spec = policy::SmallSpecForTesting();
  spec.policy_class.kind = policy::PolicyClass::Kind::kRandom;
  EXPECT_EQ(Write({spec}, {weights}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::storage
