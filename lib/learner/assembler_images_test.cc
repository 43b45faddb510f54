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

/// Two agents that see images and share a policy; with a joint observation where `joint`.
sample::BatchSchema PictureSchema(bool convolutions, bool joint, int64_t agent_ids) {
  sample::BatchSchema schema = sample::SimpleSchema(2, kPixels);
  policy::PolicySpec& spec = schema.policies[policy::PolicySlot(0)];
  spec.observation_space = *space::Space::Box(0, 255, {5, 4, 2}, tensor::DType::kUint8);
  spec.agent_id_size = agent_ids;
  if (!joint) spec.SetCriticInput(policy::NetworkInput::kObservation, 0);
  if (convolutions) {
    spec.actor.encoder = policy::EncoderKind::kCnn;
    spec.actor.conv_layers = {{4, 3, 1}};
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
    const sample::BatchSchema flat = PictureSchema(false, joint, agent_ids);
    const auto fragments = RandomFragments(flat, seed, 1);
    Assembler floats(flat, {.max_policy_lag = 1});
    Assembler bytes(PictureSchema(true, joint, agent_ids), {.max_policy_lag = 1});
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
        ASSERT_EQ(static_cast<float>(images.row(r)[i]) * (1.0f / 255.0f), whole.row(r)[i]) << r << ", pixel " << i;
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

}  // namespace
}  // namespace troupe::learner
