#include "lib/run/followed_engine.h"

#include <algorithm>
#include <utility>

#include "lib/base/status_macros.h"

namespace troupe::run {

absl::Status FollowedEngine::OnPolicies(const policy::PolicyTablePtr& policies) {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<inference::ActorHost> host, MakeActorHost(*policies, permits_));
  serving::QueryEngine* made = engine();
  if (made == nullptr) {
    runs_python_ = host != nullptr;
    TROUPE_ASSIGN_OR_RETURN(
        std::unique_ptr<serving::QueryEngine> first,
        serving::QueryEngine::Create(
            ActiveSpecs(*policies),
            {.seed = seed_.value_or(DrawSeed()),
             .policy_map_capacity = capacity_ > 0 ? capacity_ : static_cast<int64_t>(policy::PolicyTable::kMaxPolicies),
             .actor_host = std::move(host)}));
    made = first.get();
    base::MutexLock lock(&mutex_);
    engine_ = std::move(first);
  } else if (host != nullptr && !runs_python_) {
    return absl::FailedPreconditionError(
        "the run has its first policies in Python; start the server again to serve it");
  }
  TROUPE_RETURN_IF_ERROR(made->SetPolicies(*policies));
  base::MutexLock lock(&mutex_);
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status FollowedEngine::OnWeights(policy::WeightSnapshotPtr weights) {
  serving::QueryEngine* const made = engine();
  if (made == nullptr) return absl::InvalidArgumentError("weights before any policies");
  const absl::Status taken = made->SetWeights(std::move(weights));
  // Episodes play those that were removed to their end; queries ask those that are there.
  if (!taken.ok() && !absl::IsNotFound(taken)) return taken;
  base::MutexLock lock(&mutex_);
  changed_.NotifyAll();
  return absl::OkStatus();
}

serving::QueryEngine* FollowedEngine::engine() const {
  base::MutexLock lock(&mutex_);
  return engine_.get();
}

bool FollowedEngine::ReadyLocked() const {
  if (engine_ == nullptr) return false;
  const absl::StatusOr<serving::PolicyDescriptions> all = engine_->DescribePolicies({});
  if (!all.ok()) return true;  // too many to be told of: queries wait for weights themselves
  return std::all_of(all->policies.begin(), all->policies.end(), [](const serving::PolicyDescription& policy) {
    return policy.network.empty() || policy.version != policy::WeightVersion();
  });
}

bool FollowedEngine::AwaitReady(const base::Deadline& deadline) {
  base::MutexLock lock(&mutex_);
  return base::Await(changed_, &mutex_, deadline,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ReadyLocked(); });
}

}  // namespace troupe::run
