#include "lib/policy/policy_state_codec.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "lib/base/crc32c.h"
#include "lib/base/philox.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/random_state.h"
#include "lib/policy/testing/same_bits.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

PolicySpec Spec() {
  PolicySpec spec = SmallSpecForTesting();
  spec.normalize_observations = true;
  return spec;
}

// Bytes of the header; the id ("p") and the first block's header follow.
constexpr size_t kHeader = 40;
constexpr size_t kIdBytes = 1;
constexpr uint32_t kHeaders = kHeader + kIdBytes + 24;

/// A wrong checksum must not be what protects the decoder from what lies behind it.
std::string WithChecksum(std::string bytes) {
  if (bytes.size() < 8) return bytes;
  const uint32_t crc = base::Crc32c(bytes.data() + 8, bytes.size() - 8);
  std::memcpy(bytes.data() + 4, &crc, 4);
  return bytes;
}

TEST(PolicyStateCodecTest, GivesBackEveryBit) {
  const PolicyState state = RandomState(Spec(), 1);
  const absl::StatusOr<PolicyState> decoded = DecodePolicyState(EncodePolicyState(state), Spec());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSameBits(*decoded, state);
  EXPECT_EQ(decoded->version, state.version);
  PolicyState bare = state;  // weights alone, without value normalization
  for (const char* name : {"adam.exp_avg", "adam.exp_avg_sq"}) bare.Remove(name);
  bare.SetMoments("value_moments", {});
  const absl::StatusOr<PolicyState> decoded_bare = DecodePolicyState(EncodePolicyState(bare), Spec());
  ASSERT_TRUE(decoded_bare.ok()) << decoded_bare.status();
  ExpectSameBits(*decoded_bare, bare);
}

TEST(PolicyStateCodecTest, BytesOfCountsTheArrays) {
  const PolicyState state = RandomState(Spec(), 1);
  const auto size = static_cast<int64_t>(EncodePolicyState(state).size());
  // In memory a block has a header of its own.
  const auto headers = static_cast<double>(sizeof(PolicyState) + state.blocks.size() * sizeof(StateBlock));
  EXPECT_NEAR(static_cast<double>(BytesOf(state)), static_cast<double>(size), headers);
}

TEST(PolicyStateCodecTest, EveryCutIsDataLoss) {
  const std::string bytes = EncodePolicyState(RandomState(Spec(), 1));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    EXPECT_EQ(DecodePolicyState(cut, Spec()).status().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_EQ(DecodePolicyState(WithChecksum(cut), Spec()).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_EQ(DecodePolicyState(WithChecksum(bytes + "x"), Spec()).status().code(), absl::StatusCode::kDataLoss);
}

TEST(PolicyStateCodecTest, EveryFlippedBitIsDataLoss) {
  const std::string bytes = EncodePolicyState(RandomState(Spec(), 1));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    ASSERT_EQ(DecodePolicyState(flipped, Spec()).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
}

// What has a good checksum is either refused or a valid state of the policy.
TEST(PolicyStateCodecTest, HostileBytesAreRefusedOrValid) {
  const std::string bytes = EncodePolicyState(RandomState(Spec(), 1));
  base::PhiloxSequence random(base::PhiloxKey::Make(7, base::RandomStream::kTest), {});
  for (int i = 0; i < 20000; ++i) {
    std::string hostile = bytes;
    const uint32_t changes = 1 + random.Below(4);
    for (uint32_t c = 0; c < changes; ++c) {
      // Sizes stand in the headers of the state and of its first block: half of the changes go there.
      const uint32_t range = random.Below(2) == 0 ? kHeaders : static_cast<uint32_t>(bytes.size());
      hostile[random.Below(range)] = static_cast<char>(random.Below(256));
    }
    const absl::StatusOr<PolicyState> decoded = DecodePolicyState(WithChecksum(hostile), Spec());
    if (decoded.ok()) {
      EXPECT_TRUE(decoded->Validate(Spec()).ok());
    } else {
      EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

TEST(PolicyStateCodecTest, SizesThatOverflowAreRefused) {
  const std::string bytes = EncodePolicyState(RandomState(Spec(), 1));
  // Of the id, behind which it stands, and of the first block's name and values.
  for (const size_t field : {size_t{32}, kHeader + kIdBytes + 8, kHeader + kIdBytes + 16}) {
    for (const uint64_t size : {uint64_t{1} << 62, std::numeric_limits<uint64_t>::max(), uint64_t{1} << 61}) {
      std::string hostile = bytes;
      std::memcpy(hostile.data() + field, &size, 8);
      const absl::Status status = DecodePolicyState(WithChecksum(hostile), Spec()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("sizes do not add up"));
    }
  }
}

TEST(PolicyStateCodecTest, AnotherFormatIsNamed) {
  std::string bytes = EncodePolicyState(RandomState(Spec(), 1));
  bytes[8] = 3;
  const absl::Status status = DecodePolicyState(WithChecksum(bytes), Spec()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("got format 3, expected 2"));
}

TEST(PolicyStateCodecTest, AnotherPolicysStateIsDataLoss) {
  PolicySpec other = Spec();
  other.id = PolicyId("q");
  PolicySpec larger = Spec();
  larger.actor.hidden_sizes = {5, 4};
  PolicyState nan = RandomState(Spec(), 1);
  nan.MutableFloats(kParameters)[3] = std::nanf("");
  const std::string bytes = EncodePolicyState(RandomState(Spec(), 1));
  const absl::Status id = DecodePolicyState(bytes, other).status();
  EXPECT_EQ(id.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(id.message(), "stored state of policy \"q\" is damaged: state is of policy \"p\"; expected \"q\"");
  EXPECT_EQ(DecodePolicyState(bytes, larger).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodePolicyState(EncodePolicyState(nan), Spec()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace troupe::policy
