#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace troupe::rpc {

/// What a sanitizer adds: the address sanitizer keeps up to 256 MiB that were freed, the thread sanitizer a shadow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t kKeptBySanitizerBytes = int64_t{256} << 20;
#else
inline constexpr int64_t kKeptBySanitizerBytes = 0;
#endif

/// The most memory that this process has had resident, from some moment on.
class PeakMemory {
 public:
  PeakMemory() {
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
    begin_bytes_ = Bytes("VmRSS:");
  }
  /// Above what it was then.
  int64_t growth_bytes() const { return Bytes("VmHWM:") - begin_bytes_; }

 private:
  static int64_t Bytes(const std::string& what) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      long long kib = 0;
      if (line.rfind(what, 0) == 0 && std::sscanf(line.c_str() + what.size(), "%lld", &kib) == 1) return kib << 10;
    }
    return 0;
  }

  int64_t begin_bytes_ = 0;
};

}  // namespace troupe::rpc
