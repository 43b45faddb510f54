#include "lib/inference/policy_actor.h"

#include "absl/strings/str_cat.h"

namespace troupe::inference {

absl::Status EverythingForbidden(const policy::PolicySpec& spec, const RowKey& key) {
  return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": the action mask of env ",
                                                 key.env_id.value(), ", episode ", key.episode, ", agent slot ",
                                                 key.slot.value(), ", step ", key.env_step, " forbids every action"));
}

absl::Status CheckHasMask(const policy::PolicySpec& spec, const ActInput& input) {
  const bool expected = spec.has_action_mask;
  if (expected == (input.action_mask != nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": an action mask was ",
                                                 expected ? "expected, got none" : "given, expected none"));
}

}  // namespace troupe::inference
