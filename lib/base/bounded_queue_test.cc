#include "lib/base/bounded_queue.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

using Queue = BoundedQueue<std::unique_ptr<int>>;

TEST(BoundedQueueTest, KeepsOrderAndWeight) {
  Queue queue(10);
  ASSERT_TRUE(queue.TryPush(std::make_unique<int>(1), 4).ok());
  ASSERT_TRUE(queue.TryPush(std::make_unique<int>(2), 6).ok());
  EXPECT_EQ(queue.weight(), 10);
  auto refused = std::make_unique<int>(3);
  EXPECT_EQ(queue.TryPush(std::move(refused), 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused, nullptr) << "a refused item stays with its owner";
  EXPECT_EQ(**queue.TryPop(), 1);
  EXPECT_EQ(**queue.TryPop(), 2);
  EXPECT_FALSE(queue.TryPop().has_value());
  EXPECT_EQ(queue.weight(), 0);
}

TEST(BoundedQueueTest, AnEmptyQueueTakesAnItemAboveItsCapacity) {
  Queue queue(10);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1), 100).ok());
  EXPECT_FALSE(queue.TryPush(std::make_unique<int>(2), 1).ok());
}

TEST(BoundedQueueTest, DrainAndDropDiffer) {
  Queue drained(10), dropped(10);
  ASSERT_TRUE(drained.TryPush(std::make_unique<int>(1)).ok());
  ASSERT_TRUE(dropped.TryPush(std::make_unique<int>(1)).ok());
  drained.Close(Queue::CloseMode::kDrain);
  dropped.Close(Queue::CloseMode::kDrop);
  EXPECT_TRUE(drained.AwaitPop(absl::InfiniteDuration()).has_value());
  EXPECT_FALSE(drained.AwaitPop(absl::InfiniteDuration()).has_value());
  EXPECT_FALSE(dropped.AwaitPop(absl::InfiniteDuration()).has_value());
  EXPECT_EQ(drained.TryPush(std::make_unique<int>(2)).code(), absl::StatusCode::kCancelled);
}

TEST(BoundedQueueTest, WaitsHaveDeadlines) {
  Queue queue(1);
  EXPECT_FALSE(queue.AwaitPop(absl::Milliseconds(1)).has_value());
  ASSERT_TRUE(queue.TryPush(std::make_unique<int>(1)).ok());
  EXPECT_EQ(queue.AwaitPush(std::make_unique<int>(2), 1, absl::Milliseconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(BoundedQueueTest, FourProducersFourConsumersLoseNothing) {
  constexpr int kPerProducer = 2000;
  BoundedQueue<int> queue(16);
  std::vector<std::thread> threads;
  std::vector<int64_t> sums(4, 0);
  for (int p = 0; p < 4; ++p) {
    threads.emplace_back([&queue, p] {
      for (int i = 0; i < kPerProducer; ++i) {
        ASSERT_TRUE(queue.AwaitPush(p * kPerProducer + i, 1, absl::Seconds(30)).ok());
      }
    });
  }
  std::vector<std::thread> consumers;
  for (int c = 0; c < 4; ++c) {
    consumers.emplace_back([&queue, &sums, c] {
      while (const auto item = queue.AwaitPop(absl::Seconds(30))) sums[c] += *item;
    });
  }
  for (std::thread& thread : threads) thread.join();
  queue.Close(BoundedQueue<int>::CloseMode::kDrain);
  for (std::thread& thread : consumers) thread.join();
  constexpr int64_t kItems = 4 * kPerProducer;
  EXPECT_EQ(sums[0] + sums[1] + sums[2] + sums[3], kItems * (kItems - 1) / 2);
}

}  // namespace
}  // namespace troupe::base
