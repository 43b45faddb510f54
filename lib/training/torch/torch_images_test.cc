// Images of bytes in LibTorch's back end: they train as the floats that they mean, on both paths. What convolutions
// compute is in tests/parity.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/small_update.h"
#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_backend.h"
#include "lib/training/torch/torch_inputs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;

policy::PolicySpec PictureSpec(bool bytes, int64_t agent_ids, bool critic_convolves = true) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.observation_space =
      bytes ? *space::Space::Box(0, 255, {9, 8, 2}, tensor::DType::kUint8) : *space::Space::Box(0, 1, {9, 8, 2});
  spec.actor.encoder = policy::EncoderKind::kCnn;
  spec.actor.conv_layers = {{6, 3, 2}, {5, 2, 1}};
  if (critic_convolves) {
    spec.mutable_critic()->encoder = policy::EncoderKind::kCnn;
    spec.mutable_critic()->conv_layers = {{4, 4, 2}};
  }
  spec.agent_id_size = agent_ids;
  return spec;
}

/// The critic convolves the images of three agents.
policy::PolicySpec JointPictureSpec(bool bytes, bool critic_agent_id) {
  policy::PolicySpec spec = PictureSpec(bytes, 3);
  spec.SetCriticInput(policy::NetworkInput::kJointObservation, 3 * (spec.observation_size() + 1));
  spec.SetCriticAgentId(critic_agent_id);
  return spec;
}

/// Random rows whose images are bytes; `spec` says whether they are kept so.
class Pictures : public learner::OwnedTrainBatch {
 public:
  explicit Pictures(const policy::PolicySpec& spec, const std::vector<int64_t>& segments = {7, 12, 5, 20}) {
    policy::PolicySpec small = policy::SmallSpecForTesting();
    small.agent_id_size = spec.agent_id_size;
    small.sequence_length = 0;
    const RandomBatch random(small, segments, 4);
    const learner::PolicyTrainBatch& from = random.batch.policies[0];
    learner::PolicyTrainBatch rows;
    rows.policy = policy::PolicySlot(0);
    rows.rows = from.rows;
    rows.final_rows = from.final_rows;
    rows.segments = from.segments;
    actions = random.actions;
    logp = random.logp;
    rewards = random.rewards;
    slot = random.slot;
    final_slot = random.final_slot;
    base::PhiloxSequence pixels(base::PhiloxKey::Make(8, base::RandomStream::kTest), {});
    const auto fill = [&](int64_t count, std::vector<uint8_t>* bytes, std::vector<float>* floats,
                          bool is_there = true) {
      for (int64_t i = 0; i < count * spec.observation_size(); ++i) {
        const auto pixel = static_cast<uint8_t>(is_there ? pixels.Below(256) : 0);
        if (spec.image_bytes()) {
          bytes->push_back(pixel);
        } else {
          floats->push_back(static_cast<float>(pixel) * (1.0f / 255.0f));
        }
      }
    };
    fill(rows.rows, &images, &obs);
    fill(rows.final_rows, &final_images, &final_obs);
    if (spec.critic_input() == policy::NetworkInput::kJointObservation) {
      // Three rows share one; somebody is absent in every other.
      rows.critic_rows = rows.rows / 3 + 1;
      for (int64_t r = 0; r < rows.critic_rows; ++r) {
        for (int64_t agent = 0; agent < 3; ++agent) {
          fill(1, &critic_images, &critic_state, r % 2 == 0 || agent != r / 2 % 3);
        }
        for (int64_t agent = 0; agent < 3; ++agent) {
          critic_state.push_back(r % 2 == 0 || agent != r / 2 % 3 ? 1.0f : 0.0f);
        }
      }
      for (int64_t r = 0; r < rows.rows; ++r) {
        critic_row.push_back(static_cast<int32_t>(r / 3));
        agent_mask.push_back(r % 7 != 3);
      }
      for (int64_t f = 0; f < rows.final_rows; ++f) final_critic_row.push_back(static_cast<int32_t>(f));
    }
    batch.env_steps = rows.rows;
    batch.agent_steps = rows.rows;
    Add(std::move(rows));
  }
  learner::PolicyTrainBatch& rows() { return batch.policies[0]; }
};

/// The parameters after two updates.
std::vector<float> TrainOn(const policy::PolicySpec& spec, TorchPath path,
                           const PpoOptions& options = SmallUpdateOptions()) {
  const Device place = path == TorchPath::kHost ? Device{} : TestDevice();
  const auto team = std::make_shared<ThreadTeam>(2);
  const auto make = [&](const policy::PolicySpec& of) { return MakeTorchBackend(of, place, path, team); };
  const auto host = *MakePpoHost({spec}, {options}, 1, make, team, BatchAllocator(place));
  Pictures batch(spec);
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    const auto reports = host->Update(batch.batch, SmallUpdateContext(iteration));
    EXPECT_TRUE(reports.ok()) << reports.status();
    EXPECT_EQ(reports->at(0).skipped_steps, 0);
    EXPECT_EQ(reports->at(0).minibatch_steps, 9);
  }
  return host->ExportState(policy::PolicySlot(0))->parameters();
}

TEST(TorchImagesTest, BytesTrainAsTheFloatsThatTheyMean) {
  for (const TorchPath path : {TorchPath::kHost, TorchPath::kDevice}) {
    for (const int64_t agent_ids : {0, 3}) {
      for (const bool critic_convolves : {true, false}) {
        const std::vector<float> bytes = TrainOn(PictureSpec(true, agent_ids, critic_convolves), path);
        const std::vector<float> floats = TrainOn(PictureSpec(false, agent_ids, critic_convolves), path);
        ASSERT_EQ(bytes.size(), floats.size());
        for (size_t i = 0; i < bytes.size(); ++i) {
          ASSERT_NEAR(bytes[i], floats[i], 1e-5) << i << ", agent ids " << agent_ids << ", " << critic_convolves;
        }
      }
    }
  }
}

TEST(TorchImagesTest, BytesOfAllAgentsTrainAsTheFloatsThatTheyMean) {
  for (const TorchPath path : {TorchPath::kHost, TorchPath::kDevice}) {
    for (const bool critic_agent_id : {false, true}) {
      for (const bool death_masking : {false, true}) {
        PpoOptions options = SmallUpdateOptions();
        options.death_masking = death_masking;
        options.use_value_active_masks = !death_masking;
        const std::vector<float> bytes = TrainOn(JointPictureSpec(true, critic_agent_id), path, options);
        const std::vector<float> floats = TrainOn(JointPictureSpec(false, critic_agent_id), path, options);
        ASSERT_EQ(bytes.size(), floats.size());
        for (size_t i = 0; i < bytes.size(); ++i) {
          ASSERT_NEAR(bytes[i], floats[i], 1e-5) << i << ", " << critic_agent_id << ", " << death_masking;
        }
      }
    }
  }
}

TEST(TorchImagesTest, WhoIsNotThereHasNoImage) {
  // What stands in the place of an absent agent's image is read by nobody.
  const policy::PolicySpec spec = JointPictureSpec(true, false);
  const auto values = [&](uint8_t instead) {
    Pictures batch(spec);
    for (int64_t r = 0; r < batch.rows().critic_rows; ++r) {
      for (int64_t agent = 0; agent < 3; ++agent) {
        if (batch.critic_state[r * 3 + agent] != 0.0f) continue;
        std::fill_n(batch.critic_images.begin() + (r * 3 + agent) * 144, 144, instead);
      }
    }
    PreparedBatch prepared;
    EXPECT_EQ(prepared.Prepare(spec, {}, batch.rows()), absl::OkStatus());
    FlatParameters parameters(policy::ParameterLayout::For(spec));
    for (size_t i = 0; i < parameters.values().size(); ++i) {
      parameters.values()[i] = static_cast<float>(i % 13) * 0.05f - 0.3f;
    }
    const auto backend = *MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(1));
    EXPECT_EQ(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam), absl::OkStatus());
    const std::vector<float> made = *backend->Values();
    EXPECT_EQ(backend->End(), absl::OkStatus());
    return made;
  };
  const std::vector<float> zeros = values(0);
  EXPECT_EQ(zeros.size(), 15u);
  EXPECT_EQ(values(200), zeros);
}

TEST(TorchImagesTest, APassHasTheRowsWhoseWayFitsItsMemory) {
  // Passes outside of minibatches are bounded by the memory of an image's way through the network.
  const policy::PolicySpec spec = PictureSpec(true, 0);
  EXPECT_EQ(RowsOfPass(spec, spec.critic(), 65536), 65536) << "72 x 2 + 3 x 3 x 4 numbers a row would let 93,206 be";
  policy::PolicySpec large = spec;
  large.observation_space = *space::Space::Box(0, 255, {84, 84, 4}, tensor::DType::kUint8);
  large.mutable_critic()->conv_layers = {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}};
  EXPECT_EQ(RowsOfPass(large, large.critic(), 65536), (16 << 20) / (28224 + 12800 + 5184 + 3136));
  large.SetCriticInput(policy::NetworkInput::kJointObservation, 3 * 28225);
  EXPECT_EQ(RowsOfPass(large, large.critic(), 65536), (16 << 20) / (3 * (28225 + 12800 + 5184 + 3136)));
  const policy::PolicySpec flat = policy::SmallSpecForTesting();
  EXPECT_EQ(RowsOfPass(flat, flat.critic(), 65536), 65536);
  policy::PolicySpec leaves = flat;
  leaves.observation_space = *space::ParseSpace("Dict{arm: Box(-1, 1, [3]), camera: Box(0, 255, [84, 84, 4], uint8)}");
  leaves.mutable_critic()->encoder = policy::EncoderKind::kLeaves;
  leaves.mutable_critic()->leaf_encoders = {{.leaf = 0, .hidden_sizes = {5}}};
  EXPECT_EQ(RowsOfPass(leaves, leaves.critic(), 65536), 65536) << "no convolutions";
  leaves.mutable_critic()->leaf_encoders.push_back({.leaf = 1, .conv_layers = {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}}});
  EXPECT_EQ(RowsOfPass(leaves, leaves.critic(), 65536), (16 << 20) / (3 + 28224 + 12800 + 5184 + 3136));
}

TEST(TorchImagesTest, ARowIsTheSameInEveryPass) {
  const torch::Tensor bytes = torch::arange(9 * 7).mul(4).to(torch::kUInt8).view({9, 7});
  for (const int64_t columns : {0, 3}) {
    for (const bool images : {true, false}) {
      if (columns == 0 && !images) continue;
      NetworkInputs inputs;
      inputs.floats = torch::arange(8 * columns, torch::kFloat32).view({8, columns});
      if (images) inputs.images = bytes;  // one row more: a critic's final one
      inputs.scaling = ImageScaling(PictureSpec(/*bytes=*/true, 0), 1, torch::kCPU);
      const torch::Tensor all = inputs.Range(0, 8);
      ASSERT_EQ(all.sizes(), (torch::IntArrayRef{8, columns + (images ? 7 : 0)}));
      for (const int64_t k : {1, 3, 7}) {
        EXPECT_TRUE(torch::equal(all, torch::cat({inputs.Range(0, k), inputs.Range(k, 8 - k)}))) << k << " " << columns;
      }
      EXPECT_TRUE(torch::equal(all, inputs.Take(torch::arange(8)))) << columns;
      const torch::Tensor some = torch::tensor({5, 0, 5}, torch::kInt64);
      EXPECT_TRUE(torch::equal(all.index_select(0, some), inputs.Take(some))) << columns;
      if (images) {
        EXPECT_EQ(all[2][6].item<float>(), static_cast<float>(20 * 4) * (1.0f / 255.0f));
      }
    }
  }
}

TEST(TorchImagesTest, PreparedImagesStayWhereTheyAre) {
  const policy::PolicySpec spec = PictureSpec(true, 3);
  Pictures batch(spec);
  PreparedBatch prepared;
  ASSERT_EQ(prepared.Prepare(spec, {}, batch.rows()), absl::OkStatus());
  EXPECT_EQ(prepared.images().rows, batch.rows().rows + batch.rows().final_rows);
  EXPECT_EQ(prepared.images().columns, 144);
  EXPECT_EQ(prepared.actor_input().columns, 3) << "the one-hot alone";
  EXPECT_EQ(prepared.critic_input().columns, 0);
  for (int64_t r = 0; r < batch.rows().rows; ++r) ASSERT_EQ(prepared.images().row(r)[5], batch.rows().images.row(r)[5]);
  for (int64_t f = 0; f < batch.rows().final_rows; ++f) {
    ASSERT_EQ(prepared.images().row(batch.rows().rows + f)[143], batch.rows().final_images.row(f)[143]);
  }
  // As the assembler lays them, they are not copied.
  std::vector<uint8_t> together = batch.images;
  together.insert(together.end(), batch.final_images.begin(), batch.final_images.end());
  batch.rows().images.data = together.data();
  batch.rows().final_images.data = together.data() + batch.images.size();
  ASSERT_EQ(prepared.Prepare(spec, {}, batch.rows()), absl::OkStatus());
  EXPECT_EQ(prepared.images().data, together.data());
}

TEST(TorchImagesTest, SaysWhichImagesDoNotFit) {
  const policy::PolicySpec spec = PictureSpec(true, 0);
  const auto error = [&spec](auto&& spoil, const PrepareOptions& options = {}) {
    Pictures batch(spec);
    spoil(&batch.rows());
    PreparedBatch prepared;
    const absl::Status status = prepared.Prepare(spec, {}, batch.rows(), nullptr, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error([](learner::PolicyTrainBatch* rows) { --rows->images.columns; }),
            "train batch of policy \"p\": images is [44, 143] bytes; expected [44, 144]");
  EXPECT_EQ(error([](learner::PolicyTrainBatch* rows) { rows->images = {}; }),
            "train batch of policy \"p\": images is [0, 0] bytes; expected [44, 144]");
  EXPECT_THAT(error([](learner::PolicyTrainBatch* rows) { --rows->final_images.rows; }),
              HasSubstr("final_images is [1, 144] bytes; expected [2, 144]"));
  Pictures joint(JointPictureSpec(true, false));
  --joint.rows().critic_images.columns;
  EXPECT_EQ(PreparedBatch().Prepare(JointPictureSpec(true, false), {}, joint.rows()).message(),
            "train batch of policy \"p\": critic_images is [15, 431] bytes; expected [15, 432]");
  EXPECT_THAT(error([](learner::PolicyTrainBatch*) {}, {.death_masking = true}),
              HasSubstr("expected no death masking"));
  EXPECT_THAT(error([](learner::PolicyTrainBatch* rows) { rows->images = {}; }, {.death_masking = true}),
              HasSubstr("expected no death masking"))
      << "before anything is read, let alone written";
  Pictures batch(spec);
  PreparedBatch prepared;
  EXPECT_THAT(std::string(prepared.Prepare(PictureSpec(false, 0), {}, batch.rows()).message()),
              HasSubstr("obs is [44, 0], rows 0 apart; expected [44, 144]"));
}

TEST(TorchImagesTest, TheFusedBackEndRefusesConvolutionsAndLeavesInWords) {
  if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  EXPECT_EQ(MakeFusedBackend(PictureSpec(true, 0), std::make_shared<ThreadTeam>(1)).status(),
            absl::UnimplementedError("the fused back end computes encoders of kind mlp, got cnn for the actor"));
  policy::PolicySpec leaves = policy::SmallSpecForTesting();
  leaves.observation_space = *space::ParseSpace("Tuple(Discrete(3), Discrete(2))");
  leaves.mutable_critic()->encoder = policy::EncoderKind::kLeaves;
  leaves.mutable_critic()->leaf_encoders = {{.leaf = 0, .hidden_sizes = {5}}};
  EXPECT_EQ(MakeFusedBackend(leaves, std::make_shared<ThreadTeam>(1)).status(),
            absl::UnimplementedError("the fused back end computes encoders of kind mlp, got leaves for the critic"));
}

TEST(TorchImagesTest, BytesAreScaledAsActorsScaleThem) {
  for (const std::string bounds : {"0, 255", "0, 1", "3, 40", "by element"}) {
    SCOPED_TRACE(bounds);
    policy::PolicySpec spec = PictureSpec(/*bytes=*/true, 0);
    const int64_t pixels = spec.observation_size();
    std::vector<double> low, high;
    for (int64_t i = 0; i < pixels; ++i) {
      low.push_back(static_cast<double>(i % 3));
      high.push_back(static_cast<double>(i % 3 + i % 5 * 50));
    }
    spec.observation_space = bounds == "by element"
                                 ? *space::Space::Box(low, high, {9, 8, 2}, tensor::DType::kUint8)
                                 : *space::ParseSpace(absl::StrCat("Box(", bounds, ", [9, 8, 2], uint8)"));
    const space::RowScaling scaling = space::ScalingByBounds(spec.observation_space);
    for (const int64_t agents : {1, 3}) {
      const torch::Tensor bytes = torch::arange(5 * agents * pixels).remainder(251).to(torch::kUInt8).view({5, -1});
      const torch::Tensor want = torch::empty({5, agents * pixels});
      for (int64_t image = 0; image < 5 * agents; ++image) {
        scaling.Apply(bytes.data_ptr<uint8_t>() + image * pixels, pixels, want.data_ptr<float>() + image * pixels);
      }
      EXPECT_TRUE(torch::equal(ImageScaling(spec, agents, torch::kCPU).Apply(bytes), want)) << agents;
    }
  }
}

}  // namespace
}  // namespace troupe::training
