#pragma once

#include <atomic>

namespace troupe::services {

/// SIGTERM and SIGINT as a question: the first asks for a drain, the second ends the process at once. Install before
/// any thread starts.
class DrainSignals {
 public:
  static void Install();
  /// True once a signal has come.
  static bool Received() { return received_.load(std::memory_order_relaxed) != 0; }

 private:
  static void OnSignal(int signal);
  static std::atomic<int> received_;
};

}  // namespace troupe::services
