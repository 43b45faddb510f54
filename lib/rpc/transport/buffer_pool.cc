#include "lib/rpc/transport/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace troupe::rpc {
namespace {

constexpr size_t kMinBytes = size_t{16} << 10;

}  // namespace

std::shared_ptr<tensor::Buffer> BufferPool::Lease(size_t bytes) {
  const size_t size = std::bit_ceil(std::max(bytes, kMinBytes));
  std::optional<tensor::Buffer> buffer;
  {
    base::MutexLock lock(&state_->mutex);
    auto it = state_->idle.find(size);
    if (it != state_->idle.end() && !it->second.empty()) {
      buffer = std::move(it->second.back());
      it->second.pop_back();
      state_->idle_bytes -= size;
    }
  }
  if (!buffer.has_value()) buffer.emplace(size);
  return std::shared_ptr<tensor::Buffer>(new tensor::Buffer(*std::move(buffer)),
                                         [state = state_](tensor::Buffer* leased) {
                                           state->Return(std::move(*leased));
                                           delete leased;
                                         });
}

size_t BufferPool::idle_bytes() const {
  base::MutexLock lock(&state_->mutex);
  return state_->idle_bytes;
}

void BufferPool::State::Return(tensor::Buffer buffer) {
  // Freed outside the lock when it is not kept: `buffer` dies after `lock`.
  base::MutexLock lock(&mutex);
  if (idle_bytes + buffer.size() > max_idle_bytes) return;
  idle_bytes += buffer.size();
  idle[buffer.size()].push_back(std::move(buffer));
}

}  // namespace troupe::rpc
