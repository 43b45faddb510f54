#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::policy {

/// Bytes by key, outside of memory: a folder, later an object store. What it holds is a cache: it may be gone after the
/// process. Keys are made by the program, never from outside: `[a-z0-9_-]{1,64}`, else INVALID_ARGUMENT. Thread-safe
/// for calls with different keys; every method may block on the storage.
class BlobStore {
 public:
  virtual ~BlobStore() = default;
  /// Readers see the old bytes or the new ones, never a part. RESOURCE_EXHAUSTED: full; PERMISSION_DENIED: read-only;
  /// on an error the old bytes are still there.
  virtual absl::Status Put(const std::string& key, const std::string& bytes) = 0;
  /// NOT_FOUND: no such key; DATA_LOSS: what is there cannot be what was put.
  virtual absl::StatusOr<std::string> Get(const std::string& key) = 0;
  /// Fine when it is gone.
  virtual absl::Status Delete(const std::string& key) = 0;
};

/// INVALID_ARGUMENT unless `key` has the form above.
absl::Status ValidateBlobKey(std::string_view key);

}  // namespace troupe::policy
