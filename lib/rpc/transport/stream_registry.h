#pragma once

#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace troupe::rpc {

/// A stream that this process serves.
class ServedStream {
 public:
  virtual ~ServedStream() = default;
  /// Sends what is queued, then ends the stream with `status`. Idempotent; thread-safe; does not block.
  virtual void End(const absl::Status& status) = 0;
  /// Ends a stream whose peer has not said hello by `now` (steady clock).
  virtual void CheckProgress(absl::Duration now) = 0;
};

/// Every open stream of a server: one that is never finished would hang gRPC's Shutdown. Thread-safe.
/// States: open -> closed (EndAll); a stream added after that is ended at once.
class StreamRegistry {
 public:
  void Add(std::shared_ptr<ServedStream> stream);
  void Remove(const ServedStream* stream);
  void CheckProgress(absl::Duration now);
  void EndAll(const absl::Status& status);
  /// Blocks until no stream is left; false after `timeout`.
  bool AwaitEmpty(absl::Duration timeout);
  size_t size() const;

 private:
  std::vector<std::shared_ptr<ServedStream>> Copy() const;

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::map<const ServedStream*, std::shared_ptr<ServedStream>> streams_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);  ///< not OK: closed
};

}  // namespace troupe::rpc
