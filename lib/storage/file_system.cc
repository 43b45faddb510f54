#include "lib/storage/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::storage {
namespace {

/// The last two parts: enough to find the file, and no more of somebody's disk than that in a message.
std::string ShortPath(const std::string& path) {
  const std::filesystem::path full(path);
  const std::filesystem::path parent = full.parent_path().filename();
  return parent.empty() ? full.filename().string() : (parent / full.filename()).string();
}

absl::Status ErrnoError(const char* operation, const std::string& path, int error) {
  const std::string message = absl::StrCat(operation, " ", ShortPath(path), ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EEXIST:
    case ENOTEMPTY:
      return absl::AlreadyExistsError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status NotRegular(const std::string& path) {
  return absl::NotFoundError(
      absl::StrCat(ShortPath(path), " is a link, a folder or a device, expected a regular file"));
}

/// Closes a descriptor at the end of a scope.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status WriteAll(DiskCalls& calls, int fd, const std::string& path, absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = calls.Write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoError("write", path, errno);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status Sync(DiskCalls& calls, int fd, const std::string& path) {
  // After a failed fsync the kernel may have dropped the dirty pages: the file is lost, trying again would lie.
  if (calls.Sync(fd, path) == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("fsync ", ShortPath(path), ": ", std::strerror(errno)));
}

/// Opens a regular file for reading; nothing else. Never waits, as the opening of a FIFO does, and follows no link in
/// the last part of the path: who may write into a folder must not choose other files of ours by it. `bytes` is what
/// it has.
absl::StatusOr<int> OpenRegular(const std::string& path, int64_t* bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
  // ENXIO: a socket, or a device that is not there.
  if (fd < 0 && (errno == ELOOP || errno == ENXIO)) return NotRegular(path);
  if (fd < 0) return ErrnoError("open", path, errno);
  struct stat info;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    *bytes = static_cast<int64_t>(info.st_size);
    return fd;
  }
  ::close(fd);
  return NotRegular(path);
}

class PosixOpenFile final : public OpenFile {
 public:
  PosixOpenFile(int fd, std::string path, int64_t bytes) : fd_(fd), path_(std::move(path)), bytes_(bytes) {}

  int64_t bytes() const override { return bytes_; }
  absl::StatusOr<std::string> Read(int64_t offset, int64_t bytes) const override {
    std::string text(static_cast<size_t>(bytes), '\0');
    int64_t have = 0;
    while (have < bytes) {
      const ssize_t got = ::pread(fd_.get(), text.data() + have, static_cast<size_t>(bytes - have), offset + have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoError("read", path_, errno);
      if (got == 0) {
        return absl::DataLossError(absl::StrCat(ShortPath(path_), " ends at byte ", offset + have, "; expected ", bytes,
                                                " bytes from ", offset));
      }
      have += got;
    }
    return text;
  }

 private:
  const ScopedFd fd_;
  const std::string path_;
  const int64_t bytes_;
};

/// A configuration may hold what others sign in with (experiment.wandb_kwargs): its owner's alone, from the first byte.
mode_t ModeOf(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name == "config.yaml" || name == "config.yaml.new" ? 0600 : 0644;
}

class PosixFileSystem final : public FileSystem {
 public:
  explicit PosixFileSystem(DiskCalls* calls) : calls_(*calls) {}

  absl::Status WriteNewFile(const std::string& path, absl::Span<const absl::Span<const std::byte>> pieces) override {
    const absl::Status status = WriteAndSync(path, pieces);
    if (!status.ok() && status.code() != absl::StatusCode::kAlreadyExists) calls_.Unlink(path);
    return status;
  }

  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) override {
    int64_t bytes = 0;
    TROUPE_ASSIGN_OR_RETURN(const int opened, OpenRegular(path, &bytes));
    const ScopedFd fd(opened);
    if (bytes > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ShortPath(path), " has ", bytes, " bytes; expected at most ", max_bytes));
    }
    std::string text(static_cast<size_t>(bytes), '\0');
    size_t have = 0;
    while (have < text.size()) {
      const ssize_t got = ::read(fd.get(), text.data() + have, text.size() - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoError("read", path, errno);
      if (got == 0) break;
      have += static_cast<size_t>(got);
    }
    text.resize(have);
    return text;
  }

  absl::StatusOr<std::unique_ptr<OpenFile>> Open(const std::string& path) override {
    int64_t bytes = 0;
    TROUPE_ASSIGN_OR_RETURN(const int fd, OpenRegular(path, &bytes));
    return std::make_unique<PosixOpenFile>(fd, path, bytes);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return calls_.Rename(from, to) == 0 ? absl::OkStatus() : ErrnoError("rename", from, errno);
  }

  absl::Status SyncFile(const std::string& path) override { return OpenAndSync(path, O_NONBLOCK); }

  absl::Status SyncDirectory(const std::string& path) override { return OpenAndSync(path, O_DIRECTORY); }

  absl::Status MakeDirectories(const std::string& path) override {
    struct stat info;
    if (path.empty()) return absl::OkStatus();
    if (::stat(path.c_str(), &info) == 0) {
      return S_ISDIR(info.st_mode) ? absl::OkStatus() : ErrnoError("make directory", path, ENOTDIR);
    }
    const std::string parent = std::filesystem::path(path).parent_path().string();
    if (parent != path) TROUPE_RETURN_IF_ERROR(MakeDirectories(parent));
    if (calls_.MakeDirectory(path) == 0) return absl::OkStatus();
    const int error = errno;
    // Somebody else has made it meanwhile, or it ends in a slash and was made as its parent.
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
    return ErrnoError("make directory", path, error);
  }

  absl::Status RemoveTree(const std::string& path) override {
    const auto removed = [&path](int result) {
      return result == 0 || errno == ENOENT || errno == ENOTDIR ? absl::OkStatus() : ErrnoError("remove", path, errno);
    };
    struct stat info;
    if (::lstat(path.c_str(), &info) != 0) return removed(-1);
    if (!S_ISDIR(info.st_mode)) return removed(calls_.Unlink(path));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(path));
    for (const std::string& name : names) TROUPE_RETURN_IF_ERROR(RemoveTree(absl::StrCat(path, "/", name)));
    return removed(calls_.RemoveDirectory(path));
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) return ErrnoError("list", path, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  bool Exists(const std::string& path) override {
    struct stat info;
    return ::lstat(path.c_str(), &info) == 0;
  }

  absl::Status ReplaceLink(const std::string& target, const std::string& link) override {
    const std::string beside = link + ".new";
    calls_.Unlink(beside);
    if (calls_.Link(target, beside) != 0) return ErrnoError("link", link, errno);
    return Rename(beside, link);
  }

  absl::StatusOr<std::string> ReadLink(const std::string& link) override {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(link, error);
    if (error) return ErrnoError("read link", link, error.value());
    return target.string();
  }

 private:
  absl::Status WriteAndSync(const std::string& path, absl::Span<const absl::Span<const std::byte>> pieces) {
    const ScopedFd fd(calls_.Create(path, ModeOf(path)));
    if (fd.get() < 0) return ErrnoError("create", path, errno);
    for (const absl::Span<const std::byte> piece : pieces) {
      TROUPE_RETURN_IF_ERROR(WriteAll(calls_, fd.get(), path, piece));
    }
    return Sync(calls_, fd.get(), path);
  }

  absl::Status OpenAndSync(const std::string& path, int flags) {
    const ScopedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
    if (fd.get() < 0) return ErrnoError("open", path, errno);
    return Sync(calls_, fd.get(), path);
  }

  DiskCalls& calls_;
};

}  // namespace

FileSystem& FileSystem::Posix() {
  // Never destroyed: a thread may still read when the process ends.
  static PosixFileSystem& fs = *new PosixFileSystem(new DiskCalls);
  return fs;
}

std::unique_ptr<FileSystem> FileSystem::Posix(DiskCalls* calls) { return std::make_unique<PosixFileSystem>(calls); }

std::string FolderOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::Status MakeDurableDirectories(FileSystem& fs, const std::string& path) {
  if (fs.Exists(path)) return fs.MakeDirectories(path);  // or says what else it is
  const std::string folder = FolderOf(path);
  if (folder != path) TROUPE_RETURN_IF_ERROR(MakeDurableDirectories(fs, folder));
  TROUPE_RETURN_IF_ERROR(fs.MakeDirectories(path));
  return fs.SyncDirectory(folder);
}

absl::Status ReplaceFile(FileSystem& fs, const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  TROUPE_RETURN_IF_ERROR(fs.RemoveTree(beside));
  TROUPE_RETURN_IF_ERROR(fs.WriteNewFile(beside, {AsPiece(text)}));
  TROUPE_RETURN_IF_ERROR(fs.Rename(beside, path));
  return fs.SyncDirectory(FolderOf(path));
}

}  // namespace troupe::storage
