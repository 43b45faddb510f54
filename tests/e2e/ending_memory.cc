// Preloaded into a learner by failed_update_test.py: posix_memalign, which LibTorch takes a tensor's memory from on the
// CPU, finds none for blocks of $ENDING_MEMORY_BYTES and more once the file $ENDING_MEMORY_FILE exists.

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

extern "C" int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  static const auto real = reinterpret_cast<int (*)(void**, size_t, size_t)>(dlsym(RTLD_NEXT, "posix_memalign"));
  const char* const file = std::getenv("ENDING_MEMORY_FILE");
  const char* const least = std::getenv("ENDING_MEMORY_BYTES");
  if (file != nullptr && least != nullptr && bytes >= std::strtoull(least, nullptr, 10) && access(file, F_OK) == 0) {
    return ENOMEM;
  }
  return real(memory, alignment, bytes);
}
