#include "lib/storage/disk_blob_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::storage {

DiskBlobStore::DiskBlobStore(std::string folder, FileSystem& fs) : folder_(std::move(folder)), fs_(fs) {}

absl::Status DiskBlobStore::Put(const std::string& key, const std::string& bytes) {
  TROUPE_RETURN_IF_ERROR(policy::ValidateBlobKey(key));
  if (static_cast<int64_t>(bytes.size()) > kMaxBlobBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("blob ", key, " has ", bytes.size(), " bytes; expected at most ", kMaxBlobBytes));
  }
  absl::Status put = ReplaceFile(fs_, PathOf(key), bytes);
  if (put.code() == absl::StatusCode::kNotFound) {
    put = fs_.MakeDirectories(folder_);
    if (put.ok()) put = ReplaceFile(fs_, PathOf(key), bytes);
  }
  if (put.ok()) return put;
  return absl::Status(put.code(), absl::StrCat("policy map cache \"", folder_, "\": ", put.message()));
}

absl::StatusOr<std::string> DiskBlobStore::Get(const std::string& key) {
  TROUPE_RETURN_IF_ERROR(policy::ValidateBlobKey(key));
  absl::StatusOr<std::string> bytes = fs_.ReadFile(PathOf(key), kMaxBlobBytes);
  if (bytes.status().code() == absl::StatusCode::kResourceExhausted) {
    return absl::DataLossError(std::string(bytes.status().message()));
  }
  return bytes;
}

absl::Status DiskBlobStore::Delete(const std::string& key) {
  TROUPE_RETURN_IF_ERROR(policy::ValidateBlobKey(key));
  return fs_.RemoveTree(PathOf(key));
}

absl::Status DiskBlobStore::Clear() { return fs_.RemoveTree(folder_); }

}  // namespace troupe::storage
