#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::telemetry {

/// A file that only grows, as a port so that tests can fill the disk. Messages of its errors name no path. Not
/// thread-safe; every method may block on the disk.
class AppendFile {
 public:
  struct Appended {
    size_t bytes = 0;     ///< so many are in the file now
    absl::Status status;  ///< why not all are
  };

  virtual ~AppendFile() = default;
  /// Adds `bytes` at the end; a full disk may leave a part of them there.
  virtual Appended Append(std::string_view bytes) = 0;
  /// Cuts the file behind its first `bytes`.
  virtual absl::Status Truncate(int64_t bytes) = 0;
  /// When it was opened.
  virtual int64_t bytes() const = 0;

  /// The file at `path`, made if it is not there (0644). PERMISSION_DENIED when it cannot be opened.
  static absl::StatusOr<std::unique_ptr<AppendFile>> Open(const std::string& path);
};

}  // namespace troupe::telemetry
