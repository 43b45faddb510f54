// Policies that come and go while a PolicyStore is used.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/policy_store.h"

namespace troupe::training {

using policy::PolicySlot;
using policy::PolicySpec;
using policy::PolicyState;

int64_t PolicyStore::num_policies() const {
  return std::count_if(specs_.begin(), specs_.end(), [](const PolicySpec& spec) { return !spec.id.value().empty(); });
}

absl::Status PolicyStore::Add(PolicySlot slot, const PolicySpec& spec, const StateForm& form, PolicyState state) {
  if (slot.value() < 0 || slot.value() >= map_->core().options().max_slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy slot ", slot.value(), "; expected 0 to ", map_->core().options().max_slots - 1));
  }
  if (CheckSlot(slot).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("policy slot ", slot.value(), " is \"", this->spec(slot).id.value(),
                                                 "\"; expected a free one for \"", spec.id.value(), "\""));
  }
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  TROUPE_RETURN_IF_ERROR(CheckNetworks(spec, form));
  const auto place = static_cast<size_t>(slot.value());
  const size_t slots = std::max(size(), place + 1);
  if (options_.states_are_swappable) {
    std::vector<PolicySpec> specs = specs_;
    std::vector<StateForm> forms = forms_;
    specs.resize(slots);
    forms.resize(slots);
    specs[place] = spec;
    forms[place] = form;
    TROUPE_RETURN_IF_ERROR(CheckSwappable(specs, forms));
  }
  specs_.resize(slots);
  forms_.resize(slots);
  books_.resize(slots);
  tier_->SetNumSlots(slots);
  specs_[place] = spec;
  forms_[place] = form;
  books_[place].version = state.version;
  state = Completed(slot, std::move(state));
  absl::Status status = state.Validate(spec);
  if (status.ok()) status = CheckBlocks(spec, state);
  if (status.ok()) {
    absl::StatusOr<policy::PolicyTier::Value> value = FromState(slot, state);
    status =
        value.ok() ? map_->Insert(slot, std::static_pointer_cast<ResidentPolicy>(*std::move(value))) : value.status();
  }
  // Who made room for it is written here: a later one never waits.
  while (map_->core().StepWriteBack()) {
  }
  if (status.ok()) return status;
  specs_[place] = {};
  books_[place] = {};
  return status;
}

absl::Status PolicyStore::Remove(PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(CheckSlot(slot));
  while (map_->core().StepWriteBack()) {
  }
  TROUPE_RETURN_IF_ERROR(map_->core().Remove(slot));
  tier_->Forget(slot);
  const auto place = static_cast<size_t>(slot.value());
  books_[place] = {};
  specs_[place] = {};
  forms_[place] = {};
  return absl::OkStatus();
}

}  // namespace troupe::training
