#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/outside/acting_policies.h"
#include "lib/rpc/transport/address_shares.h"

namespace troupe::rpc {

/// The files of a checkpoint, side by side. Immutable.
struct PolicyImage {
  uint64_t weights = 0;                                 ///< the number of what is in them
  std::vector<std::pair<std::string, uint64_t>> files;  ///< names and bytes
  std::string bytes;
};

/// What one call of GetPolicies is answered. Of an image kPolicyPieceBytes from `offset` on; nullptr: there is none
/// yet.
struct PolicyPiece {
  std::shared_ptr<const PolicyImage> image;
  size_t offset = 0;
};

/// What clients are given of the policies that act: files of a checkpoint, made when somebody asks for them.
///
/// Owned by a service. Thread-safe; Read makes at most one image of each number, while others wait for it. Capacity:
/// two images of at most kMaxPolicyFilesBytes, and the pieces of kMaxPolicyCalls calls, half of them from one address
/// of the network.
class PolicyFiles {
 public:
  /// `acting` outlives it.
  explicit PolicyFiles(const outside::ActingPolicies* acting) : acting_(*acting) {}

  /// A call begins, and ends with Leave. RESOURCE_EXHAUSTED: there are too many; nothing is to be left then. `host` as
  /// base::Caller has it.
  absl::Status Enter(const std::string& host);
  void Leave(const std::string& host);
  /// `weights` 0: of the newest. ABORTED: those of the number are not kept any more; OUT_OF_RANGE; FAILED_PRECONDITION
  /// as ActingPolicies::Now, or they have more than kMaxPolicyFilesBytes.
  absl::StatusOr<PolicyPiece> Read(uint64_t weights, uint64_t offset);

 private:
  absl::StatusOr<std::shared_ptr<const PolicyImage>> NewestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(images_mutex_);

  const outside::ActingPolicies& acting_;

  AddressShares calls_{"calls of GetPolicies in progress", "ask again"};

  base::Mutex images_mutex_;
  std::deque<std::shared_ptr<const PolicyImage>> images_ ABSL_GUARDED_BY(images_mutex_);  ///< the newest last
};

}  // namespace troupe::rpc
