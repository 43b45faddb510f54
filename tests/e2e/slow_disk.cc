// Preloaded into a learner by slow_import_test.py: reads of files whose path holds $SLOW_DISK_PART wait while the file
// $SLOW_DISK_FILE exists, as those of a server of files that does not answer.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void WaitFor(int fd) {
  const char* const file = std::getenv("SLOW_DISK_FILE");
  const char* const part = std::getenv("SLOW_DISK_PART");
  if (file == nullptr || part == nullptr || access(file, F_OK) != 0) return;
  char link[64];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  char path[4096];
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size <= 0) return;
  path[size] = '\0';
  while (std::strstr(path, part) != nullptr && access(file, F_OK) == 0) usleep(10000);
}

}  // namespace

extern "C" ssize_t read(int fd, void* buffer, size_t bytes) {
  static auto* const real = Real<ssize_t(int, void*, size_t)>("read");
  WaitFor(fd);
  return real(fd, buffer, bytes);
}

extern "C" ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  static auto* const real = Real<ssize_t(int, void*, size_t, off_t)>("pread");
  WaitFor(fd);
  return real(fd, buffer, bytes, offset);
}

extern "C" ssize_t pread64(int fd, void* buffer, size_t bytes, off64_t offset) {
  static auto* const real = Real<ssize_t(int, void*, size_t, off64_t)>("pread64");
  WaitFor(fd);
  return real(fd, buffer, bytes, offset);
}
