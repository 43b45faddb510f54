#include "lib/cli/query_text.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

using Json = nlohmann::ordered_json;

/// One element's bytes, or INVALID_ARGUMENT with what was expected of it.
absl::StatusOr<std::string> ElementBytes(const Json& value, tensor::DType dtype) {
  if (dtype == tensor::DType::kUint8) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= 255) || std::floor(number) != number) {
      return absl::InvalidArgumentError("expected a whole number from 0 to 255");
    }
    return std::string(1, static_cast<char>(static_cast<uint8_t>(number)));
  }
  if (!value.is_number()) return absl::InvalidArgumentError("expected a number");
  const auto number = static_cast<float>(value.get<double>());
  if (!std::isfinite(number)) return absl::InvalidArgumentError("expected a number that fits float32");
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

Json WordsJson(const std::vector<space::ActionWord>& words, const serving::PolicyActions& actions) {
  Json rows = Json::array();
  const size_t width = actions.word_dtypes.size();
  for (size_t row = 0; row < static_cast<size_t>(actions.rows); ++row) {
    Json values = Json::array();
    for (size_t i = 0; i < width; ++i) {
      const space::ActionWord word = words[row * width + i];
      values.push_back(actions.word_dtypes[i] == tensor::DType::kInt32 ? Json(word.i32) : Json(word.f32));
    }
    rows.push_back(std::move(values));
  }
  return rows;
}

Json StatesJson(const serving::PolicyActions& actions) {
  Json rows = Json::array();
  const size_t width = actions.state_out.size() / static_cast<size_t>(actions.rows);
  for (size_t row = 0; row < static_cast<size_t>(actions.rows); ++row) {
    Json values = Json::array();
    for (size_t i = 0; i < width; ++i) values.push_back(actions.state_out[row * width + i]);
    rows.push_back(std::move(values));
  }
  return rows;
}

}  // namespace

absl::StatusOr<RowsText> ParseRows(const std::string& flag, const std::string& json, tensor::DType dtype) {
  Json rows = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!rows.is_array() || rows.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": got \"", json.substr(0, 64),
                                                   json.size() > 64 ? "...\"" : "\"",
                                                   ", expected JSON, a row of numbers ([0.1, -2]) or a list of rows "
                                                   "([[0.1, -2], [3, 4]]); in a shell put it in quotes"));
  }
  if (!rows[0].is_array()) rows = Json::array({rows});
  RowsText text;
  text.rows = static_cast<int64_t>(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].is_array() || rows[row].size() != rows[0].size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": row ", row, " is ",
                       rows[row].is_array() ? absl::StrCat(rows[row].size(), " numbers") : rows[row].dump(),
                       ", expected a row of ", rows[0].size(), " numbers as the first"));
    }
    for (size_t i = 0; i < rows[row].size(); ++i) {
      const absl::StatusOr<std::string> bytes = ElementBytes(rows[row][i], dtype);
      if (!bytes.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(flag, ": row ", row, ", element ", i, " is ",
                                                       rows[row][i].dump(), ", ", bytes.status().message()));
      }
      text.bytes += *bytes;
    }
  }
  return text;
}

Json ActionsJson(const serving::PolicyActions& actions) {
  Json logp = Json::array();
  for (const float value : actions.logp) logp.push_back(value);
  Json json = {{"policy_id", actions.policy_id.value()},
               {"learner_epoch", actions.version.learner_epoch},
               {"version", actions.version.n},
               {"actions", WordsJson(actions.actions, actions)},
               {"sampled_actions", WordsJson(actions.sampled_actions, actions)},
               {"action_logp", logp}};
  if (!actions.state_out.empty()) json["state_out"] = StatesJson(actions);
  return json;
}

Json DescriptionsJson(const serving::PolicyDescriptions& descriptions) {
  Json policies = Json::array();
  for (const serving::PolicyDescription& policy : descriptions.policies) {
    Json agents = Json::array();
    for (const int32_t slot : policy.agent_slots) agents.push_back(descriptions.agent_ids[static_cast<size_t>(slot)]);
    policies.push_back({{"policy_id", policy.policy_id.value()},
                        {"learner_epoch", policy.version.learner_epoch},
                        {"version", policy.version.n},
                        {"observation_space", policy.observation_space},
                        {"action_space", policy.action_space},
                        {"obs_dtype", std::string(tensor::DTypeName(policy.obs_dtype))},
                        {"obs_size", policy.observation_size},
                        {"mask_size", policy.mask_size},
                        {"state_size", policy.state_size},
                        {"needs_agent_slots", policy.needs_agent_slots},
                        {"agents", std::move(agents)},
                        {"agent_slots", policy.agent_slots}});
  }
  return {{"agents", descriptions.agent_ids}, {"policies", std::move(policies)}};
}

}  // namespace troupe::cli
