#pragma once

#include <cstdint>

namespace troupe::rollout {

/// Linked into a binary, malloc_counter.cc replaces malloc and its kin, so that operator new, Abseil and Eigen are
/// counted, too. False under sanitizers, which bring their own malloc.
bool CountsAllocations();
/// Heap allocations of the process so far.
int64_t AllocationCount();

}  // namespace troupe::rollout
