#include "lib/base/philox.h"

#include <set>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

// The known-answer vectors that Random123 ships for philox4x32 with 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0}, {0, 0, 0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Philox4x32({0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}),
            (std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(Philox4x32({0xa4093822u, 0x299f31d0u}, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(PhiloxTest, NeighbouringSeedsAndStreamsGiveDifferentKeys) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    for (const RandomStream stream : {RandomStream::kReset, RandomStream::kAction, RandomStream::kShuffle}) {
      const PhiloxKey key = PhiloxKey::Make(seed, stream);
      keys.insert({key.k0, key.k1});
    }
  }
  EXPECT_EQ(keys.size(), 3000u);
}

TEST(PhiloxTest, UniformsStayInRangeAndSpread) {
  EXPECT_EQ(ToUniformFloat(0), 0.0f);
  EXPECT_LT(ToUniformFloat(0xFFFFFFFFu), 1.0f);
  EXPECT_GT(ToOpenUniformFloat(0), 0.0f);
  EXPECT_LT(ToOpenUniformFloat(0xFFFFFFFFu), 1.0f);
  PhiloxSequence sequence(PhiloxKey::Make(3, RandomStream::kTest), {});
  double sum = 0, squares = 0, normal = 0, normal_squares = 0;
  constexpr int kDraws = 100000;
  std::array<int, 7> buckets{};
  for (int i = 0; i < kDraws; ++i) {
    const double u = sequence.Uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    const double n = sequence.Normal();
    normal += n;
    normal_squares += n * n;
    ++buckets[sequence.Below(7)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
  EXPECT_NEAR(normal / kDraws, 0.0, 0.02);
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 0.03);
  for (const int count : buckets) EXPECT_NEAR(count, kDraws / 7.0, 600);
}

}  // namespace
}  // namespace troupe::base
