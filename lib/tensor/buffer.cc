#include "lib/tensor/buffer.h"

#include <cstdlib>
#include <utility>

#include "lib/base/check.h"

namespace troupe::tensor {
namespace {

class PageableAllocator final : public TensorAllocator {
 public:
  void* Allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(kColumnAlignment, AlignUp(bytes));
    TROUPE_CHECK(memory != nullptr);
    return memory;
  }
  void Deallocate(void* memory, size_t /*bytes*/) override { std::free(memory); }
};

}  // namespace

TensorAllocator& TensorAllocator::Pageable() {
  static PageableAllocator allocator;
  return allocator;
}

Buffer::Buffer(size_t bytes, TensorAllocator& allocator) : allocator_(&allocator) { EnsureCapacity(bytes); }

Buffer::Buffer(Buffer&& other) noexcept
    : allocator_(other.allocator_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) allocator_->Deallocate(data_, size_);
}

void Buffer::EnsureCapacity(size_t bytes) {
  if (bytes <= size_) return;
  if (data_ != nullptr) allocator_->Deallocate(data_, size_);
  data_ = static_cast<std::byte*>(allocator_->Allocate(bytes));
  size_ = bytes;
}

void Buffer::CheckRange(size_t offset, size_t bytes) const { TROUPE_CHECK(offset <= size_ && bytes <= size_ - offset); }

}  // namespace troupe::tensor
