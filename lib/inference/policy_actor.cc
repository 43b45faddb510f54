#include "lib/inference/policy_actor.h"

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"

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

absl::Status CheckHasState(const policy::PolicySpec& spec, const ActInput& input) {
  if (spec.actor_state_size() == 0 || (input.state_in != nullptr && input.state_out != nullptr)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "policy \"", spec.id.value(), "\": no ", input.state_in == nullptr ? "state_in" : "state_out", " for ",
      input.rows, " rows, expected ", spec.actor_state_size(), " elements a row, which it remembers"));
}

absl::Status CheckSlots(const policy::PolicySpec& spec, const ActInput& input) {
  for (int64_t r = 0; spec.agent_id_size > 0 && r < input.rows; ++r) {
    const int32_t slot = input.keys[r].slot.value();
    if (slot >= 0 && slot < spec.agent_id_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": row ", r, " is of agent slot ",
                                                   slot, ", expected 0 to ", spec.agent_id_size - 1));
  }
  return absl::OkStatus();
}

}  // namespace troupe::inference
