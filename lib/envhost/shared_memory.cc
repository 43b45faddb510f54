#include "lib/envhost/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace troupe::envhost {
namespace {

absl::Status NoMemory(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("shared memory for Python environments: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create() {
  const int fd = memfd_create("troupe-envhost", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return NoMemory("memfd_create");
  if (ftruncate(fd, sizeof(ControlPage)) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    absl::Status status = NoMemory("ftruncate");
    close(fd);
    return status;
  }
  void* memory = mmap(nullptr, sizeof(ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    absl::Status status = NoMemory("mmap");
    close(fd);
    return status;
  }
  auto* page = static_cast<ControlPage*>(memory);
  page->magic = kMagic;
  page->version = kLayoutVersion;
  page->capacity = kRingCapacity;
  return std::unique_ptr<SharedMemory>(new SharedMemory(fd, page));
}

SharedMemory::~SharedMemory() {
  for (const auto& [memory, bytes] : mapped_) munmap(memory, bytes);
  munmap(page_, sizeof(ControlPage));
  close(fd_);
}

absl::StatusOr<SharedMemory::Block> SharedMemory::Add(size_t bytes) {
  if (ftruncate(fd_, static_cast<off_t>(size_ + bytes)) != 0) return NoMemory("ftruncate");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(size_));
  if (memory == MAP_FAILED) return NoMemory("mmap");
  mapped_.emplace_back(memory, bytes);
  const Block block = {size_, static_cast<BlockHeader*>(memory)};
  size_ += bytes;
  return block;
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace troupe::envhost
