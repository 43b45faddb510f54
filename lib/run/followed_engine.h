#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/await.h"
#include "lib/base/mutex.h"
#include "lib/run/query_host.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/weight_sink.h"

namespace troupe::run {

/// Answers queries with the policies and weights of a learner that trains elsewhere, as they come. Made and owned by
/// who serves. Thread-safe; OnPolicies and OnWeights are called by one thread at a time. States: empty -> has an engine
/// (the first OnPolicies) -> ready (every active policy with weights has them).
class FollowedEngine final : public serving::WeightSink {
 public:
  /// `policy_map_capacity` 0: as many as PolicyTable::kMaxPolicies. No `seed`: drawn.
  FollowedEngine(QueryPermits permits, int64_t policy_map_capacity, std::optional<uint64_t> seed)
      : permits_(std::move(permits)), capacity_(policy_map_capacity), seed_(seed) {}

  /// PERMISSION_DENIED: they name code that `permits` do not. FAILED_PRECONDITION: the first ones in Python, after the
  /// engine was made.
  absl::Status OnPolicies(const policy::PolicyTablePtr& policies) override;
  absl::Status OnWeights(policy::WeightSnapshotPtr weights) override;

  /// Blocks until it is ready; false at the deadline.
  bool AwaitReady(const base::Deadline& deadline);
  /// nullptr while it is empty; then the same for good.
  serving::QueryEngine* engine() const;

 private:
  bool ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const QueryPermits permits_;
  const int64_t capacity_;
  const std::optional<uint64_t> seed_;
  bool runs_python_ = false;  ///< of the calling thread

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::unique_ptr<serving::QueryEngine> engine_ ABSL_GUARDED_BY(mutex_);  ///< set once
};

}  // namespace troupe::run
