#include "lib/tensor/buffer.h"

#include <cstdint>
#include <utility>

#include "lib/tensor/dtype.h"
#include <gtest/gtest.h>

namespace troupe::tensor {
namespace {

class CountingAllocator final : public TensorAllocator {
 public:
  void* Allocate(size_t bytes) override {
    ++live;
    return Pageable().Allocate(bytes);
  }
  void Deallocate(void* memory, size_t bytes) override {
    --live;
    Pageable().Deallocate(memory, bytes);
  }
  int live = 0;
};

TEST(BufferTest, IsAlignedAndGrowsOnlyWhenItMust) {
  CountingAllocator allocator;
  {
    Buffer buffer(100, allocator);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kColumnAlignment, 0u);
    const std::byte* before = buffer.data();
    buffer.EnsureCapacity(50);
    EXPECT_EQ(buffer.data(), before);
    buffer.EnsureCapacity(1000);
    EXPECT_GE(buffer.size(), 1000u);
    EXPECT_EQ(allocator.live, 1);
    Buffer moved = std::move(buffer);
    EXPECT_EQ(buffer.size(), 0u);
    EXPECT_EQ(moved.As<float>(0, 250).size(), 250u);
  }
  EXPECT_EQ(allocator.live, 0);
}

TEST(BufferDeathTest, ViewsOutsideAreOurBug) {
  Buffer buffer(16);
  EXPECT_DEATH(buffer.As<float>(0, 5), "CHECK failed");
  EXPECT_DEATH(buffer.As<float>(SIZE_MAX, 1), "CHECK failed");
}

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(ElementBytes(DType::kFloat32), 4u);
  EXPECT_EQ(ElementBytes(DType::kUint8), 1u);
  EXPECT_EQ(ElementBytes(DType::kInt64), 8u);
  EXPECT_EQ(ElementBytes(static_cast<DType>(77)), 0u);
  EXPECT_EQ(DTypeName(DType::kUint32), "uint32");
  EXPECT_EQ(DTypeName(static_cast<DType>(77)), "unspecified");
}

}  // namespace
}  // namespace troupe::tensor
