#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/storage/disk_calls.h"

namespace troupe::storage {

/// A file that is open for reading, also after its name is gone. Thread-safe; Read may block on the disk.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  /// When it was opened.
  virtual int64_t bytes() const = 0;
  /// Exactly `bytes` from `offset` on; DATA_LOSS when the file ends before.
  virtual absl::StatusOr<std::string> Read(int64_t offset, int64_t bytes) const = 0;
};

/// The few file operations that durable state needs, as a port so that tests can make each of them fail. Errors:
/// NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk full), DATA_LOSS (fsync failed), INTERNAL;
/// messages name the operation and the last two parts of the path. Thread-safe; every method may block on the disk.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Creates `path` (it must not exist), writes the pieces one after another and syncs it. On failure the file is
  /// removed.
  virtual absl::Status WriteNewFile(const std::string& path, absl::Span<const absl::Span<const std::byte>> pieces) = 0;
  /// The whole file; RESOURCE_EXHAUSTED when it is larger than `max_bytes`, NOT_FOUND also when it is no regular file
  /// (a link is none).
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) = 0;
  /// For parts of a file. NOT_FOUND also when it is no regular file (a link is none).
  virtual absl::StatusOr<std::unique_ptr<OpenFile>> Open(const std::string& path) = 0;
  /// Atomic; replaces a file or an empty directory.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  /// Makes the bytes of a file durable that another process may have written.
  virtual absl::Status SyncFile(const std::string& path) = 0;
  /// Makes creations and renames inside `path` durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  /// With parents; fine when it exists.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  /// A file or a directory with all it holds; fine when it is gone.
  virtual absl::Status RemoveTree(const std::string& path) = 0;
  /// Names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  /// Makes `link` point at `target` (relative), atomically replacing an older link.
  virtual absl::Status ReplaceLink(const std::string& target, const std::string& link) = 0;
  virtual absl::StatusOr<std::string> ReadLink(const std::string& link) = 0;

  /// The machine's files; lives for ever.
  static FileSystem& Posix();
  /// The machine's files, changed through `calls`, which outlives it.
  static std::unique_ptr<FileSystem> Posix(DiskCalls* calls);
};

/// `text` as the one piece that WriteNewFile takes.
inline absl::Span<const std::byte> AsPiece(const std::string& text) {
  return absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

/// The folder that `path` lies in; "." for a bare name.
std::string FolderOf(const std::string& path);

/// Makes `path` with its parents, durably: those that were not there are synced into theirs.
absl::Status MakeDurableDirectories(FileSystem& fs, const std::string& path);

/// Writes a small file so that readers see the old or the new text, never a part: beside, synced, renamed, parent
/// synced.
absl::Status ReplaceFile(FileSystem& fs, const std::string& path, const std::string& text);

}  // namespace troupe::storage
