#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"

namespace troupe::rpc {

/// Places that callers take for a while, and who has them: of so many in all an address has so many at most. Owned by
/// a service. Thread-safe.
class AddressShares {
 public:
  /// For errors: what the places are, "streams of queries", and what whoever gets none may do, "ask without a stream".
  AddressShares(std::string what, std::string advice) : what_(std::move(what)), advice_(std::move(advice)) {}

  /// RESOURCE_EXHAUSTED above a limit: nothing is taken then. `address` is back with GiveBack.
  absl::Status Take(const std::string& address, int64_t most, int64_t most_of_address);
  void GiveBack(const std::string& address);

 private:
  const std::string what_, advice_;
  base::Mutex mutex_;
  int64_t all_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> of_ ABSL_GUARDED_BY(mutex_);  ///< none is 0
};

}  // namespace troupe::rpc
