// One PPO update of every back end against numbers that plain PyTorch computed in double precision (ppo_reference.py
// made ppo_reference.json; recurrent_reference.py that of networks with a core, layers_reference.py that of normalized
// layers and of activations by network, and so on). Tolerance 1e-5, relative to the
// largest number of a tensor: what float32 leaves over a few optimizer steps; 1e-4 on a GPU, whose sums have an order
// of their own. The path for devices runs on $TROUPE_TEST_DEVICE, by default on the CPU.

#include <string>
#include <tuple>
#include <vector>

#include "lib/training/ppo/ppo_options.h"
#include "tests/parity/update_parity.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

const json& PpoRecord() {
  static const json& recorded = *new json(ReadRecord("ppo_reference.json"));
  return recorded;
}

PpoOptions Options(const json& from) {
  PpoOptions options;
  ReadOptions(from, &options);
  options.clip_param = from["clip_param"].get<double>();
  options.use_value_clip = from["use_value_clip"].get<bool>();
  options.value_clip_param = from["value_clip_param"].get<double>();
  options.target_kl = from["target_kl"].get<double>();
  options.num_epochs = from["num_epochs"].get<int64_t>();
  options.minibatch_size = from["minibatch_size"].get<int64_t>();
  return options;
}

const json& ConvolutionRecord() {
  static const json& recorded = *new json(ReadRecord("convolution_reference.json"));
  return recorded;
}

const json& LeafRecord() {
  static const json& recorded = *new json(ReadRecord("leaf_reference.json"));
  return recorded;
}

const json& RecurrentRecord() {
  static const json& recorded = *new json(ReadRecord("recurrent_reference.json"));
  return recorded;
}

const json& LayersRecord() {
  static const json& recorded = *new json(ReadRecord("layers_reference.json"));
  return recorded;
}

const json& MappoRecord() {
  static const json& recorded = *new json(ReadRecord("mappo_reference.json"));
  return recorded;
}

const json& AttentionRecord() {
  static const json& recorded = *new json(ReadRecord("attention_reference.json"));
  return recorded;
}

const json& SharedRecord() {
  static const json& recorded = *new json(ReadRecord("shared_reference.json"));
  return recorded;
}

const json& DistributionRecord() {
  static const json& recorded = *new json(ReadRecord("distribution_reference.json"));
  return recorded;
}

/// Of each record: what it has, which is read when tests run.
constexpr size_t kPpoCases = 3;
constexpr size_t kConvolutionCases = 7;
constexpr size_t kLeafCases = 4;
constexpr size_t kRecurrentCases = 5;
constexpr size_t kDistributionCases = 6;
constexpr size_t kLayersCases = 5;
constexpr size_t kMappoCases = 8;
constexpr size_t kAttentionCases = 4;
constexpr size_t kSharedCases = 7;

TEST(PpoRecordsTest, EveryRecordedCaseRuns) {
  EXPECT_EQ(PpoRecord()["cases"].size(), kPpoCases);
  EXPECT_EQ(ConvolutionRecord()["cases"].size(), kConvolutionCases);
  EXPECT_EQ(LeafRecord()["cases"].size(), kLeafCases);
  EXPECT_EQ(RecurrentRecord()["cases"].size(), kRecurrentCases);
  EXPECT_EQ(DistributionRecord()["cases"].size(), kDistributionCases);
  EXPECT_EQ(LayersRecord()["cases"].size(), kLayersCases);
  EXPECT_EQ(MappoRecord()["cases"].size(), kMappoCases);
  EXPECT_EQ(AttentionRecord()["cases"].size(), kAttentionCases);
  EXPECT_EQ(SharedRecord()["cases"].size(), kSharedCases);
}

/// What is asked of every record of PPO.
class PpoUpdates : public UpdateParityTest {
 protected:
  void LossesAndGradientsOfOneMinibatch() {
    PpoOptions options = Options(record()["options"]);
    options.num_epochs = 1;
    options.minibatch_size = record()["batch"]["rows"].get<int64_t>();
    const json& expected = record()["one_step"];
    ExpectReport(Run(WithSchedules(record()["options"], PpoSpec(options))), expected);
    // After one step Adam's first moment is (1 - beta1) times the (clipped) gradient.
    std::vector<float> gradients = after_.Floats(kAdamExpAvg);
    for (float& value : gradients) value = static_cast<float>(value / (1.0 - options.adam_beta1));
    ExpectClose(layout_, gradients, Flat(expected["gradients"], layout_), tolerance(), "gradient of");
  }

  void AWholeUpdate() {
    const json& expected = record()["update"];
    ExpectReport(Run(WithSchedules(record()["options"], PpoSpec(Options(record()["options"])))), expected);
    ExpectClose(layout_, after_.parameters(), Flat(expected["parameters"], layout_), tolerance(), "parameter");
    ExpectClose(layout_, after_.Floats(kAdamExpAvg), Flat(expected["exp_avg"], layout_), tolerance(), "exp_avg of");
    ExpectClose(layout_, after_.Floats(kAdamExpAvgSq), Flat(expected["exp_avg_sq"], layout_), tolerance(),
                "exp_avg_sq of");
    EXPECT_EQ(after_.Integer(kAdamSteps), expected["minibatch_steps"].get<int64_t>());
  }
};

std::string CaseName(const json& recorded, const testing::TestParamInfo<PpoUpdates::ParamType>& info) {
  return recorded["cases"][std::get<0>(info.param)]["name"].get<std::string>() + "_" + BackendName(info);
}

class PpoParityTest : public PpoUpdates {
  const json& Recorded() const override { return PpoRecord(); }
};

TEST_P(PpoParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(PpoParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, PpoParityTest,
                         testing::Combine(testing::Range<size_t>(0, kPpoCases), testing::Range<size_t>(0, 7)),
                         [](const auto& info) { return CaseName(PpoRecord(), info); });

/// Networks with convolutions, which LibTorch alone trains.
class ConvolutionParityTest : public PpoUpdates {
  const json& Recorded() const override { return ConvolutionRecord(); }
};

TEST_P(ConvolutionParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(ConvolutionParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, ConvolutionParityTest,
                         testing::Combine(testing::Range<size_t>(0, kConvolutionCases), testing::Range<size_t>(0, 3)),
                         [](const auto& info) { return CaseName(ConvolutionRecord(), info); });

/// Encoders of leaves of Dict and Tuple observations, which LibTorch alone trains.
class LeafParityTest : public PpoUpdates {
  const json& Recorded() const override { return LeafRecord(); }
};

TEST_P(LeafParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(LeafParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, LeafParityTest,
                         testing::Combine(testing::Range<size_t>(0, kLeafCases), testing::Range<size_t>(0, 3)),
                         [](const auto& info) { return CaseName(LeafRecord(), info); });

/// Networks with a core.
class RecurrentParityTest : public PpoUpdates {
  const json& Recorded() const override { return RecurrentRecord(); }
};

TEST_P(RecurrentParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(RecurrentParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, RecurrentParityTest,
                         testing::Combine(testing::Range<size_t>(0, kRecurrentCases), testing::Range<size_t>(0, 7)),
                         [](const auto& info) { return CaseName(RecurrentRecord(), info); });

/// Predicted and bounded deviations, squashed Gaussians and Betas, beside masks, too.
class DistributionUpdatesTest : public PpoUpdates {
  const json& Recorded() const override { return DistributionRecord(); }
};

TEST_P(DistributionUpdatesTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(DistributionUpdatesTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, DistributionUpdatesTest,
                         testing::Combine(testing::Range<size_t>(0, kDistributionCases), testing::Range<size_t>(0, 7)),
                         [](const auto& info) { return CaseName(DistributionRecord(), info); });

/// Layer normalization, gelu and silu, an activation for each network.
class LayersParityTest : public PpoUpdates {
  const json& Recorded() const override { return LayersRecord(); }
};

TEST_P(LayersParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(LayersParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, LayersParityTest,
                         testing::Combine(testing::Range<size_t>(0, kLayersCases), testing::Range<size_t>(0, 7)),
                         [](const auto& info) { return CaseName(LayersRecord(), info); });

/// PopArt, normalized states, the agent's observation behind the state, dead agents' rows, minibatches of env steps.
class MappoParityTest : public PpoUpdates {
  const json& Recorded() const override { return MappoRecord(); }
};

TEST_P(MappoParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(MappoParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, MappoParityTest,
                         testing::Combine(testing::Range<size_t>(0, kMappoCases), testing::Range<size_t>(0, 7)),
                         [](const auto& info) { return CaseName(MappoRecord(), info); });

/// Critics that attend to agents, which LibTorch alone trains.
class AttentionParityTest : public PpoUpdates {
  const json& Recorded() const override { return AttentionRecord(); }
};

TEST_P(AttentionParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(AttentionParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, AttentionParityTest,
                         testing::Combine(testing::Range<size_t>(0, kAttentionCases), testing::Range<size_t>(0, 3)),
                         [](const auto& info) { return CaseName(AttentionRecord(), info); });

/// Critics that share the actor's encoder, which LibTorch alone trains.
class SharedParityTest : public PpoUpdates {
  const json& Recorded() const override { return SharedRecord(); }
};

TEST_P(SharedParityTest, LossesAndGradientsOfOneMinibatch) { LossesAndGradientsOfOneMinibatch(); }
TEST_P(SharedParityTest, AWholeUpdate) { AWholeUpdate(); }

INSTANTIATE_TEST_SUITE_P(All, SharedParityTest,
                         testing::Combine(testing::Range<size_t>(0, kSharedCases), testing::Range<size_t>(0, 3)),
                         [](const auto& info) { return CaseName(SharedRecord(), info); });

}  // namespace
}  // namespace troupe::training
