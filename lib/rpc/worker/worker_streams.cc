#include "lib/rpc/worker/worker_streams.h"

#include <algorithm>
#include <iterator>

namespace troupe::rpc {

std::shared_ptr<ServedStream> WorkerStreams::Replace(sample::WorkerId id, const std::shared_ptr<ServedStream>& stream) {
  std::shared_ptr<ServedStream> older;
  base::MutexLock lock(&mutex_);
  std::weak_ptr<ServedStream>& current = streams_[id];
  older = current.lock();
  current = stream;
  if (older == stream) older = nullptr;
  if (streams_.size() < sweep_at_) return older;
  for (auto it = streams_.begin(); it != streams_.end();)
    it = it->second.expired() ? streams_.erase(it) : std::next(it);
  sweep_at_ = std::max(kFirstSweep, 2 * streams_.size());
  return older;
}

size_t WorkerStreams::size() const {
  base::MutexLock lock(&mutex_);
  return streams_.size();
}

}  // namespace troupe::rpc
