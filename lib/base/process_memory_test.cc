#include "lib/base/process_memory.h"

#include <pthread.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace troupe::base {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(ProcessMemoryTest, SeesWhatIsHeldAndThatItIsGivenBack) {
  const ProcessMemory before = ProcessMemory::Now();
  if (before.heap_bytes == 0) GTEST_SKIP() << "a sanitizer's allocator";
  std::vector<std::unique_ptr<char[]>> held;
  for (const int64_t bytes : {64 * kMiB, kMiB / 16, kMiB / 16}) {
    held.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes)));
    std::memset(held.back().get(), 1, static_cast<size_t>(bytes));
  }
  const ProcessMemory during = ProcessMemory::Now();
  EXPECT_GE(during.heap_bytes - before.heap_bytes, 64 * kMiB);
  EXPECT_LE(during.heap_bytes - before.heap_bytes, 66 * kMiB);
  EXPECT_GE(during.rss_bytes - before.rss_bytes, 60 * kMiB);
  EXPECT_GE(during.rss_bytes, 64 * kMiB);
  held.clear();
  EXPECT_LE(ProcessMemory::Now().heap_bytes - before.heap_bytes, kMiB);
}

int64_t StackBytesOfAThread() {
  int64_t found = 0;
  std::thread([&] {
    pthread_attr_t attributes;
    size_t bytes = 0;
    ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    found = static_cast<int64_t>(bytes);
  }).join();
  return found;
}

TEST(ProcessMemoryTest, ThreadStacksAreMadeSmallerAndNeverLarger) {
  const int64_t before = StackBytesOfAThread();
  ASSERT_GE(before, 2 * kMiB);
  LimitThreadStacks(2 * before);
  EXPECT_EQ(StackBytesOfAThread(), before);
  LimitThreadStacks(kMiB);
  const int64_t after = StackBytesOfAThread();
  EXPECT_GE(after, kMiB);
  EXPECT_LE(after, kMiB + kMiB / 4) << "a sanitizer may add to it";
}

TEST(HeapTrimmerTest, GivesBackWhatLiesBetweenBlocksInUse) {
  if (ProcessMemory::Now().heap_bytes == 0) GTEST_SKIP() << "a sanitizer's allocator";
  // Blocks of a policy's size: every other one is freed, and none of the rest is at the heap's end.
  constexpr size_t kBlockBytes = 64 << 10;
  std::vector<std::unique_ptr<char[]>> held;
  for (int i = 0; i < 1024; ++i) {
    held.push_back(std::make_unique<char[]>(kBlockBytes));
    std::memset(held.back().get(), 1, kBlockBytes);
  }
  for (size_t i = 0; i < held.size(); i += 2) held[i].reset();
  const ProcessMemory before = ProcessMemory::Now();
  HeapTrimmer trimmer;
  EXPECT_FALSE(trimmer.MaybeTrim(absl::Seconds(100))) << "a process that begins has nothing to give";
  EXPECT_FALSE(trimmer.MaybeTrim(absl::Seconds(100) + HeapTrimmer::kInterval / 2));
  EXPECT_LT(before.rss_bytes - ProcessMemory::Now().rss_bytes, 4 * kMiB);
  EXPECT_TRUE(trimmer.MaybeTrim(absl::Seconds(100) + HeapTrimmer::kInterval));
  EXPECT_FALSE(trimmer.MaybeTrim(absl::Seconds(101) + HeapTrimmer::kInterval));
  const ProcessMemory after = ProcessMemory::Now();
  EXPECT_GT(before.rss_bytes - after.rss_bytes, 20 * kMiB);
  EXPECT_NEAR(static_cast<double>(before.heap_bytes), static_cast<double>(after.heap_bytes), kMiB);
}

}  // namespace
}  // namespace troupe::base
