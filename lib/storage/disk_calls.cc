#include "lib/storage/disk_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace troupe::storage {

int DiskCalls::Create(const std::string& path, mode_t mode) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
}
ssize_t DiskCalls::Write(int fd, const void* data, size_t bytes) { return ::write(fd, data, bytes); }
int DiskCalls::Sync(int fd, const std::string& /*path*/) { return ::fsync(fd); }
int DiskCalls::Rename(const std::string& from, const std::string& to) { return ::rename(from.c_str(), to.c_str()); }
int DiskCalls::Link(const std::string& target, const std::string& link) {
  return ::symlink(target.c_str(), link.c_str());
}
int DiskCalls::Unlink(const std::string& path) { return ::unlink(path.c_str()); }
int DiskCalls::MakeDirectory(const std::string& path) { return ::mkdir(path.c_str(), 0777); }
int DiskCalls::RemoveDirectory(const std::string& path) { return ::rmdir(path.c_str()); }

}  // namespace troupe::storage
