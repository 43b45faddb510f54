#include "lib/rpc/transport/stream_registry.h"

#include <utility>

#include "lib/base/await.h"

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
  base::MutexLock lock(&mutex_);
  return base::Await(changed_, &mutex_, base::Deadline::After(timeout),
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return streams_.empty(); });
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
