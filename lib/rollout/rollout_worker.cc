#include "lib/rollout/rollout_worker.h"

#include <utility>

#include "lib/base/status_macros.h"

namespace troupe::rollout {
namespace {

constexpr absl::Duration kWait = absl::Milliseconds(500);

}  // namespace

RolloutWorker::RolloutWorker(std::unique_ptr<Collector> collector, GrantSource& grants, WeightSource& weights,
                             SampleSink& sink)
    : collector_(std::move(collector)), grants_(grants), weights_(weights), sink_(sink) {}

absl::StatusOr<bool> RolloutWorker::Step(absl::Duration timeout) {
  if (!grant_.has_value()) {
    TROUPE_ASSIGN_OR_RETURN(grant_, grants_.AwaitGrant(timeout));
    if (!grant_.has_value()) return false;
  }
  snapshots_.clear();
  for (size_t i = 0; i < collector_->config().policies.size(); ++i) {
    const policy::PolicyClass& policy_class = collector_->config().policies[i].policy_class;
    if (!policy_class.has_weights()) {
      snapshots_.push_back(nullptr);
      continue;
    }
    // Weights that never change are published once.
    const policy::WeightVersion needed = policy_class.trainable() ? grant_->min_version : policy::WeightVersion{};
    absl::StatusOr<policy::WeightSnapshotPtr> weights =
        weights_.AwaitWeights(policy::PolicySlot(static_cast<int32_t>(i)), needed, timeout);
    if (absl::IsDeadlineExceeded(weights.status())) return false;
    TROUPE_RETURN_IF_ERROR(weights.status());
    snapshots_.push_back(*std::move(weights));
  }
  const sample::Grant grant = *std::exchange(grant_, std::nullopt);
  TROUPE_RETURN_IF_ERROR(collector_->RunGrant(grant, snapshots_, sink_));
  return true;
}

absl::Status RolloutWorker::Run() {
  while (true) {
    const absl::StatusOr<bool> worked = Step(kWait);
    if (absl::IsCancelled(worked.status())) return absl::OkStatus();
    TROUPE_RETURN_IF_ERROR(worked.status());
  }
}

}  // namespace troupe::rollout
