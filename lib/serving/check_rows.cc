#include "lib/serving/check_rows.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"

namespace troupe::serving {
namespace {

using space::ActionLeaf;

template <typename... Parts>
absl::Status Bad(const policy::PolicySpec& spec, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": ", parts...));
}

absl::Status CheckObservations(const policy::PolicySpec& spec, const QueryRows& rows) {
  const tensor::DType expected = spec.observation_space.flat_dtype();
  if (rows.obs_dtype != expected) {
    return Bad(spec, "obs_dtype is ", std::string(tensor::DTypeName(rows.obs_dtype)), ", expected ",
               std::string(tensor::DTypeName(expected)));
  }
  const int64_t size = spec.observation_size();
  const auto bytes = static_cast<int64_t>(tensor::ElementBytes(expected));
  if (static_cast<int64_t>(rows.obs.size()) != rows.rows * size * bytes) {
    return Bad(spec, "obs has ", rows.obs.size(), " bytes, expected ", rows.rows * size * bytes, ": ", rows.rows,
               " rows of ", size, " ", std::string(tensor::DTypeName(expected)));
  }
  if (expected != tensor::DType::kFloat32) return absl::OkStatus();
  const auto* values = reinterpret_cast<const float*>(rows.obs.data());
  for (int64_t i = 0; i < rows.rows * size; ++i) {
    if (!std::isfinite(values[i])) {
      return Bad(spec, "obs row ", i / size, ", element ", i % size, " is ", values[i], ", expected a finite number");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const policy::PolicySpec& spec, absl::Span<const ActionLeaf> leaves, const QueryRows& rows) {
  if (rows.action_mask.empty()) return absl::OkStatus();
  const int64_t size = spec.mask_size();
  if (size == 0) return Bad(spec, "an action mask was given, expected none: the policy has no action masks");
  if (static_cast<int64_t>(rows.action_mask.size()) != rows.rows * size) {
    return Bad(spec, "action_mask has ", rows.action_mask.size(), " bytes, expected ", rows.rows * size, ": ",
               rows.rows, " rows of ", size);
  }
  for (int64_t row = 0; row < rows.rows; ++row) {
    const absl::Span<const uint8_t> mask =
        rows.action_mask.subspan(static_cast<size_t>(row * size), static_cast<size_t>(size));
    const auto* odd = std::find_if(mask.begin(), mask.end(), [](uint8_t byte) { return byte > 1; });
    if (odd != mask.end()) {
      return Bad(spec, "action_mask row ", row, ", byte ", odd - mask.begin(), " is ", static_cast<int>(*odd),
                 ", expected 0 or 1");
    }
    for (const ActionLeaf& leaf : leaves) {
      if (leaf.kind != ActionLeaf::Kind::kCategorical) continue;
      const absl::Span<const uint8_t> part =
          mask.subspan(static_cast<size_t>(leaf.mask_offset), static_cast<size_t>(leaf.categories));
      if (std::find(part.begin(), part.end(), 1) != part.end()) continue;
      return Bad(spec, "action_mask row ", row, " forbids all ", leaf.categories, " categories of action word ",
                 leaf.word, ", expected at least one allowed");
    }
  }
  return absl::OkStatus();
}

constexpr size_t kMaxAgentsNamed = 8;

/// "; its agents are hunter_0 (slot 0), hunter_1 (slot 1)", as far as they are known.
std::string NameAgents(const PolicyAgents& agents) {
  std::vector<std::string> names;
  for (const int32_t slot : agents.slots) {
    if (static_cast<size_t>(slot) >= agents.ids.size()) continue;
    names.push_back(absl::StrCat(agents.ids[static_cast<size_t>(slot)], " (slot ", slot, ")"));
  }
  return names.empty() ? "" : absl::StrCat("; its agents are ", base::FewOf(names, kMaxAgentsNamed));
}

absl::Status CheckSlots(const policy::PolicySpec& spec, const QueryRows& rows, const PolicyAgents& agents) {
  const int64_t expected = spec.agent_id_size > 0 ? rows.rows : 0;
  if (static_cast<int64_t>(rows.agent_slots.size()) != expected) {
    return Bad(spec, rows.agent_slots.size(), " agent slots, expected ", expected,
               expected == 0
                   ? std::string(": the policy's input has no agent-id one-hot")
                   : absl::StrCat(": one a row, for the agent-id one-hot in the policy's input", NameAgents(agents)));
  }
  for (int64_t row = 0; row < expected; ++row) {
    const int32_t slot = rows.agent_slots[static_cast<size_t>(row)];
    if (slot < 0 || slot >= spec.agent_id_size) {
      return Bad(spec, "agent slot of row ", row, " is ", slot, ", expected 0 to ", spec.agent_id_size - 1,
                 NameAgents(agents));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckState(const policy::PolicySpec& spec, const QueryRows& rows) {
  if (rows.state_in.empty()) return absl::OkStatus();
  const int64_t size = spec.actor_state_size();
  if (size == 0) {
    return Bad(spec, "state_in has ", rows.state_in.size(), " bytes, expected none: the policy remembers nothing");
  }
  const int64_t bytes = rows.rows * size * static_cast<int64_t>(sizeof(float));
  if (static_cast<int64_t>(rows.state_in.size()) != bytes) {
    return Bad(spec, "state_in has ", rows.state_in.size(), " bytes, expected ", bytes, ": ", rows.rows, " rows of ",
               size, " float32");
  }
  const auto* values = reinterpret_cast<const float*>(rows.state_in.data());
  for (int64_t i = 0; i < rows.rows * size; ++i) {
    if (std::isfinite(values[i])) continue;
    return Bad(spec, "state_in row ", i / size, ", element ", i % size, " is ", values[i],
               ", expected a finite number");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRows(const policy::PolicySpec& spec, absl::Span<const ActionLeaf> leaves, const QueryRows& rows,
                       const PolicyAgents& agents) {
  if (rows.rows < 1) return Bad(spec, rows.rows, " rows, expected at least 1");
  TROUPE_RETURN_IF_ERROR(CheckObservations(spec, rows));
  TROUPE_RETURN_IF_ERROR(CheckMask(spec, leaves, rows));
  TROUPE_RETURN_IF_ERROR(CheckState(spec, rows));
  return CheckSlots(spec, rows, agents);
}

}  // namespace troupe::serving
