#include "lib/rpc/transport/buffer_pool.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

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
  std::weak_ptr<tensor::Buffer> watched;
  {
    BufferPool pool(1 << 20);
    lease = pool.Lease(64);
    watched = lease;
    std::fill_n(lease->data(), 64, std::byte{1});
  }
  // Other pools and their leases take nothing that is still lent.
  BufferPool other(1 << 20);
  const std::shared_ptr<tensor::Buffer> of_other = other.Lease(64);
  std::fill_n(of_other->data(), 64, std::byte{2});
  EXPECT_NE(of_other->data(), lease->data());
  EXPECT_TRUE(std::all_of(lease->data(), lease->data() + 64, [](std::byte b) { return b == std::byte{1}; }));
  lease.reset();
  EXPECT_TRUE(watched.expired()) << "nobody keeps it";
  EXPECT_EQ(other.idle_bytes(), 0u) << "it is no other pool's";
}

}  // namespace
}  // namespace troupe::rpc
