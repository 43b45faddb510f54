#include "lib/cli/socket_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSocketPath = 99;  // sun_path has 108 bytes; some leave room for a suffix

}  // namespace

absl::StatusOr<std::unique_ptr<SocketFolder>> SocketFolder::Make() {
  std::vector<std::string> parents = {"/tmp"};
  const char* tmpdir = std::getenv("TMPDIR");
  if (tmpdir != nullptr && *tmpdir == '/') parents.insert(parents.begin(), tmpdir);
  std::string errors;
  for (const std::string& parent : parents) {
    std::string path = parent + "/troupe-XXXXXX";
    if (path.size() + sizeof("/learner.sock") > kMaxSocketPath) continue;
    if (mkdtemp(path.data()) != nullptr) return std::unique_ptr<SocketFolder>(new SocketFolder(path));
    absl::StrAppend(&errors, errors.empty() ? "" : "; ", parent, ": ", std::strerror(errno));
  }
  return absl::PermissionDeniedError(absl::StrCat("cannot make a folder for the learner's socket: ", errors));
}

SocketFolder::~SocketFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string SocketFolder::module(const std::string& sha256) const { return absl::StrCat(path_, "/", sha256, ".pt"); }

absl::Status SocketFolder::Write(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  size_t written = 0;
  while (fd >= 0 && written < text.size()) {
    const ssize_t count = write(fd, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    written += static_cast<size_t>(count);
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  if (fd >= 0 && written == text.size()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(error)));
}

}  // namespace troupe::cli
