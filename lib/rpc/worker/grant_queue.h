#pragma once

#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/sample/grant.h"
#include "lib/sample/ids.h"

namespace troupe::rpc {

/// The learner's orders that wait for the worker, the one that it took last, and whether more may come. A passive part
/// of RolloutSession.
///
/// Not thread-safe: WorkerClient holds its mutex. Never blocks. What is dropped is given back, so that it can be
/// destroyed outside the lock. States: open -> closed; a closed queue is empty and takes no grant. Capacity:
/// kMaxWaitingGrants, kMaxWaitingLanes and kMaxWaitingTables; a learner that sends more is refused.
class GrantQueue {
 public:
  /// Handed on with each message, so no deque: one that is empty has memory, and so has what was moved from.
  using Dropped = std::vector<sample::Grant>;

  /// Takes a grant; once closed, nothing. INVALID_ARGUMENT: with `grant` more would wait than may.
  absl::Status Add(sample::Grant grant);
  bool empty() const { return waiting_.empty(); }
  /// The next one; there is one.
  sample::Grant Take();

  /// The learner has given up waiting for a grant: it is dropped where it waits, and remembered where it was taken.
  Dropped OnOver(sample::GrantId id);
  bool IsOver(sample::GrantId id) const { return over_.value() != 0 && id == over_; }
  /// ABORTED when the grant that was taken last is over.
  absl::Status CheckTaken() const;

  /// Another registration: what waits is of the one before.
  Dropped Clear();
  /// No more grants. The last `reason` counts.
  Dropped Close(std::string reason);
  bool closed() const { return closed_; }
  const std::string& close_reason() const { return close_reason_; }

 private:
  absl::Status CheckRoom(const sample::Grant& grant) const;

  std::deque<sample::Grant> waiting_;
  sample::GrantId taken_;  ///< by the last Take
  sample::GrantId over_;   ///< the last that was out for too long, of those taken
  bool closed_ = false;
  std::string close_reason_;
};

/// ABORTED: what Submit and AwaitWeights say of a grant that is over.
absl::Status GrantIsOver(sample::GrantId id);

}  // namespace troupe::rpc
