#include "lib/config/attention_critic.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/config/algorithms.h"
#include "lib/config/image_networks.h"
#include "lib/config/overrides.h"
#include "lib/policy/attention.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/observation_leaves.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kKey[] = "critic_encoder";

/// What of `config` there is against it; OK where the critic reads all agents' observations as rows of numbers.
absl::Status CheckAttends(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of,
                          const policy::PolicySpec& spec) {
  const auto error = [&](auto&&... parts) {
    return config.KeyError(ModelKey(config, of, kKey), absl::StrCat("got attention, but ", parts...));
  };
  const v1::AlgorithmConfig algorithm = AlgorithmOf(config, of);
  switch (spec.critic_input()) {
    case policy::NetworkInput::kJointObservation:
      break;
    case policy::NetworkInput::kState:
      return error("the critic of policy \"", spec.id.value(),
                   "\" reads the global state, which does not say what is of which agent; expected "
                   "algorithm.use_global_state: false, or model.critic_encoder: auto");
    default: {
      const std::vector<std::string> names = CentralizedNamesOf(OptionsOf(algorithm.name()));
      return error("the critic of ", AlgorithmWord(algorithm.name()), " sees its agent's own observation; expected ",
                   names.empty() ? "" : absl::StrCat("algorithm.name: ", absl::StrJoin(names, " or "), ", or "),
                   "model.critic_encoder: auto");
    }
  }
  if (env.num_agents() > policy::kMaxAttentionAgents) {
    return error(env.name, " has ", env.num_agents(), " agents; expected at most ", policy::kMaxAttentionAgents,
                 ", or model.critic_encoder: auto");
  }
  for (const env::AgentSpec& agent : env.possible_agents) {
    for (const space::ObservationLeaf& leaf : space::ObservationLeaves(agent.observation_space)) {
      if (!LooksLikeImage(leaf.space)) continue;
      return error("agent \"", base::LogSafe(agent.id.value()), "\" observes an image, ", leaf.space.ToString(),
                   ", which it does not convolve; expected model.critic_encoder: auto");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SetAttention(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of,
                          policy::PolicySpec* spec) {
  const v1::ModelConfig model = ModelOf(config, of);
  if (model.critic_encoder() != v1::CRITIC_ENCODER_ATTENTION) return absl::OkStatus();
  if (const absl::Status attends = CheckAttends(config, env, of, *spec); !attends.ok()) return attends;
  if (model.attention_size() % model.attention_heads() != 0) {
    return config.KeyError(ModelKey(config, of, "attention_heads"),
                           absl::StrCat("got ", model.attention_heads(), ", which does not divide attention_size, ",
                                        model.attention_size(), "; expected a divisor"));
  }
  policy::NetworkSpec* const critic = spec->mutable_critic();
  critic->encoder = policy::EncoderKind::kAttention;
  critic->attention = {.size = model.attention_size(), .heads = model.attention_heads()};
  std::vector<space::Space> spaces;
  for (const env::AgentSpec& agent : env.possible_agents) {
    const auto found = std::find(spaces.begin(), spaces.end(), agent.observation_space);
    critic->attention.agents.push_back(found - spaces.begin());
    if (found != spaces.end()) continue;
    spaces.push_back(agent.observation_space);
    critic->attention.observation_sizes.push_back(agent.observation_space.flat_size());
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
