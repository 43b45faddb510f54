#include "lib/rollout/round_bytes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/image.h"

namespace troupe::rollout {

int64_t EpisodeBytes(const RolloutSchema& schema) {
  return 48 + 16 * static_cast<int64_t>(schema.env.possible_agents.size());
}

int64_t FinishedBytes(const RolloutSchema& schema) {
  return 48 + 18 * static_cast<int64_t>(schema.env.possible_agents.size()) +
         4 * static_cast<int64_t>(schema.env.info_columns.size());
}

int64_t RoundBytesBound(const RolloutSchema& schema) {
  int64_t row_bytes = 0, final_bytes = 0, segment_bytes = 0, memory_bytes = 0, policy_bytes = 0;
  for (const policy::PolicySpec& policy : schema.policies) {
    if (policy.id.value().empty()) continue;
    const sample::PolicyForms forms = sample::FormsOf(schema.sizes(), policy);
    row_bytes = std::max(row_bytes, sample::RowBytes(forms, sample::Extent::kRow));
    final_bytes = std::max(final_bytes, sample::RowBytes(forms, sample::Extent::kFinalRow));
    segment_bytes = std::max(segment_bytes, sample::RowBytes(forms, sample::Extent::kSegment));
    memory_bytes = std::max(memory_bytes, sample::RowBytes(forms, sample::Extent::kMemory));
    policy_bytes = std::max(policy_bytes, PolicyBytes(forms));
  }
  const int64_t env_row_bytes = sample::RowBytes(sample::FormsOf(schema.sizes()));
  const auto num_agents = static_cast<int64_t>(schema.env.possible_agents.size());
  // Per agent: a carried and a new decision, or a last one and the first of the next episode; their final rows,
  // segments and memories; a policy that had no rows here. Carried decisions may be of as many different env steps.
  const int64_t agent_bytes = 2 * (row_bytes + final_bytes + segment_bytes + memory_bytes) + policy_bytes;
  return num_agents * agent_bytes + (num_agents + 4) * env_row_bytes + EpisodeBytes(schema) + FinishedBytes(schema);
}

absl::Status CheckRoundFits(const RolloutSchema& schema, int64_t max_fragment_bytes) {
  const int64_t round = RoundBytesBound(schema);
  if (round <= max_fragment_bytes) return absl::OkStatus();
  const bool images =
      std::any_of(schema.env.possible_agents.begin(), schema.env.possible_agents.end(),
                  [](const env::AgentSpec& agent) { return space::IsImageOfBytes(agent.observation_space); });
  return absl::InvalidArgumentError(absl::StrCat(
      "max_fragment_bytes is ", max_fragment_bytes, ", but a step of environment ", schema.env.name, " may need ",
      round, " bytes", images ? "; env.crop, env.grayscale and env.resize make images smaller" : ""));
}

}  // namespace troupe::rollout
