#include "lib/rpc/codec/weight_codec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include "lib/rpc/transport/limits.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

policy::PolicySpec Spec(bool normalize, int64_t hidden = 4) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.normalize_observations = normalize;
  spec.actor.hidden_sizes = {hidden, hidden};
  return spec;
}

std::shared_ptr<policy::WeightSnapshot> Snapshot(const policy::PolicySpec& spec, int64_t n) {
  auto snapshot = std::make_shared<policy::WeightSnapshot>();
  snapshot->id = spec.id;
  snapshot->version = {2, n};
  snapshot->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()));
  for (size_t i = 0; i < snapshot->actor.size(); ++i)
    snapshot->actor[i] = static_cast<float>(i) + static_cast<float>(n);
  if (spec.normalize_observations) {
    snapshot->observation_mean.assign(static_cast<size_t>(spec.observation_size()), 0.5f);
    snapshot->observation_inverse_std.assign(static_cast<size_t>(spec.observation_size()), 2.0f);
  }
  return snapshot;
}

std::vector<grpc::ByteBuffer> Encode(const policy::WeightSnapshotPtr& snapshot, int64_t since = 0) {
  return PublishedWeights(policy::PolicySlot(0), since, snapshot).Chunks();
}

SlotPoliciesPtr Expect(const policy::PolicySpec& spec, int64_t since = 0) {
  auto policies = std::make_shared<SlotPolicies>(policy::BySlot<policy::PolicySpec>{spec});
  policies->since[policy::PolicySlot(0)] = since;
  return policies;
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

TEST(WeightCodecTest, ExplorationTravelsWithTheWeights) {
  const policy::PolicySpec spec = Spec(false);
  const auto snapshot = Snapshot(spec, 5);
  snapshot->exploration = {{"epsilon", 0.05}, {"temperature", 0.1}};
  const std::vector<grpc::ByteBuffer> encoded = Encode(snapshot);
  ASSERT_EQ(encoded.size(), 1u);
  const auto update = WeightAssembler(Expect(spec)).Add(encoded[0]);
  ASSERT_TRUE(update.ok() && update->has_value()) << update.status();
  EXPECT_EQ((*update)->snapshot->exploration, snapshot->exploration);

  const auto code = [&](const std::function<void(v1::WeightUpdate*)>& spoil) {
    v1::WeightUpdate message = Parse(encoded[0]);
    spoil(&message);
    return WeightAssembler(Expect(spec)).Add(Bytes(message)).status().code();
  };
  EXPECT_EQ(code([](v1::WeightUpdate*) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code([](v1::WeightUpdate* m) { *m->add_exploration() = m->exploration(0); }),
            absl::StatusCode::kInvalidArgument)
      << "twice";
  EXPECT_EQ(code([](v1::WeightUpdate* m) { m->mutable_exploration(0)->set_value(std::nan("")); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::WeightUpdate* m) { m->mutable_exploration(0)->set_name(std::string(65, 'a')); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::WeightUpdate* m) {
              for (int i = 0; i < 15; ++i) m->add_exploration()->set_name(std::to_string(i));
            }),
            absl::StatusCode::kInvalidArgument)
      << "17";
}

TEST(WeightCodecTest, RoundTripInOneChunk) {
  for (const bool normalize : {false, true}) {
    const policy::PolicySpec spec = Spec(normalize);
    const auto snapshot = Snapshot(spec, 5);
    const std::vector<grpc::ByteBuffer> encoded = Encode(snapshot);
    ASSERT_EQ(encoded.size(), 1u);
    WeightAssembler assembler(Expect(spec));
    const auto update = assembler.Add(encoded[0]);
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
  const std::vector<grpc::ByteBuffer> encoded = Encode(snapshot);
  ASSERT_EQ(encoded.size(), 3u);
  WeightAssembler assembler(Expect(spec));
  for (size_t i = 0; i < encoded.size(); ++i) {
    EXPECT_LE(Parse(encoded[i]).payload().size(), kWeightChunkBytes);
    const auto update = assembler.Add(encoded[i]);
    ASSERT_TRUE(update.ok()) << update.status();
    ASSERT_EQ(update->has_value(), i + 1 == encoded.size());
    if (update->has_value()) {
      EXPECT_EQ((*update)->snapshot->actor, snapshot->actor);
    }
  }
}

TEST(WeightCodecTest, ANewerVersionMayBeginInTheMiddleOfAnOlderOne) {
  const policy::PolicySpec spec = Spec(false, 1024);
  const std::vector<grpc::ByteBuffer> older = Encode(Snapshot(spec, 5));
  const std::vector<grpc::ByteBuffer> newer = Encode(Snapshot(spec, 6));
  WeightAssembler assembler(Expect(spec));
  ASSERT_TRUE(assembler.Add(older[0]).ok());
  ASSERT_TRUE(assembler.Add(newer[0]).ok());
  EXPECT_EQ(assembler.Add(older[1]).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WeightCodecTest, RefusesWhatDoesNotFit) {
  const policy::PolicySpec spec = Spec(false);
  const v1::WeightUpdate good = Parse(Encode(Snapshot(spec, 5))[0]);
  const auto code = [&spec](const v1::WeightUpdate& update) {
    WeightAssembler assembler(Expect(spec));
    return assembler.Add(Bytes(update)).status().code();
  };
  EXPECT_EQ(code(good), absl::StatusCode::kOk);
  v1::WeightUpdate bad = good;
  bad.set_policy_slot(1024);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad.set_policy_slot(-1);
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
  EXPECT_EQ(code(Parse(Encode(poisoned)[0])), absl::StatusCode::kInvalidArgument);
}

TEST(WeightCodecTest, EncodedOnceAndOnlyWhenNeeded) {
  auto snapshot = Snapshot(Spec(false), 5);
  const PublishedWeights published(policy::PolicySlot(3), 7, snapshot);
  snapshot->version.n = 6;  // what is encoded is what stands there at the first need
  const std::vector<grpc::ByteBuffer>& chunks = published.Chunks();
  EXPECT_EQ(&published.Chunks(), &chunks);
  const v1::WeightUpdate update = Parse(chunks[0]);
  EXPECT_EQ(update.version().n(), 6);
  EXPECT_EQ(update.policy_slot(), 3);
  EXPECT_EQ(update.since(), 7);
}

TEST(WeightCodecTest, AnAnnouncementSaysWhatIsCurrent) {
  WeightAssembler assembler(Expect(Spec(false)));
  const auto update = assembler.Add(EncodeAnnouncement({3, 9}, 12));
  ASSERT_TRUE(update.ok() && update->has_value());
  EXPECT_EQ((*update)->snapshot, nullptr);
  EXPECT_EQ((*update)->version, (policy::WeightVersion{3, 9}));
  EXPECT_EQ((*update)->number, 12u);
}

TEST(WeightCodecTest, WeightsOfAnotherPolicyInTheSlotAreDropped) {
  const policy::PolicySpec spec = Spec(true, 1024);
  const policy::PolicySpec other = Spec(false, 8);  // of another shape
  WeightAssembler assembler(Expect(other, 4));
  for (const int64_t since : {3, 5}) {
    for (const grpc::ByteBuffer& chunk : Encode(Snapshot(spec, 5), since)) {
      const auto update = assembler.Add(chunk);
      ASSERT_TRUE(update.ok()) << update.status();
      EXPECT_FALSE(update->has_value());
    }
  }
  const auto update = assembler.Add(Encode(Snapshot(other, 5), 4)[0]);
  ASSERT_TRUE(update.ok()) << update.status();
  EXPECT_TRUE(update->has_value());
}

TEST(WeightCodecTest, ASlotThatChangesInTheMiddleDropsTheRest) {
  const policy::PolicySpec spec = Spec(true, 1024);
  const std::vector<grpc::ByteBuffer> chunks = Encode(Snapshot(spec, 5));
  WeightAssembler assembler(Expect(spec));
  ASSERT_TRUE(assembler.Add(chunks[0]).ok());
  assembler.SetPolicies(Expect(spec));  // the same policy: it goes on
  ASSERT_TRUE(assembler.Add(chunks[1]).ok());
  assembler.SetPolicies(Expect(Spec(false, 8), 2));
  const auto last = assembler.Add(chunks[2]);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_FALSE(last->has_value());
  const auto next = assembler.Add(Encode(Snapshot(Spec(false, 8), 6), 2)[0]);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->has_value()) << "of the new policy's size";
}

}  // namespace
}  // namespace troupe::rpc
