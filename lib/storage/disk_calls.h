#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace troupe::storage {

/// The system calls by which a FileSystem changes the disk: the machine's, as a port of their own so that a test can
/// stop at each of them and know what was synced. Each returns what the call returns, and sets errno. Thread-safe.
class DiskCalls {
 public:
  virtual ~DiskCalls() = default;

  /// A descriptor of a new, empty file; EEXIST when there is something at `path`.
  virtual int Create(const std::string& path, mode_t mode);
  virtual ssize_t Write(int fd, const void* data, size_t bytes);
  /// fsync of a file or a directory; `path` is what `fd` was opened by.
  virtual int Sync(int fd, const std::string& path);
  virtual int Rename(const std::string& from, const std::string& to);
  virtual int Link(const std::string& target, const std::string& link);  ///< symbolic
  virtual int Unlink(const std::string& path);
  virtual int MakeDirectory(const std::string& path);
  virtual int RemoveDirectory(const std::string& path);
};

}  // namespace troupe::storage
