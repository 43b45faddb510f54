#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::cli {

/// A private folder for the learner's socket and what workers read, in $TMPDIR, else in /tmp; removed with what is in
/// it. A folder whose path is too long for a Unix socket is passed by.
class SocketFolder {
 public:
  static absl::StatusOr<std::unique_ptr<SocketFolder>> Make();
  ~SocketFolder();
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string socket() const { return path_ + "/learner.sock"; }
  std::string worker_yaml() const { return path_ + "/worker.yaml"; }
  std::string module(const std::string& sha256) const;

  /// A file in it, for this user's eyes: arguments of environments may be nobody else's business.
  static absl::Status Write(const std::string& path, const std::string& text);

 private:
  explicit SocketFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace troupe::cli
