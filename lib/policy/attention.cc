#include "lib/policy/attention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"

namespace troupe::policy {

int64_t AttentionSpec::joint_observation_size() const {
  auto elements = static_cast<int64_t>(agents.size());
  for (const int64_t space : agents) elements += observation_sizes[static_cast<size_t>(space)];
  return elements;
}

absl::Status ValidateAttention(const PolicyId& id, const NetworkSpec& network, int64_t joint_observation_size) {
  const auto error = [&](auto&&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", id.value(), "\": ", base::LogSafe(network.role, 32), parts...));
  };
  const AttentionSpec& attention = network.attention;
  if (network.encoder != EncoderKind::kAttention) {
    return attention == AttentionSpec() ? absl::OkStatus() : error(" has no attention, but numbers of one");
  }
  if (network.role == kActorRole || !network.Reads(NetworkInput::kJointObservation)) {
    return error(" attends to agents; expected a critic that reads all their observations");
  }
  if (attention.size < 1 || attention.size > kMaxAttentionSize || attention.heads < 1 ||
      attention.heads > kMaxAttentionHeads || attention.size % attention.heads != 0) {
    return error(" attends with ", attention.size, " numbers an agent in ", attention.heads, " heads; expected 1 to ",
                 kMaxAttentionSize, " in 1 to ", kMaxAttentionHeads, " that divide them");
  }
  const auto agents = static_cast<int64_t>(attention.agents.size());
  if (agents < 1 || agents > kMaxAttentionAgents) {
    return error(" attends to ", agents, " agents; expected 1 to ", kMaxAttentionAgents);
  }
  const auto spaces = static_cast<int64_t>(attention.observation_sizes.size());
  if (spaces < 1 || spaces > agents) {
    return error(" has ", spaces, " observation spaces of ", agents, " agents; expected 1 to ", agents);
  }
  int64_t named = 0;
  for (const int64_t space : attention.agents) {
    const int64_t last = std::min(named, spaces - 1);
    if (space < 0 || space > last) {
      return error(" attends to an agent of observation space ", space, "; expected 0 to ", last,
                   ", since agents name them in order");
    }
    if (space == named) ++named;
  }
  if (named != spaces) return error(" has ", spaces, " observation spaces, of which agents name ", named);
  for (const int64_t size : attention.observation_sizes) {
    if (size < 1 || size > space::Space::kMaxElements) {
      return error(" embeds observations of ", size, " elements; expected 1 to ", space::Space::kMaxElements);
    }
  }
  if (attention.joint_observation_size() != joint_observation_size) {
    return error(" attends to agents whose observations and presence bits are ", attention.joint_observation_size(),
                 " elements; expected those of the joint observation, ", joint_observation_size);
  }
  return absl::OkStatus();
}

std::string AttentionText(const NetworkSpec& network) {
  if (network.encoder != EncoderKind::kAttention) return "none";
  const AttentionSpec& attention = network.attention;
  return absl::StrCat(attention.size, " in ", attention.heads, " heads over observations of [",
                      absl::StrJoin(attention.observation_sizes, ", "), "] by agents [",
                      absl::StrJoin(attention.agents, ", "), "]");
}

}  // namespace troupe::policy
