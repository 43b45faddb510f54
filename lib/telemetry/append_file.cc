#include "lib/telemetry/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace troupe::telemetry {
namespace {

class PosixAppendFile final : public AppendFile {
 public:
  PosixAppendFile(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {}
  ~PosixAppendFile() override { ::close(fd_); }

  Appended Append(std::string_view bytes) override {
    Appended appended;
    while (appended.bytes < bytes.size()) {
      const ssize_t written = ::write(fd_, bytes.data() + appended.bytes, bytes.size() - appended.bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        appended.status = absl::ResourceExhaustedError(std::strerror(errno));
        break;
      }
      appended.bytes += static_cast<size_t>(written);
    }
    return appended;
  }

  absl::Status Truncate(int64_t bytes) override {
    if (::ftruncate(fd_, bytes) == 0) return absl::OkStatus();
    return absl::InternalError(std::strerror(errno));
  }

  int64_t bytes() const override { return bytes_; }

 private:
  const int fd_;
  const int64_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AppendFile>> AppendFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return absl::Status(absl::ErrnoToStatusCode(errno), std::strerror(errno));
  struct stat info {};
  const int64_t bytes = ::fstat(fd, &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
  return std::make_unique<PosixAppendFile>(fd, bytes);
}

}  // namespace troupe::telemetry
