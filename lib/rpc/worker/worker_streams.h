#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/stream_registry.h"
#include "lib/sample/ids.h"

namespace troupe::rpc {

/// Which Rollout stream each worker has. Keeps no stream alive, and remembers few that are gone: workers come and go,
/// under new ids, as often as anybody likes. Thread-safe.
class WorkerStreams {
 public:
  /// `stream` is the worker's from now on. The one it had before, where that is another one and still there.
  std::shared_ptr<ServedStream> Replace(sample::WorkerId id, const std::shared_ptr<ServedStream>& stream);
  /// Those that are gone and not forgotten yet included.
  size_t size() const;

 private:
  mutable base::Mutex mutex_;
  std::map<sample::WorkerId, std::weak_ptr<ServedStream>> streams_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = kFirstSweep;

  static constexpr size_t kFirstSweep = 64;
};

}  // namespace troupe::rpc
