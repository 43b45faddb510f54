// Images that stay bytes: what the assembler makes of the same fragments for a policy with convolutions and for one
// without.

#include <cstdint>
#include <vector>

#include "lib/learner/assembler.h"
#include "lib/learner/testing/naive_gather.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

constexpr int64_t kPixels = 5 * 4 * 2;

/// An image whose bounds are 0 and 255, others, or by element.
space::Space ImageSpace(uint64_t kind) {
  const std::vector<int64_t> shape = {5, 4, 2};
  if (kind % 3 == 0) return *space::Space::Box(0, 255, shape, tensor::DType::kUint8);
  if (kind % 3 == 1) return *space::Space::Box(2, 9, shape, tensor::DType::kUint8);
  std::vector<double> low, high;
  for (int64_t i = 0; i < kPixels; ++i) {
    low.push_back(static_cast<double>(i % 3));
    high.push_back(static_cast<double>(i % 5 == 0 ? i % 3 : 4 * i + 3));
  }
  return *space::Space::Box(low, high, shape, tensor::DType::kUint8);
}

/// A pixel as networks read it.
float Scaled(const space::RowScaling& scaling, uint8_t byte, int64_t pixel) {
  const size_t at = scaling.is_uniform() ? 0 : static_cast<size_t>(pixel);
  return (static_cast<float>(byte) - scaling.offset[at]) * scaling.scale[at];
}

/// Two agents that see images and share a policy; with a joint observation where `joint`.
sample::BatchSchema PictureSchema(bool convolutions, bool joint, int64_t agent_ids, bool critic_convolves = false,
                                  const space::Space& image = ImageSpace(0)) {
  sample::BatchSchema schema = sample::SimpleSchema(2, kPixels);
  policy::PolicySpec& spec = schema.policies[policy::PolicySlot(0)];
  spec.observation_space = image;
  spec.agent_id_size = agent_ids;
  if (!joint) spec.SetCriticInput(policy::NetworkInput::kObservation, 0);
  if (convolutions) {
    spec.actor.encoder = policy::EncoderKind::kCnn;
    spec.actor.conv_layers = {{4, 3, 1}};
  }
  if (critic_convolves) {
    spec.mutable_critic()->encoder = policy::EncoderKind::kCnn;
    spec.mutable_critic()->conv_layers = {{3, 2, 1}};
  }
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(spec.image_bytes(), convolutions);
  return schema;
}

TEST(AssemblerImagesTest, TheyAreTheBytesThatTheFloatsAreMadeOf) {
  int64_t finals = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const bool joint = seed % 2 == 0;
    const int64_t agent_ids = seed % 3 == 0 ? 0 : 2;
    const space::Space image = ImageSpace(seed);
    const space::RowScaling scaling = space::ScalingByBounds(image);
    const sample::BatchSchema flat = PictureSchema(false, joint, agent_ids, false, image);
    const auto fragments = RandomFragments(flat, seed, 1);
    Assembler floats(flat, {.max_policy_lag = 1});
    Assembler bytes(PictureSchema(true, joint, agent_ids, false, image), {.max_policy_lag = 1});
    const TrainBatch& want_batch = floats.Assemble(fragments, 1).batch;
    const TrainBatch& got_batch = bytes.Assemble(fragments, 1).batch;
    ASSERT_EQ(got_batch.policies.size(), 1u);
    const PolicyTrainBatch& want = want_batch.policies[0];
    const PolicyTrainBatch& got = got_batch.policies[0];
    ASSERT_EQ(got.rows, want.rows);
    ASSERT_EQ(got.final_rows, want.final_rows);
    finals += got.final_rows;
    EXPECT_EQ(want.images.rows, 0);
    ASSERT_EQ(got.images.rows, want.rows);
    ASSERT_EQ(got.images.columns, kPixels);
    ASSERT_EQ(got.final_images.rows, want.final_rows);
    EXPECT_EQ(got.final_images.data, got.images.row(got.rows)) << "actor and critic may read one matrix";
    EXPECT_EQ(got.obs.columns, agent_ids);
    EXPECT_EQ(got.final_obs.data, got.obs.row(got.rows));
    const auto expect_row = [&](const ByteMatrix& images, const RowMatrix& others, const RowMatrix& whole, int64_t r) {
      for (int64_t i = 0; i < kPixels; ++i) {
        ASSERT_EQ(Scaled(scaling, images.row(r)[i], i), whole.row(r)[i]) << r << ", pixel " << i;
      }
      for (int64_t i = 0; i < agent_ids; ++i) ASSERT_EQ(others.row(r)[i], whole.row(r)[kPixels + i]) << r;
      for (int64_t i = agent_ids; i < others.stride; ++i) ASSERT_EQ(others.row(r)[i], 0.0f) << r;
    };
    for (int64_t r = 0; r < got.rows; ++r) expect_row(got.images, got.obs, want.obs, r);
    for (int64_t f = 0; f < got.final_rows; ++f) expect_row(got.final_images, got.final_obs, want.final_obs, f);
    EXPECT_EQ(std::vector<int32_t>(got.slot.begin(), got.slot.end()),
              std::vector<int32_t>(want.slot.begin(), want.slot.end()));
    // What a critic reads of all agents is floats.
    ASSERT_EQ(got.critic_rows, want.critic_rows);
    for (int64_t r = 0; r < got.critic_rows; ++r) {
      for (int64_t i = 0; i < want.critic_state.stride; ++i) {
        ASSERT_EQ(got.critic_state.row(r)[i], want.critic_state.row(r)[i]) << r << ", " << i;
      }
    }
  }
  EXPECT_GT(finals, 20);
}

/// Rows of `images` and `bits`, as the floats of a joint observation.
std::vector<float> JointRow(const PolicyTrainBatch& rows, int64_t row, const space::RowScaling& scaling) {
  std::vector<float> joint;
  const float* const bits = rows.critic_state.row(row);
  for (int64_t i = 0; i < rows.critic_images.columns; ++i) {
    const uint8_t byte = rows.critic_images.row(row)[i];
    const bool is_there = bits[i / kPixels] != 0;  // what networks make of an image that is not there is zeros
    EXPECT_TRUE(is_there || byte == 0);
    joint.push_back(is_there ? Scaled(scaling, byte, i % kPixels) : 0.0f);
  }
  joint.insert(joint.end(), bits, bits + rows.critic_state.columns);
  return joint;
}

TEST(AssemblerImagesTest, AJointObservationThatIsConvolvedIsTheBytesThatTheFloatsAreMadeOf) {
  int64_t absent = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const space::Space image = ImageSpace(seed / 2);
    const space::RowScaling scaling = space::ScalingByBounds(image);
    const sample::BatchSchema flat = PictureSchema(false, true, 2, false, image);
    // With an actor that reads floats, too, of which the bytes are made again.
    const bool actor_convolves = seed % 2 == 0;
    sample::BatchSchema convolved = PictureSchema(true, true, 2, true, image);
    const auto fragments = RandomFragments(flat, seed, 1);
    Assembler floats(flat, {.max_policy_lag = 1});
    if (!actor_convolves) {
      policy::PolicySpec& spec = convolved.policies[policy::PolicySlot(0)];
      spec.actor.encoder = policy::EncoderKind::kMlp;
      spec.actor.conv_layers = {};
    }
    ASSERT_EQ(Assembler::CheckSchema(convolved), absl::OkStatus());
    Assembler bytes(convolved, {.max_policy_lag = 1});
    const PolicyTrainBatch& want = floats.Assemble(fragments, 1).batch.policies.at(0);
    const PolicyTrainBatch& got = bytes.Assemble(fragments, 1).batch.policies.at(0);
    EXPECT_EQ(want.critic_images.rows, 0);
    ASSERT_EQ(got.critic_rows, want.critic_rows);
    ASSERT_EQ(got.critic_images.rows, want.critic_rows);
    ASSERT_EQ(got.critic_images.columns, 2 * kPixels);
    ASSERT_EQ(got.critic_state.columns, 2);
    for (int64_t r = 0; r < got.critic_rows; ++r) {
      const float* const row = want.critic_state.row(r);
      ASSERT_EQ(JointRow(got, r, scaling), std::vector<float>(row, row + want.critic_state.columns)) << r;
      absent += row[2 * kPixels] == 0.0f || row[2 * kPixels + 1] == 0.0f ? 1 : 0;
      for (int64_t i = 2; i < got.critic_state.stride; ++i) ASSERT_EQ(got.critic_state.row(r)[i], 0.0f) << r;
    }
    EXPECT_EQ(std::vector<int32_t>(got.critic_row.begin(), got.critic_row.end()),
              std::vector<int32_t>(want.critic_row.begin(), want.critic_row.end()));
  }
  EXPECT_GT(absent, 20);
}

TEST(AssemblerImagesTest, CriticsOfBytesAndOfFloatsHaveTheirOwnRows) {
  // Two policies, of which one alone convolves, and neither needs all env steps.
  const auto schema = [](bool second_convolves) {
    sample::BatchSchema schema = PictureSchema(true, true, 2, true);
    policy::PolicySpec second =
        PictureSchema(second_convolves, true, 2, second_convolves).policies[policy::PolicySlot(0)];
    second.id = policy::PolicyId("second");
    schema.policies.push_back(second);
    return schema;
  };
  sample::FakeRollout rollout(schema(false), {.min_episode_steps = 4,
                                              .max_episode_steps = 9,
                                              .agents_come_and_go = true,
                                              .policies_of_slot = {{0, 1}, {0, 1}}});
  const policy::WeightVersion version{1, 1};
  std::vector<sample::MultiAgentBatchPtr> fragments;
  for (const auto& fragment : rollout.Play(sample::MakeGrant(12, 20, version), version)) fragments.push_back(fragment);
  Assembler mixed(schema(false), {.max_policy_lag = 1});
  Assembler alike(schema(true), {.max_policy_lag = 1});
  const TrainBatch& got = mixed.Assemble(fragments, 1).batch;
  const TrainBatch& want = alike.Assemble(fragments, 1).batch;
  ASSERT_EQ(got.policies.size(), 2u);
  const space::RowScaling scaling = space::ScalingByBounds(ImageSpace(0));
  for (size_t p = 0; p < 2; ++p) {
    SCOPED_TRACE(p);
    const PolicyTrainBatch& one = got.policies[p];
    const PolicyTrainBatch& other = want.policies[p];
    ASSERT_GT(one.critic_rows, 0);
    ASSERT_EQ(one.critic_rows, other.critic_rows);
    ASSERT_EQ(other.critic_images.rows, other.critic_rows);
    ASSERT_EQ(one.critic_images.rows, p == 0 ? one.critic_rows : 0);
    for (int64_t r = 0; r < one.critic_rows; ++r) {
      const float* const row = one.critic_state.row(r);
      const std::vector<float> joint =
          p == 0 ? JointRow(one, r, scaling) : std::vector<float>(row, row + one.critic_state.columns);
      ASSERT_EQ(joint, JointRow(other, r, scaling)) << r;
    }
  }
}

TEST(AssemblerImagesTest, SaysWhichAgentsImagesDoNotFit) {
  sample::BatchSchema schema = PictureSchema(true, true, 2, true);
  schema.agent_observation_sizes = {kPixels - 1, kPixels + 1};
  EXPECT_EQ(Assembler::CheckSchema(schema).message(),
            "policy 'shared' has a critic that convolves all agents' images, but their observations have other sizes "
            "than its own, 40");
}

}  // namespace
}  // namespace troupe::learner
