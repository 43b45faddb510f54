#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace troupe::tensor {

/// Where the memory of tensors comes from: pageable here, pinned (CUDA) in lib/training. Thread-safe.
class TensorAllocator {
 public:
  virtual ~TensorAllocator() = default;
  /// `bytes` > 0 bytes, 64-byte aligned, uninitialized; never nullptr (aborts when memory is gone).
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Deallocate(void* memory, size_t bytes) = 0;

  /// Ordinary memory; lives for ever.
  static TensorAllocator& Pageable();
};

/// Bytes that somebody owns: movable, 64-byte aligned, uninitialized, never shrinking. The allocator must outlive it.
/// Not thread-safe.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes, TensorAllocator& allocator = TensorAllocator::Pageable());
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  /// The bytes at `offset` as `count` elements of T; the caller keeps alignment and bounds (checked).
  template <typename T>
  absl::Span<T> As(size_t offset, size_t count) {
    CheckRange(offset, count * sizeof(T));
    return absl::Span<T>(reinterpret_cast<T*>(data_ + offset), count);
  }
  template <typename T>
  absl::Span<const T> As(size_t offset, size_t count) const {
    CheckRange(offset, count * sizeof(T));
    return absl::Span<const T>(reinterpret_cast<const T*>(data_ + offset), count);
  }

  /// At least `bytes` bytes; what it held is lost when it must grow.
  void EnsureCapacity(size_t bytes);

 private:
  void CheckRange(size_t offset, size_t bytes) const;

  TensorAllocator* allocator_ = &TensorAllocator::Pageable();
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// `bytes` rounded up to the alignment that columns have inside a fragment.
constexpr size_t kColumnAlignment = 64;
constexpr size_t AlignUp(size_t bytes) { return (bytes + kColumnAlignment - 1) & ~(kColumnAlignment - 1); }

}  // namespace troupe::tensor
