#include "lib/rpc/stream_registry.h"

#include <utility>

#include "absl/time/clock.h"

namespace troupe::rpc {

void StreamRegistry::Add(std::shared_ptr<ServedStream> stream) {
  absl::Status end_status;
  {
    base::MutexLock lock(&mutex_);
    streams_[stream.get()] = stream;
    end_status = end_status_;
  }
  if (!end_status.ok()) stream->End(end_status);
}

void StreamRegistry::Remove(const ServedStream* stream) {
  std::shared_ptr<ServedStream> removed;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  removed = std::move(it->second);
  streams_.erase(it);
  changed_.NotifyAll();
}

void StreamRegistry::CheckProgress(absl::Duration now) {
  for (const auto& stream : Copy()) stream->CheckProgress(now);
}

void StreamRegistry::EndAll(const absl::Status& status) {
  {
    base::MutexLock lock(&mutex_);
    end_status_ = status;
  }
  for (const auto& stream : Copy()) stream->End(status);
}

bool StreamRegistry::AwaitEmpty(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  base::MutexLock lock(&mutex_);
  while (!streams_.empty()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

size_t StreamRegistry::size() const {
  base::MutexLock lock(&mutex_);
  return streams_.size();
}

std::vector<std::shared_ptr<ServedStream>> StreamRegistry::Copy() const {
  base::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<ServedStream>> streams;
  streams.reserve(streams_.size());
  for (const auto& [key, stream] : streams_) streams.push_back(stream);
  return streams;
}

}  // namespace troupe::rpc
