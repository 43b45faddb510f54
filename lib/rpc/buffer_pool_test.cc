#include "lib/rpc/buffer_pool.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

TEST(BufferPoolTest, GivesAlignedBuffersAndTakesThemBack) {
  BufferPool pool(1 << 20);
  auto a = pool.Lease(100'000);
  EXPECT_GE(a->size(), 100'000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % 64, 0u);
  const void* memory = a->data();
  EXPECT_EQ(pool.idle_bytes(), 0u);
  a.reset();
  EXPECT_EQ(pool.idle_bytes(), 131'072u);
  EXPECT_EQ(pool.Lease(120'000)->data(), memory);
}

TEST(BufferPoolTest, KeepsNoMoreThanItsLimit) {
  BufferPool pool(1 << 20);
  {
    auto a = pool.Lease(1 << 20);
    auto b = pool.Lease(1 << 20);
  }
  EXPECT_EQ(pool.idle_bytes(), size_t{1} << 20);
}

TEST(BufferPoolTest, ALeaseOutlivesItsPool) {
  std::shared_ptr<tensor::Buffer> lease;
  {
    BufferPool pool(1 << 20);
    lease = pool.Lease(64);
  }
  lease->data()[0] = std::byte{1};
  lease.reset();
}

}  // namespace
}  // namespace troupe::rpc
