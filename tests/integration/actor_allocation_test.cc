// An actor that has seen a batch allocates nothing for another one that is not larger, with and without a core,
// with and without layer normalization.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/inference/testing/backends.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include "lib/rollout/testing/malloc_counter.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

using Kind = std::pair<policy::CoreKind, bool>;  // and whether layers are normalized

class ActorAllocationTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, ActorAllocationTest, kBackends, BackendCaseName);

TEST_P(ActorAllocationTest, NoneAfterTheFirstBatchOfASize) {
  if (!rollout::CountsAllocations()) GTEST_SKIP() << "sanitizers replace malloc themselves";
  for (const auto& [kind, normed] :
       {Kind(policy::CoreKind::kNone, false), Kind(policy::CoreKind::kGru, false), Kind(policy::CoreKind::kLstm, false),
        Kind(policy::CoreKind::kNone, true), Kind(policy::CoreKind::kGru, true)}) {
    policy::PolicySpec spec;
    spec.id = policy::PolicyId("p");
    spec.observation_space = *space::Space::Box(-1, 1, {18});
    spec.action_space = *space::Space::Discrete(5);
    spec.normalize_observations = true;
    spec.actor.layer_norm = normed;
    if (kind != policy::CoreKind::kNone) {
      spec.actor.hidden_sizes = {64};
      spec.actor.core = {kind, 64, 2};
      spec.actor.head_hidden_sizes = {32};
      spec.sequence_length = 8;
    }
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec.id;
    weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.01f);
    weights->observation_mean.resize(18, 0.0f);
    weights->observation_inverse_std.resize(18, 1.0f);
    auto actor = *Actor::Create(spec, 1, GetParam());
    ASSERT_TRUE(actor->SetWeights(weights).ok());

    constexpr int64_t kRows = 100;
    const std::vector<float> obs(kRows * 18, 0.5f);
    const std::vector<RowKey> keys(kRows);
    std::vector<float> state(static_cast<size_t>(kRows * spec.actor_state_size())), logp(kRows), outputs(kRows * 5);
    std::vector<space::ActionWord> actions(kRows);
    const auto act = [&](int64_t rows) {
      const ActInput input = {rows, obs.data(), nullptr, keys.data(), false, state.data(), state.data()};
      return actor->Act(input, actions.data(), logp.data()).ok() &&
             actor->Forward(input, absl::MakeSpan(outputs).first(static_cast<size_t>(rows * 5))).ok();
    };
    const int64_t at_first = rollout::AllocationCount();
    ASSERT_TRUE(act(kRows));
    const int64_t before = rollout::AllocationCount();
    EXPECT_GT(before, at_first) << "its buffers";
    for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{50}, kRows}) ASSERT_TRUE(act(rows));
    const int64_t after = rollout::AllocationCount();
    EXPECT_EQ(after - before, 0) << "core " << static_cast<int>(kind) << (normed ? ", normalized" : "");
  }
}

TEST_P(ActorAllocationTest, NoneForContinuousActions) {
  if (!rollout::CountsAllocations()) GTEST_SKIP() << "sanitizers replace malloc themselves";
  using policy::ContinuousDistribution;
  for (const auto distribution :
       {ContinuousDistribution::kGaussian, ContinuousDistribution::kSquashedGaussian, ContinuousDistribution::kBeta}) {
    policy::PolicySpec spec;
    spec.id = policy::PolicyId("p");
    spec.observation_space = *space::Space::Box(-1, 1, {4});
    spec.action_space = *space::Space::Box(-1, 1, {3});
    policy::SetDistributionForTesting(distribution, &spec);
    spec.free_log_std = false;
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec.id;
    weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.01f);
    auto made = Actor::Create(spec, 1, GetParam());
    ASSERT_TRUE(made.ok()) << made.status();
    auto actor = *std::move(made);
    ASSERT_TRUE(actor->SetWeights(weights).ok());
    constexpr int64_t kRows = 2000;  // of which some draw gammas again
    const std::vector<float> obs(kRows * 4, 0.5f);
    std::vector<RowKey> keys;
    for (int64_t r = 0; r < kRows; ++r) keys.push_back({base::EnvId(static_cast<uint32_t>(r))});
    std::vector<float> logp(kRows);
    std::vector<space::ActionWord> actions(kRows * 3);
    const auto act = [&](bool deterministic) {
      return actor->Act({kRows, obs.data(), nullptr, keys.data(), deterministic}, actions.data(), logp.data()).ok();
    };
    ASSERT_TRUE(act(false));
    const int64_t before = rollout::AllocationCount();
    ASSERT_TRUE(act(false));
    ASSERT_TRUE(act(true));
    EXPECT_EQ(rollout::AllocationCount() - before, 0) << static_cast<int>(distribution);
  }
}

/// Convolutions over all of the observation, or over a leaf beside one that layers read.
policy::PolicySpec SpecOfImages(const std::string& observation) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = *space::ParseSpace(observation);
  spec.action_space = *space::Space::Discrete(5);
  const std::vector<policy::ConvLayer> layers = {{20, 3, 2}, {17, 3, 1}};
  if (spec.image().size() > 0) {
    spec.actor.encoder = policy::EncoderKind::kCnn;
    spec.actor.conv_layers = layers;
  } else {
    spec.actor.encoder = policy::EncoderKind::kLeaves;
    spec.actor.leaf_encoders = {{.leaf = 0, .conv_layers = layers, .hidden_sizes = {33}},
                                {.leaf = 1, .hidden_sizes = {40, 9}}};
  }
  return spec;
}

TEST_P(ActorAllocationTest, NoneOverImages) {
  if (!rollout::CountsAllocations()) GTEST_SKIP() << "sanitizers replace malloc themselves";
  for (const char* const observation : {"Box(0, 255, [14, 13, 2], uint8)", "Box(-1, 1, [14, 13, 2])",
                                        "Tuple(Box(0, 255, [14, 13, 2], uint8), Box(-1, 1, [7]), Discrete(3))"}) {
    const policy::PolicySpec spec = SpecOfImages(observation);
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec.id;
    weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.01f);
    auto actor = *Actor::Create(spec, 1, GetParam());
    ASSERT_TRUE(actor->SetWeights(weights).ok());
    constexpr int64_t kRows = 30;
    const std::vector<float> images(static_cast<size_t>(kRows * spec.observation_size()), 0.0f);
    const std::vector<RowKey> keys(kRows);
    std::vector<float> logp(kRows);
    std::vector<space::ActionWord> actions(kRows);
    const auto act = [&](int64_t rows) {
      return actor->Act({rows, images.data(), nullptr, keys.data()}, actions.data(), logp.data()).ok();
    };
    const int64_t at_first = rollout::AllocationCount();
    ASSERT_TRUE(act(kRows));
    const int64_t before = rollout::AllocationCount();
    EXPECT_GT(before, at_first) << "its buffers";
    for (const int64_t rows : {int64_t{1}, int64_t{3}, kRows}) ASSERT_TRUE(act(rows));
    EXPECT_EQ(rollout::AllocationCount() - before, 0) << observation;
  }
}

}  // namespace
}  // namespace troupe::inference
