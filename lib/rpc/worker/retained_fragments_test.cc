#include "lib/rpc/worker/retained_fragments.h"

#include <cstdint>
#include <vector>

#include "lib/rpc/testing/said.h"
#include "lib/rpc/transport/limits.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// Fragment n has 100 + n bytes.
RetainedFragments WithFragments(uint64_t count) {
  RetainedFragments fragments;
  for (uint64_t n = 1; n <= count; ++n) {
    EXPECT_EQ(fragments.next_sequence(), n);
    fragments.Add(FragmentOfBytes(100 + n));
  }
  return fragments;
}

std::vector<size_t> SendAll(RetainedFragments& fragments) {
  std::vector<size_t> sent;
  while (fragments.has_unsent()) sent.push_back(fragments.Send().Length() - 100);
  return sent;
}

std::vector<size_t> NumbersOf(const RetainedFragments::Freed& freed) {
  std::vector<size_t> numbers;
  for (const EncodedFragment& fragment : freed) numbers.push_back(fragment.payload_bytes - 100);
  return numbers;
}

using Numbers = std::vector<size_t>;

TEST(RetainedFragmentsTest, WhatIsNotAcknowledgedIsSentAgainInOrder) {
  RetainedFragments fragments = WithFragments(3);
  EXPECT_EQ(SendAll(fragments), Numbers({1, 2, 3}));
  EXPECT_EQ(SendAll(fragments), Numbers());
  fragments.SendAgain();
  EXPECT_EQ(SendAll(fragments), Numbers({1, 2, 3}));
  EXPECT_EQ(NumbersOf(fragments.OnAck({.sequence = 2, .watermark = 0})), Numbers({2})) << "acks may cross";
  EXPECT_EQ(fragments.first_unacked(), 1u);
  fragments.SendAgain();
  EXPECT_EQ(SendAll(fragments), Numbers({1, 3}));
  EXPECT_EQ(NumbersOf(fragments.FreeUpTo(2)), Numbers({1}));
  EXPECT_EQ(fragments.first_unacked(), 3u);
  EXPECT_EQ(NumbersOf(fragments.FreeUpTo(UINT64_MAX)), Numbers({3}));
  EXPECT_TRUE(fragments.empty());
  EXPECT_EQ(fragments.first_unacked(), 4u) << "the next one's";
}

TEST(RetainedFragmentsTest, AnAckBetweenTwoSendsSkipsNothing) {
  RetainedFragments fragments = WithFragments(4);
  fragments.Send();
  fragments.Send();
  EXPECT_EQ(NumbersOf(fragments.OnAck({.sequence = 1, .watermark = 1})), Numbers({1}));
  EXPECT_EQ(NumbersOf(fragments.OnAck({.sequence = 4, .watermark = 1})), Numbers({4})) << "before it was sent";
  EXPECT_EQ(SendAll(fragments), Numbers({3}));
  EXPECT_EQ(fragments.size(), 2u);
  EXPECT_TRUE(fragments.OnAck({.sequence = 9, .watermark = 1}).empty()) << "of no fragment";
}

TEST(RetainedFragmentsTest, AcksAreCountedByWhatBecameOfTheFragment) {
  RetainedFragments fragments = WithFragments(4);
  fragments.OnAck({1, 1, sample::Disposition::kAccepted, ""});
  fragments.OnAck({2, 2, sample::Disposition::kStale, "too old"});
  fragments.OnAck({3, 3, sample::Disposition::kInvalid, "not finite"});
  EXPECT_EQ(fragments.acks().last_reason, "not finite");
  fragments.OnAck({4, 4, sample::Disposition::kDuplicate, "known\x1b"});
  EXPECT_EQ(fragments.acks().accepted, 1);
  EXPECT_EQ(fragments.acks().stale, 1);
  EXPECT_EQ(fragments.acks().invalid, 1);
  EXPECT_EQ(fragments.acks().duplicate, 1);
  EXPECT_EQ(fragments.acks().last_reason, "known\\x1b");
}

TEST(RetainedFragmentsTest, OneAlwaysFitsAndMoreOnlyWithCredit) {
  RetainedFragments fragments;
  EXPECT_TRUE(fragments.Fits(FragmentOfBytes(1000))) << "before there is credit";
  fragments.Add(FragmentOfBytes(1000));
  EXPECT_FALSE(fragments.Fits(FragmentOfBytes(1)));
  fragments.SetCredit(1500);
  EXPECT_TRUE(fragments.Fits(FragmentOfBytes(500)));
  EXPECT_FALSE(fragments.Fits(FragmentOfBytes(501)));
  fragments.Add(FragmentOfBytes(500));
  EXPECT_FALSE(fragments.Fits(FragmentOfBytes(1)));
  fragments.FreeUpTo(1);
  EXPECT_TRUE(fragments.Fits(FragmentOfBytes(1000)));
  fragments.OnAck({.sequence = 2, .watermark = 1});
  EXPECT_TRUE(fragments.Fits(FragmentOfBytes(100000)));
}

TEST(RetainedFragmentsTest, IsBoundedWhateverTheCredit) {
  RetainedFragments fragments;
  fragments.SetCredit(UINT64_MAX);
  EXPECT_EQ(fragments.credit_bytes(), kMaxUnackedBytes);
  for (size_t i = 0; i < kMaxUnackedFragments; ++i) {
    ASSERT_TRUE(fragments.Fits(FragmentOfBytes(1)));
    fragments.Add(FragmentOfBytes(1));
  }
  EXPECT_FALSE(fragments.Fits(FragmentOfBytes(1)));
}

}  // namespace
}  // namespace troupe::rpc
