#include "lib/policy/value_network.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {

std::optional<PolicySpec> ValueNetworkOf(const PolicySpec& spec) {
  const NetworkSpec& critic = spec.critic();
  const bool reads_its_own = !critic.inputs.empty() && critic.inputs[0] == NetworkInput::kObservation;
  if (critic.role != kCriticRole || critic.action_values || critic.reads_actions()) return std::nullopt;
  if (!spec.policy_class.has_weights() || !reads_its_own || critic.remembers() || spec.shares_encoder() ||
      critic.encoder == EncoderKind::kTorchScript) {
    return std::nullopt;
  }
  PolicySpec network;
  network.id = spec.id;
  network.observation_space = spec.observation_space;
  network.action_space = *space::Space::Box(-1, 1, {1});
  network.actor = critic;
  network.actor.role = kActorRole;
  network.actor.inputs = spec.actor.inputs;
  network.learner_networks = {};
  network.agent_id_size = spec.critic_agent_id() ? spec.agent_id_size : 0;
  network.normalize_observations = spec.normalize_observations;
  network.bytes_by_255 = spec.bytes_by_255;
  return network;
}

absl::StatusOr<WeightSnapshotPtr> ValueSnapshotOf(const PolicyState& state, const PolicySpec& spec,
                                                  const PolicySpec& network) {
  TROUPE_ASSIGN_OR_RETURN(const WeightSnapshotPtr acting, SnapshotOf(state, spec));
  const ParameterLayout layout = ParameterLayout::For(spec);
  const ParameterLayout value_layout = ParameterLayout::For(network);
  auto snapshot = std::make_shared<WeightSnapshot>(*acting);
  snapshot->exploration.clear();
  snapshot->actor.assign(static_cast<size_t>(value_layout.acting_size()), 0.0f);
  const absl::Span<const float> parameters = state.parameters();
  const auto tensor = [&](const std::string& name) {
    const ParameterEntry* const entry = value_layout.Find(absl::StrCat(kActorRole, ".", name));
    TROUPE_CHECK(entry != nullptr);
    return absl::MakeSpan(snapshot->actor)
        .subspan(static_cast<size_t>(entry->offset), static_cast<size_t>(entry->count));
  };
  const size_t prefix = std::string(kCriticRole).size() + 1;
  for (const ParameterEntry& entry : layout.entries()) {
    if (layout.sections()[entry.section].role != kCriticRole) continue;
    const auto from = parameters.begin() + entry.offset;
    std::copy(from, from + entry.count, tensor(entry.name.substr(prefix)).begin());
  }
  if (const RunningMoments moments = state.Moments(kValueMoments); !moments.mean.empty()) {
    const double deviation = StandardDeviation(moments.variance[0]);
    const std::string last = absl::StrCat(network.actor.num_layers() - 1);
    for (float& weight : tensor(absl::StrCat(last, ".weight"))) weight = static_cast<float>(weight * deviation);
    for (float& bias : tensor(absl::StrCat(last, ".bias"))) {
      bias = static_cast<float>(bias * deviation + moments.mean[0]);
    }
  }
  TROUPE_RETURN_IF_ERROR(snapshot->Validate(network));
  return snapshot;
}

}  // namespace troupe::policy
