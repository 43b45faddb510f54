#pragma once

#include <cstdint>

namespace troupe::training {

/// How much of a run's policies is held ready to be trained, and where the others are. No LibTorch here: lib/config
/// fills it.
struct PolicyStoreOptions {
  int64_t capacity = 100;             ///< policies with networks and optimizer in memory; one more while they change
  bool states_are_swappable = false;  ///< evicted policies leave their networks to the ones that are loaded
  int64_t host_budget_bytes = int64_t{1} << 30;  ///< of states of evicted policies in host memory
};

}  // namespace troupe::training
