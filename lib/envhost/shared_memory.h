#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/envhost/shared_layout.h"

namespace troupe::envhost {

/// An anonymous file in memory with the control page at its head and blocks of environments after it. It can grow and
/// never shrink (sealed), so that no child can take away pages that we read. Not thread-safe but for page(); what it
/// gave lives as long as it does.
class SharedMemory {
 public:
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  int fd() const { return fd_; }
  ControlPage& page() const { return *page_; }

  struct Block {
    size_t offset = 0;
    BlockHeader* header = nullptr;
  };
  /// A zeroed block of whole pages. RESOURCE_EXHAUSTED when there is no memory.
  absl::StatusOr<Block> Add(size_t bytes);

 private:
  SharedMemory(int fd, ControlPage* page) : fd_(fd), page_(page) {}

  const int fd_;
  ControlPage* const page_;
  size_t size_ = sizeof(ControlPage);
  std::vector<std::pair<void*, size_t>> mapped_;
};

/// Waits until *word is no longer `expected`, somebody wakes it, or `timeout` is over; may return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);
/// Wakes everybody, in any process, who waits on it.
void FutexWake(std::atomic<uint32_t>& word);

}  // namespace troupe::envhost
