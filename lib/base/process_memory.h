#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace troupe::base {

/// Memory of this process. Plain value.
struct ProcessMemory {
  /// In RAM, what is shared with other processes included; 0: the kernel does not say.
  int64_t rss_bytes = 0;
  /// Handed out by the allocator and not given back, with its own overhead. What RSS has beyond that, and the program
  /// itself, is kept by the allocator for later. 0: another allocator than glibc's.
  int64_t heap_bytes = 0;

  /// Of now. Some 10 us: the allocator's arenas are locked one after the other.
  static ProcessMemory Now();
};

/// Has the allocator's threads share so many arenas instead of 8 a core, unless MALLOC_ARENA_MAX says otherwise: what
/// is freed in one is not used by another, so that each keeps a reserve of its own. To be called before threads start.
void LimitHeapArenas(int count);

/// Threads that start from now on have stacks of at most so many bytes of addresses, unless they ask for another size.
/// Without it each takes what `ulimit -s` says, 8 MiB as a rule, of a limit on addresses (`ulimit -v`).
void LimitThreadStacks(int64_t bytes);

/// Gives pages that the allocator keeps for later, amid what is in use, back to the kernel now and then. Where policies
/// come and go, those pages grow by tens of MiB an hour although what is in use does not. Made by a process that lives
/// long, for one of its threads that has time: the allocator's arenas are locked one after the other meanwhile, some ms
/// in all. Confined to that thread.
class HeapTrimmer {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(10);

  /// To be called every second or so, with a steady clock's time; true: an interval was over, and it is done.
  bool MaybeTrim(absl::Duration now);

 private:
  absl::Duration due_ = -absl::InfiniteDuration();  ///< not known before the first call
};

}  // namespace troupe::base
