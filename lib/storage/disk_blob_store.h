#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/blob_store.h"
#include "lib/storage/file_system.h"

namespace troupe::storage {

/// Blobs as the files `<key>.blob` of one folder, which it makes at its first Put and makes again when it has vanished.
/// A cache: what an earlier process left in the folder is no use to the next one.
///
/// Made by lib/run. Thread-safe for calls with different keys; calls block on the disk. Unbounded: how much is put
/// is its user's to say.
class DiskBlobStore final : public policy::BlobStore {
 public:
  /// Most bytes of a blob; RESOURCE_EXHAUSTED to put more.
  static constexpr int64_t kMaxBlobBytes = int64_t{4} << 30;

  explicit DiskBlobStore(std::string folder, FileSystem& fs = FileSystem::Posix());

  /// As policy::BlobStore says; also PERMISSION_DENIED or INTERNAL for a folder that cannot be used.
  absl::Status Put(const std::string& key, const std::string& bytes) override;
  absl::StatusOr<std::string> Get(const std::string& key) override;
  absl::Status Delete(const std::string& key) override;
  /// Removes the folder with all it holds.
  absl::Status Clear();

  const std::string& folder() const { return folder_; }

 private:
  std::string PathOf(const std::string& key) const { return folder_ + "/" + key + ".blob"; }

  const std::string folder_;
  FileSystem& fs_;
};

}  // namespace troupe::storage
