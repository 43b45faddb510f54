#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/serving/action_query.h"
#include <nlohmann/json_fwd.hpp>

namespace troupe::cli {

/// Rows of numbers that a person wrote, as bytes. Plain value.
struct RowsText {
  int64_t rows = 0;
  std::string bytes;  ///< row-major, as many in each row
};

/// Reads JSON: one row, or a list of equally long rows, of numbers. `flag` stands before what is wrong
/// (INVALID_ARGUMENT): the row, the element, what was expected.
absl::StatusOr<RowsText> ParseRows(const std::string& flag, const std::string& json, tensor::DType dtype);

/// {"policy_id", "learner_epoch", "version", "actions", "sampled_actions", "action_logp"}: a list a row, numbers of
/// each word's kind; and "state_out" of a policy that remembers.
nlohmann::ordered_json ActionsJson(const serving::PolicyActions& actions);

/// {"agents", "policies"}: what there is to ask, each policy with its spaces, sizes, agents and their slots.
nlohmann::ordered_json DescriptionsJson(const serving::PolicyDescriptions& descriptions);

}  // namespace troupe::cli
