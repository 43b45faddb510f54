#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include "lib/tensor/buffer.h"

namespace troupe::rpc {

/// Buffers that come back: a received fragment's columns lie in one, and mapping fresh pages for every 4 MiB would cost
/// more than copying them. Thread-safe; never blocks. Leases may outlive the pool.
///
/// Sizes are rounded up to powers of two; at most `max_idle_bytes` are kept, what comes back beyond that is freed.
class BufferPool {
 public:
  explicit BufferPool(size_t max_idle_bytes) : state_(std::make_shared<State>(max_idle_bytes)) {}

  /// At least `bytes` bytes, 64-byte aligned, uninitialized. Returns to the pool with its last owner.
  std::shared_ptr<tensor::Buffer> Lease(size_t bytes);
  size_t idle_bytes() const;

 private:
  struct State {
    explicit State(size_t max_idle) : max_idle_bytes(max_idle) {}
    void Return(tensor::Buffer buffer);

    const size_t max_idle_bytes;
    mutable base::Mutex mutex;
    std::map<size_t, std::vector<tensor::Buffer>> idle ABSL_GUARDED_BY(mutex);
    size_t idle_bytes ABSL_GUARDED_BY(mutex) = 0;
  };

  std::shared_ptr<State> state_;
};

}  // namespace troupe::rpc
