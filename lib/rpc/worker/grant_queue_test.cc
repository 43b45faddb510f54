#include "lib/rpc/worker/grant_queue.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/rpc/transport/limits.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

sample::Grant GrantOfLanes(uint64_t id, size_t lanes = 1) {
  sample::Grant grant;
  grant.id = sample::GrantId(id);
  grant.lanes.resize(lanes);
  return grant;
}

TEST(GrantQueueTest, GivesGrantsInOrderUntilItIsClosed) {
  GrantQueue queue;
  for (const uint64_t id : {1, 2, 3}) ASSERT_TRUE(queue.Add(GrantOfLanes(id)).ok());
  EXPECT_EQ(queue.Take().id, sample::GrantId(1));
  EXPECT_FALSE(queue.closed());
  EXPECT_EQ(queue.Close("first").size(), 2u);
  EXPECT_TRUE(queue.Close("second").empty());
  EXPECT_EQ(queue.close_reason(), "second");
  EXPECT_TRUE(queue.Add(GrantOfLanes(4)).ok());
  EXPECT_TRUE(queue.empty()) << "a closed queue takes none";
}

TEST(GrantQueueTest, AGrantThatIsOverIsDroppedWhereItWaitsAndRememberedWhereItWasTaken) {
  GrantQueue queue;
  for (const uint64_t id : {1, 2, 3}) ASSERT_TRUE(queue.Add(GrantOfLanes(id)).ok());
  EXPECT_TRUE(queue.CheckTaken().ok()) << "none was taken";
  ASSERT_EQ(queue.Take().id, sample::GrantId(1));
  const GrantQueue::Dropped dropped = queue.OnOver(sample::GrantId(2));
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].id, sample::GrantId(2));
  EXPECT_FALSE(queue.IsOver(sample::GrantId(2)));
  EXPECT_TRUE(queue.OnOver(sample::GrantId(1)).empty());
  EXPECT_TRUE(queue.IsOver(sample::GrantId(1)));
  EXPECT_EQ(queue.CheckTaken(), absl::AbortedError("grant 1 was out for too long, others have it"));
  EXPECT_EQ(queue.Take().id, sample::GrantId(3));
  EXPECT_TRUE(queue.CheckTaken().ok()) << "another was taken since";
}

TEST(GrantQueueTest, MoreThanMayWaitAreRefused) {
  GrantQueue many, large;
  for (uint64_t id = 1; id <= kMaxWaitingGrants; ++id) ASSERT_TRUE(many.Add(GrantOfLanes(id)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(many.Add(GrantOfLanes(kMaxWaitingGrants + 1))));
  EXPECT_EQ(many.Clear().size(), kMaxWaitingGrants);
  EXPECT_TRUE(many.Add(GrantOfLanes(1)).ok());
  ASSERT_TRUE(large.Add(GrantOfLanes(1, kMaxWaitingLanes)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(large.Add(GrantOfLanes(2))));
}

}  // namespace
}  // namespace troupe::rpc
