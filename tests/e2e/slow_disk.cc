// Preloaded by pruned_checkpoint_test.py, and into a learner by slow_import_test.py and tests/fault/kills.py: reads of
// files whose path holds $SLOW_DISK_PART wait while the file $SLOW_DISK_FILE exists, like reads from a file server that
// does not answer. Where $SLOW_DISK_SYNCS is set, their fsync waits, too, after so many that came while that file was
// there. A call that waits first makes the file $SLOW_DISK_FILE.waits.

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// $SLOW_DISK_FILE where it exists and `fd` is a file of the slow disk's; nullptr otherwise.
const char* SlowFile(int fd) {
  const char* const file = std::getenv("SLOW_DISK_FILE");
  const char* const part = std::getenv("SLOW_DISK_PART");
  if (file == nullptr || part == nullptr || access(file, F_OK) != 0) return nullptr;
  char link[64];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  char path[4096];
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size <= 0) return nullptr;
  path[size] = '\0';
  return std::strstr(path, part) != nullptr ? file : nullptr;
}

void WaitFor(int fd) {
  const char* const file = SlowFile(fd);
  if (file == nullptr) return;
  char told[4096];
  std::snprintf(told, sizeof(told), "%s.waits", file);
  close(open(told, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  while (access(file, F_OK) == 0) usleep(10000);
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

extern "C" int fsync(int fd) {
  static auto* const real = Real<int(int)>("fsync");
  static std::atomic<int> seen{0};
  const char* const syncs = std::getenv("SLOW_DISK_SYNCS");
  const char* const file = syncs != nullptr ? SlowFile(fd) : nullptr;
  if (file != nullptr && seen++ >= std::atoi(syncs)) WaitFor(fd);
  return real(fd);
}
