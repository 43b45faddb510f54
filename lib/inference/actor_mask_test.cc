// Masks at every discrete leaf of an action space of many parts, for every back end.

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "lib/base/philox.h"
#include "lib/inference/testing/backends.h"
#include "lib/policy/parameter_layout.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

using space::ActionWord;
using space::Space;

constexpr int64_t kRows = 400;
constexpr int64_t kMask = 3 + 6 + 4;  ///< categories
constexpr int64_t kWords = 7;

/// Sorted by key: a Box first, then leaves of 3, 2 + 4 categories and two bits.
policy::PolicySpec MixedSpec() {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = *Space::Box(-1, 1, {4});
  spec.action_space = *Space::Dict({{"b", *Space::Discrete(3, 5)},
                                    {"c", *Space::MultiDiscrete({2, 4})},
                                    {"d", *Space::MultiBinary(2)},
                                    {"a", *Space::Box(-1, 1, {2})}});
  spec.actor.hidden_sizes = {16};
  spec.has_action_mask = true;
  return spec;
}

class ActorMaskTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    weights_->id = spec_.id;
    weights_->version = {1, 5};
    weights_->actor.resize(static_cast<size_t>(layout_.acting_size()));
    for (float& weight : weights_->actor) weight = static_cast<float>(0.5 * random_.Normal());
    actor_ = *Actor::Create(spec_, 3, GetParam());
    ASSERT_TRUE(actor_->SetWeights(weights_).ok());
    for (float& element : obs_) element = static_cast<float>(random_.Uniform(-1, 1));
    for (uint8_t& allowed : mask_) allowed = random_.Below(2) == 0 ? 0 : 1;
    for (int64_t r = 0; r < kRows; ++r) {
      keys_.push_back({base::EnvId(static_cast<uint32_t>(r)), 0, {}, 7});
      for (const space::ActionLeaf& leaf : leaves_) {
        if (leaf.kind != space::ActionLeaf::Kind::kCategorical) continue;
        MaskOf(r, leaf)[random_.Below(static_cast<uint32_t>(leaf.categories))] = 1;
      }
    }
  }

  uint8_t* MaskOf(int64_t row, const space::ActionLeaf& leaf) { return mask_.data() + row * kMask + leaf.mask_offset; }
  ActInput Input(bool deterministic) const { return {kRows, obs_.data(), mask_.data(), keys_.data(), deterministic}; }
  float LogStd(int64_t word) const {
    return weights_->actor[static_cast<size_t>(layout_.Find("actor.log_std")->offset + word)];
  }

  const policy::PolicySpec spec_ = MixedSpec();
  const policy::ParameterLayout layout_ = policy::ParameterLayout::For(spec_);
  const std::vector<space::ActionLeaf> leaves_ = space::ActionLeaves(spec_.action_space);
  base::PhiloxSequence random_{base::PhiloxKey::Make(4, base::RandomStream::kTest), {}};
  const std::shared_ptr<policy::WeightSnapshot> weights_ = std::make_shared<policy::WeightSnapshot>();
  std::unique_ptr<Actor> actor_;
  std::vector<float> obs_ = std::vector<float>(kRows * 4);
  std::vector<uint8_t> mask_ = std::vector<uint8_t>(kRows * kMask);
  std::vector<RowKey> keys_;
};

TEST_P(ActorMaskTest, NoLeafTakesWhatItsMaskForbidsAndLogpIsOfTheRest) {
  ASSERT_EQ(spec_.mask_size(), kMask);
  ASSERT_EQ(spec_.action_words(), kWords);
  std::vector<float> outputs(static_cast<size_t>(kRows * (kMask + 2)));
  ASSERT_TRUE(actor_->Forward(Input(false), absl::MakeSpan(outputs)).ok());
  for (const bool deterministic : {false, true}) {
    std::vector<ActionWord> actions(static_cast<size_t>(kRows * kWords));
    std::vector<float> logp(static_cast<size_t>(kRows));
    ASSERT_TRUE(actor_->Act(Input(deterministic), actions.data(), logp.data()).ok());
    for (int64_t r = 0; r < kRows; ++r) {
      const float* logits = &outputs[static_cast<size_t>(r * (kMask + 2))];
      const float* means = logits + kMask;
      const ActionWord* action = &actions[static_cast<size_t>(r * kWords)];
      double expected = 0;
      for (const space::ActionLeaf& leaf : leaves_) {
        if (leaf.kind == space::ActionLeaf::Kind::kContinuous) {
          for (int64_t w = 0; w < leaf.words; ++w) {
            const double log_std = double{LogStd(w)};
            const double z = (double{action[leaf.word + w].f32} - double{means[w]}) / std::exp(log_std);
            expected -= 0.5 * z * z + log_std + 0.5 * std::log(2 * M_PI);
          }
          continue;
        }
        const uint8_t* allowed = MaskOf(r, leaf);
        const int64_t category = action[leaf.word].i32 - leaf.start;
        ASSERT_TRUE(category >= 0 && category < leaf.categories);
        ASSERT_EQ(allowed[category], 1) << "row " << r << ", word " << leaf.word;
        double total = 0;
        for (int64_t c = 0; c < leaf.categories; ++c) {
          if (allowed[c] != 0) total += std::exp(double{logits[leaf.mask_offset + c]});
          if (deterministic && allowed[c] != 0) {
            EXPECT_LE(logits[leaf.mask_offset + c], logits[leaf.mask_offset + category]) << "not the best allowed one";
          }
        }
        expected += double{logits[leaf.mask_offset + category]} - std::log(total);
      }
      ASSERT_NEAR(logp[static_cast<size_t>(r)], expected, 1e-4) << "row " << r;
    }
  }
}

TEST_P(ActorMaskTest, OneLeafWithoutAnAllowedCategoryIsAnError) {
  for (const space::ActionLeaf& leaf : leaves_) {
    if (leaf.kind != space::ActionLeaf::Kind::kCategorical) continue;
    const std::vector<uint8_t> before = mask_;
    std::fill_n(MaskOf(17, leaf), leaf.categories, uint8_t{0});
    std::vector<ActionWord> actions(static_cast<size_t>(kRows * kWords));
    std::vector<float> logp(static_cast<size_t>(kRows));
    const absl::Status status = actor_->Act(Input(false), actions.data(), logp.data());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "word " << leaf.word;
    EXPECT_NE(status.message().find("env 17, episode 0, agent slot 0, step 7"), std::string::npos) << status;
    mask_ = before;
  }
}

TEST_P(ActorMaskTest, ExploresAsItsWeightsSayAndOnlyWhereItIsTo) {
  constexpr double kEpsilon = 0.4, kNoise = 0.25;
  auto exploring = std::make_shared<policy::WeightSnapshot>(*weights_);
  exploring->exploration = {{policy::WeightSnapshot::kEpsilon, kEpsilon}, {policy::WeightSnapshot::kNoise, kNoise}};
  std::vector<ActionWord> greedy(static_cast<size_t>(kRows * kWords)), actions = greedy;
  std::vector<float> logp(static_cast<size_t>(kRows));
  ASSERT_TRUE(actor_->Act(Input(/*deterministic=*/true), greedy.data(), logp.data()).ok());
  ASSERT_TRUE(actor_->SetWeights(exploring).ok());
  ASSERT_TRUE(actor_->Act(Input(/*deterministic=*/false), actions.data(), logp.data()).ok());
  for (size_t w = 0; w < actions.size(); ++w) EXPECT_EQ(actions[w].i32, greedy[w].i32) << "it is not to explore";
  ActInput input = Input(/*deterministic=*/false);
  input.explores = true;
  ASSERT_TRUE(actor_->Act(input, actions.data(), logp.data()).ok());
  int64_t free_leaves = 0, others = 0;
  double expected_others = 0, noise = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const ActionWord* const action = &actions[static_cast<size_t>(r * kWords)];
    const ActionWord* const mode = &greedy[static_cast<size_t>(r * kWords)];
    double expected = 0;
    for (const space::ActionLeaf& leaf : leaves_) {
      if (leaf.kind == space::ActionLeaf::Kind::kContinuous) {
        for (int64_t w = leaf.word; w < leaf.word + leaf.words; ++w) {
          const double z = (double{action[w].f32} - double{mode[w].f32}) / kNoise;
          noise += z * z / (2 * kRows);
          expected -= 0.5 * z * z + std::log(kNoise) + 0.5 * std::log(2 * M_PI);
        }
        continue;
      }
      const uint8_t* const mask = MaskOf(r, leaf);
      const auto allowed = static_cast<double>(std::count(mask, mask + leaf.categories, uint8_t{1}));
      ASSERT_EQ(mask[action[leaf.word].i32 - leaf.start], 1);
      const bool other = action[leaf.word].i32 != mode[leaf.word].i32;
      expected += std::log(other ? kEpsilon / allowed : 1 - kEpsilon + kEpsilon / allowed);
      if (allowed < 2) continue;
      ++free_leaves;
      others += other ? 1 : 0;
      expected_others += kEpsilon * (1 - 1 / allowed);
    }
    ASSERT_NEAR(logp[static_cast<size_t>(r)], expected, 1e-4) << "row " << r;
  }
  EXPECT_GT(free_leaves, 1000);
  EXPECT_NEAR(static_cast<double>(others), expected_others, 4 * std::sqrt(expected_others)) << "four deviations";
  EXPECT_NEAR(noise, 1, 0.25);
}

TEST_P(ActorMaskTest, ValuesOfActionsGiveTheLargest) {
  policy::PolicySpec spec = spec_;
  spec.action_space = *Space::Dict({{"b", *Space::Discrete(3, 5)}, {"c", *Space::MultiDiscrete({2, 4})}});
  spec.actor.action_values = true;
  auto weights = std::make_shared<policy::WeightSnapshot>(*weights_);
  weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()));
  const auto actor = *Actor::Create(spec, 3, GetParam());
  ASSERT_TRUE(actor->SetWeights(weights).ok());
  std::vector<uint8_t> mask(static_cast<size_t>(kRows * 9), 1);
  ActInput input = {kRows, obs_.data(), mask.data(), keys_.data(), /*deterministic=*/true};
  std::vector<ActionWord> greedy(static_cast<size_t>(kRows * 3)), actions = greedy;
  std::vector<float> logp(static_cast<size_t>(kRows), -1.0f);
  ASSERT_TRUE(actor->Act(input, greedy.data(), logp.data()).ok());
  input.deterministic = false;
  for (const bool explores : {false, true}) {  // without an epsilon, as from a checkpoint
    input.explores = explores;
    ASSERT_TRUE(actor->Act(input, actions.data(), logp.data()).ok());
    for (size_t w = 0; w < actions.size(); ++w) ASSERT_EQ(actions[w].i32, greedy[w].i32) << w;
    for (const float each : logp) ASSERT_EQ(each, 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ActorMaskTest, kBackends, BackendCaseName);

}  // namespace
}  // namespace troupe::inference
