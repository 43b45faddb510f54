#include "lib/serving/actor_tier.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/inference/actor.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/serving/served_policy.h"
#include "lib/serving/serving_actor.h"

namespace troupe::serving {

ServingActor::ServingActor() = default;
ServingActor::~ServingActor() = default;

void ActorTier::SetPolicy(policy::PolicySlot slot, const ServedPolicy* policy) {
  base::MutexLock lock(&mutex_);
  policies_.GrowTo(slot);
  policies_[slot] = policy;
}

absl::StatusOr<policy::WeightSnapshotPtr> ActorTier::WeightsOf(const ServedPolicy& policy) const {
  if (const OfferedWeights newest = policy.newest(); !newest.empty()) return newest.Get(policy.spec());
  if (source_ != nullptr) return source_->Load(policy.spec());
  return NoWeights(policy.spec());
}

absl::Status ActorTier::NoWeights(const policy::PolicySpec& spec) {
  return absl::UnavailableError(absl::StrCat("policy \"", spec.id.value(), "\" has no weights yet"));
}

absl::StatusOr<policy::PolicyTier::Value> ActorTier::Load(policy::PolicySlot slot) {
  const ServedPolicy* policy = nullptr;
  {
    base::MutexLock lock(&mutex_);
    policy = policies_[slot];
  }
  auto resident = std::make_shared<ServingActor>();
  base::MutexLock lock(&resident->mutex);  // nobody else has it yet
  TROUPE_ASSIGN_OR_RETURN(resident->actor,
                          inference::MakePolicyActor(policy->spec(), actor_seed_, backend_, actor_host_.get()));
  if (policy->spec().policy_class.has_weights()) {
    TROUPE_ASSIGN_OR_RETURN(resident->acting, WeightsOf(*policy));
    TROUPE_RETURN_IF_ERROR(resident->actor->SetWeights(resident->acting));
    resident->bytes = policy::ParameterLayout::For(policy->spec()).acting_size() * static_cast<int64_t>(sizeof(float));
  }
  return Value(resident);
}

absl::Status ActorTier::Store(policy::PolicySlot slot, const Value& /*value*/) {
  return absl::InternalError(absl::StrCat("the actor in slot ", slot.value(), " cannot have changed"));
}

int64_t ActorTier::Bytes(const Value& value) const { return static_cast<const ServingActor*>(value.get())->bytes; }

}  // namespace troupe::serving
