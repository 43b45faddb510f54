#pragma once

#include <map>
#include <string>

#include "lib/base/mutex.h"
#include "lib/policy/blob_store.h"

namespace troupe::policy {

/// Keeps blobs in memory; refuses and damages where it is told to. Thread-safe.
class FakeBlobStore final : public BlobStore {
 public:
  absl::Status Put(const std::string& key, const std::string& bytes) override {
    if (const absl::Status status = ValidateBlobKey(key); !status.ok()) return status;
    base::MutexLock lock(&mutex_);
    if (!refusal_.ok()) return refusal_;
    blobs_[key] = bytes;
    if (tears_) blobs_[key].pop_back();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key) override {
    base::MutexLock lock(&mutex_);
    const auto found = blobs_.find(key);
    if (found == blobs_.end()) return absl::NotFoundError("no blob " + key);
    return found->second;
  }
  absl::Status Delete(const std::string& key) override {
    base::MutexLock lock(&mutex_);
    blobs_.erase(key);
    return absl::OkStatus();
  }

  /// What Put says from now on.
  void Refuse(absl::Status status) {
    base::MutexLock lock(&mutex_);
    refusal_ = std::move(status);
  }
  /// Put says OK from now on, and loses the last byte.
  void TearWrites() {
    base::MutexLock lock(&mutex_);
    tears_ = true;
  }
  /// Flips a bit of every blob.
  void Damage() {
    base::MutexLock lock(&mutex_);
    for (auto& [key, bytes] : blobs_) bytes[bytes.size() / 2] ^= 1;
  }
  size_t size() const {
    base::MutexLock lock(&mutex_);
    return blobs_.size();
  }

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, std::string> blobs_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool tears_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::policy
