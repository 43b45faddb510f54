#include "lib/rpc/weight_codec.h"

#include <limits>
#include <string>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include "lib/rpc/limits.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

policy::PolicySpec Spec(bool normalize, int64_t hidden = 4) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.normalize_observations = normalize;
  spec.model.actor_hidden_sizes = {hidden, hidden};
  return spec;
}

std::shared_ptr<policy::WeightSnapshot> Snapshot(const policy::PolicySpec& spec, int64_t n) {
  auto snapshot = std::make_shared<policy::WeightSnapshot>();
  snapshot->id = spec.id;
  snapshot->version = {2, n};
  snapshot->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).actor_size()));
  for (size_t i = 0; i < snapshot->actor.size(); ++i)
    snapshot->actor[i] = static_cast<float>(i) + static_cast<float>(n);
  if (spec.normalize_observations) {
    snapshot->observation_mean.assign(static_cast<size_t>(spec.observation_size()), 0.5f);
    snapshot->observation_inverse_std.assign(static_cast<size_t>(spec.observation_size()), 2.0f);
  }
  return snapshot;
}

v1::WeightUpdate Parse(const grpc::ByteBuffer& buffer) {
  const auto list = SliceList::From(buffer);
  SliceInputStream stream(*list);
  v1::WeightUpdate update;
  EXPECT_TRUE(update.ParseFromZeroCopyStream(&stream));
  return update;
}

grpc::ByteBuffer Bytes(const v1::WeightUpdate& update) {
  const grpc::Slice slice(update.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

TEST(WeightCodecTest, RoundTripInOneChunk) {
  for (const bool normalize : {false, true}) {
    const policy::PolicySpec spec = Spec(normalize);
    const auto snapshot = Snapshot(spec, 5);
    const EncodedWeightsPtr encoded = EncodeWeights(policy::PolicySlot(0), snapshot);
    ASSERT_EQ(encoded->chunks.size(), 1u);
    WeightAssembler assembler({spec});
    const auto update = assembler.Add(encoded->chunks[0]);
    ASSERT_TRUE(update.ok()) << update.status();
    ASSERT_TRUE(update->has_value());
    const policy::WeightSnapshot& got = *(*update)->snapshot;
    EXPECT_EQ(got.id, snapshot->id);
    EXPECT_EQ(got.version, snapshot->version);
    EXPECT_EQ(got.actor, snapshot->actor);
    EXPECT_EQ(got.observation_mean, snapshot->observation_mean);
    EXPECT_EQ(got.observation_inverse_std, snapshot->observation_inverse_std);
  }
}

TEST(WeightCodecTest, LargePoliciesComeInChunks) {
  const policy::PolicySpec spec = Spec(true, 1024);  // about 1 M parameters, 4 MiB
  const auto snapshot = Snapshot(spec, 5);
  const EncodedWeightsPtr encoded = EncodeWeights(policy::PolicySlot(0), snapshot);
  ASSERT_EQ(encoded->chunks.size(), 3u);
  WeightAssembler assembler({spec});
  for (size_t i = 0; i < encoded->chunks.size(); ++i) {
    EXPECT_LE(Parse(encoded->chunks[i]).payload().size(), kWeightChunkBytes);
    const auto update = assembler.Add(encoded->chunks[i]);
    ASSERT_TRUE(update.ok()) << update.status();
    ASSERT_EQ(update->has_value(), i + 1 == encoded->chunks.size());
    if (update->has_value()) {
      EXPECT_EQ((*update)->snapshot->actor, snapshot->actor);
    }
  }
}

TEST(WeightCodecTest, ANewerVersionMayBeginInTheMiddleOfAnOlderOne) {
  const policy::PolicySpec spec = Spec(false, 1024);
  const EncodedWeightsPtr older = EncodeWeights(policy::PolicySlot(0), Snapshot(spec, 5));
  const EncodedWeightsPtr newer = EncodeWeights(policy::PolicySlot(0), Snapshot(spec, 6));
  WeightAssembler assembler({spec});
  ASSERT_TRUE(assembler.Add(older->chunks[0]).ok());
  ASSERT_TRUE(assembler.Add(newer->chunks[0]).ok());
  EXPECT_EQ(assembler.Add(older->chunks[1]).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WeightCodecTest, RefusesWhatDoesNotFit) {
  const policy::PolicySpec spec = Spec(false);
  const v1::WeightUpdate good = Parse(EncodeWeights(policy::PolicySlot(0), Snapshot(spec, 5))->chunks[0]);
  const auto code = [&spec](const v1::WeightUpdate& update) {
    WeightAssembler assembler({spec});
    return assembler.Add(Bytes(update)).status().code();
  };
  EXPECT_EQ(code(good), absl::StatusCode::kOk);
  v1::WeightUpdate bad = good;
  bad.set_policy_slot(1);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.set_policy_id("another");
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.set_actor_size(uint64_t{1} << 62);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.set_total_bytes(uint64_t{1} << 62);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.set_offset(64);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.mutable_payload()->append("more");
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.clear_payload();
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  (*bad.mutable_payload())[9] ^= 4;
  EXPECT_EQ(code(bad), absl::StatusCode::kDataLoss);
  // Numbers that are not finite, with a checksum that fits.
  auto poisoned = Snapshot(spec, 5);
  poisoned->actor[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(code(Parse(EncodeWeights(policy::PolicySlot(0), poisoned)->chunks[0])), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::rpc
