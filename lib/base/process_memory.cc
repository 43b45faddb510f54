#include "lib/base/process_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace troupe::base {
namespace {

int64_t RssBytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long size = 0, resident = 0;
  const int fields = std::fscanf(file, "%ld %ld", &size, &resident);
  std::fclose(file);
  return fields == 2 ? int64_t{resident} * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

ProcessMemory ProcessMemory::Now() {
  ProcessMemory memory;
  memory.rss_bytes = RssBytes();
  const struct mallinfo2 info = mallinfo2();
  memory.heap_bytes = static_cast<int64_t>(info.uordblks + info.hblkhd);
  return memory;
}

void LimitHeapArenas(int count) {
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, count);
}

void LimitThreadStacks(int64_t bytes) {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  size_t now = 0;
  pthread_attr_getstacksize(&attributes, &now);
  if (now > static_cast<size_t>(bytes)) {
    pthread_attr_setstacksize(&attributes, static_cast<size_t>(bytes));
    pthread_setattr_default_np(&attributes);
  }
  pthread_attr_destroy(&attributes);
}

bool HeapTrimmer::MaybeTrim(absl::Duration now) {
  const bool first = due_ == -absl::InfiniteDuration();
  if (!first && now < due_) return false;
  due_ = now + kInterval;
  if (first) return false;
  malloc_trim(0);
  return true;
}

}  // namespace troupe::base
