#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/policy/policy_spec.h"

namespace troupe::policy {

/// A policy of a run and its part in it.
struct PolicyEntry {
  PolicySpec spec;
  bool trains = false;    ///< policies_to_train; a predicate may still leave trajectories out
  int64_t since = 0;      ///< revision of the table that brought it
  int64_t removed = 0;    ///< revision that removed it; 0: it stays. No episode that begins from then on plays it.
  bool replaced = false;  ///< removed for another of its id: rows made with it are STALE
  /// Options that it trains with instead of the configuration's: "algorithm.KEY=VALUE" with the value in YAML, each key
  /// once. Workers are not told.
  std::vector<std::string> settings;

  bool active() const { return removed == 0; }
};

}  // namespace troupe::policy
