// What a learner needs for images of bytes, from the fragments to what networks read: at most 1.3 bytes for each.

#include <cstdint>
#include <cstdio>
#include <vector>

#include "lib/learner/assembler.h"
#include "lib/learner/testing/naive_gather.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/training/core/prepared_batch.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

/// Knows how much of its memory is held.
class CountingAllocator final : public tensor::TensorAllocator {
 public:
  void* Allocate(size_t bytes) override {
    held += bytes;
    return Pageable().Allocate(bytes);
  }
  void Deallocate(void* memory, size_t bytes) override {
    held -= bytes;
    Pageable().Deallocate(memory, bytes);
  }

  size_t held = 0;
};

/// Bytes of a train batch and a prepared batch for a byte of an image, of rows of two agents.
double BytesOfAByte(bool joint, int64_t agent_ids) {
  sample::BatchSchema schema = sample::SimpleSchema(2, 42 * 42);
  policy::PolicySpec& spec = schema.policies[policy::PolicySlot(0)];
  spec.observation_space = *space::Space::Box(0, 255, {42, 42, 1}, tensor::DType::kUint8);
  if (!joint) spec.SetCriticInput(policy::NetworkInput::kObservation, 0);
  spec.agent_id_size = agent_ids;
  for (policy::NetworkSpec* const network : {&spec.actor, spec.mutable_critic()}) {
    network->encoder = policy::EncoderKind::kCnn;
    network->conv_layers = {{16, 4, 2}};
  }
  const auto fragments = learner::RandomFragments(schema, 5, 1);
  CountingAllocator allocator;
  learner::Assembler assembler(schema, {.max_policy_lag = 1}, allocator);
  const learner::PolicyTrainBatch& rows = assembler.Assemble(fragments, 1).batch.policies.at(0);
  PreparedBatch prepared(allocator);
  EXPECT_EQ(prepared.Prepare(spec, {}, rows), absl::OkStatus());
  EXPECT_EQ(prepared.images().data, rows.images.data);
  EXPECT_EQ(prepared.critic_images().data, rows.critic_images.data);
  EXPECT_GT(rows.rows, 50);
  return static_cast<double>(allocator.held) /
         static_cast<double>((rows.rows + rows.final_rows) * spec.observation_size());
}

TEST(ImageMemoryTest, AtMostOneAndAThirdBytesForAByteOfAnImage) {
  for (const int64_t agent_ids : {0, 2}) {
    const double share = BytesOfAByte(/*joint=*/false, agent_ids);
    std::printf("%.3f bytes of train batch and prepared batch for a byte of an image, %d agent ids\n", share,
                static_cast<int>(agent_ids));
    EXPECT_LE(share, 1.3) << "all columns of the batch, its room to grow, and what networks read";
    EXPECT_GE(share, 1.0);
  }
}

TEST(ImageMemoryTest, ACriticOfAllAgentsHasThemOnceMore) {
  // Its rows have a place for both agents at every env step that one of them acted or bootstraps at.
  const double share = BytesOfAByte(/*joint=*/true, 2);
  std::printf("%.3f bytes for a byte of an image, with a critic of all agents\n", share);
  EXPECT_LE(share, 2.8) << "episodes of a few steps, of agents that come and go";
  EXPECT_GE(share, 2.0);
}

}  // namespace
}  // namespace troupe::training
