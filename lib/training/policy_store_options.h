#pragma once

#include <cstdint>

namespace troupe::training {

/// How much of a run's policies is held ready to be trained, and where the others are. No LibTorch here: lib/config
/// fills it.
struct PolicyStoreOptions {
  /// Policies with networks and optimizer in memory; one more while they change, and SparesOf it without a policy.
  int64_t capacity = 100;
  bool states_are_swappable = false;             ///< evicted policies leave their networks to the ones that are loaded
  int64_t host_budget_bytes = int64_t{1} << 30;  ///< of states of evicted policies in host memory
};

/// So many evicted policies' memory is kept for the next ones of their shape. One is enough where all are of one shape,
/// as one comes for each that goes; where there are more, those that come and go differ for a while.
constexpr int64_t SparesOf(int64_t capacity) { return capacity < 16 ? 1 : capacity / 8; }

}  // namespace troupe::training
