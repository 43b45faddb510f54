#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/line_quota.h"
#include "lib/rollout/collector.h"
#include "lib/rollout/ports.h"

namespace troupe::rollout {

/// The loop of a stepping thread: waits for a grant, then for weights that are new enough to begin it, then samples.
/// New weights are adopted between grants only.
///
/// Used by one thread but for RequestStop. States: running -> finished (Run has returned). The ports must outlive it;
/// closing them, or RequestStop, ends the loop.
class RolloutWorker {
 public:
  RolloutWorker(std::unique_ptr<Collector> collector, GrantSource& grants, WeightSource& weights, SampleSink& sink);

  /// One piece of work, blocking up to `timeout` in each wait: true when a grant was executed; false when there was no
  /// grant or not yet the weights for it (the grant is kept). A grant that is over, as a policy it needs is gone, is
  /// given up. CANCELLED when a port closes; errors of RunGrant.
  absl::StatusOr<bool> Step(absl::Duration timeout);

  /// Steps until a port closes (OK) or something fails for good.
  absl::Status Run();

  /// Ends Run after the round in progress. Thread-safe.
  void RequestStop() { collector_->RequestStop(); }

  const Collector& collector() const { return *collector_; }

 private:
  const std::unique_ptr<Collector> collector_;
  GrantSource& grants_;
  WeightSource& weights_;
  SampleSink& sink_;
  base::LineQuota lines_;
  std::optional<sample::Grant> grant_;  // taken, not executed yet
};

}  // namespace troupe::rollout
