#include "lib/config/shared_encoder.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/overrides.h"
#include "lib/config/torch_modules.h"
#include "lib/policy/policy_spec.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kSharedKey[] = "critic_encoder";

/// A centralized critic reads what no actor does; a one-hot that the actor reads is read by both.
absl::Status CheckInputs(const RunConfig& config, const SettingsOf& of, const policy::PolicySpec& spec) {
  const v1::AlgorithmConfig algorithm = AlgorithmOf(config, of);
  if (spec.critic_input() != policy::NetworkInput::kObservation) {
    return config.KeyError(
        ModelKey(config, of, kSharedKey),
        absl::StrCat("got shared, but the critic of ", AlgorithmWord(algorithm.name()), " reads ",
                     spec.critic_input() == policy::NetworkInput::kState ? "the global state" : "all observations",
                     ", the actor its agent's own observation; expected an algorithm whose critic reads that, as "
                     "algorithm.name: ippo, or model.critic_encoder: auto"));
  }
  if (spec.critic_agent_id() || spec.agent_id_size == 0) return absl::OkStatus();
  return config.KeyError(
      AlgorithmKey(config, of, "critic_agent_id"),
      absl::StrCat("got false, but model.critic_encoder is shared, and the actor of policy \"", spec.id.value(),
                   "\" reads the one-hot of its agent; expected true, or algorithm.use_agent_id: "
                   "false"));
}

/// Layers and core that are said of the critic are those by default, or those that it shares.
absl::Status CheckLayers(const RunConfig& config, const SettingsOf& of, const policy::PolicySpec& spec) {
  const v1::ModelConfig model = ModelOf(config, of);
  const auto sizes = [](const v1::IntegerList& list) {
    return std::vector<int64_t>(list.values().begin(), list.values().end());
  };
  const std::vector<int64_t> own = sizes(model.critic_hidden_sizes());
  if (own != spec.actor.hidden_sizes && own != sizes(RunConfig().proto().model().critic_hidden_sizes())) {
    return config.KeyError(
        ModelKey(config, of, "critic_hidden_sizes"),
        absl::StrCat("got [", absl::StrJoin(own, ", "),
                     "], but model.critic_encoder is shared: the critic of policy \"", spec.id.value(),
                     "\" has the actor's, [", absl::StrJoin(spec.actor.hidden_sizes, ", "),
                     "]; expected them left out; layers of its own are model.critic_head_hidden_sizes"));
  }
  if (model.critic_core() != v1::CORE_KIND_NONE && model.critic_core() != model.actor_core()) {
    return config.KeyError(
        ModelKey(config, of, "critic_core"),
        absl::StrCat("got a core, but model.critic_encoder is shared: the critic of policy \"", spec.id.value(),
                     "\" has the actor's, ", policy::CoreText(spec.actor), "; expected none, or model.actor_core"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ShareEncoder(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec) {
  const v1::ModelConfig model = ModelOf(config, of);
  if (model.critic_encoder() != v1::CRITIC_ENCODER_SHARED) return absl::OkStatus();
  if (IsModule(model, spec->actor)) {
    return config.KeyError(ModelKey(config, of, kSharedKey),
                           absl::StrCat("got shared, but the actor of policy \"", spec->id.value(),
                                        "\" is a TorchScript module, of which no layer is known to be its encoder's; "
                                        "expected auto, or no model.torchscript"));
  }
  TROUPE_RETURN_IF_ERROR(CheckInputs(config, of, *spec));
  TROUPE_RETURN_IF_ERROR(CheckLayers(config, of, *spec));
  policy::NetworkSpec& critic = *spec->mutable_critic();
  critic.encoder = policy::EncoderKind::kShared;
  critic.conv_layers = {};
  critic.leaf_encoders = {};
  critic.hidden_sizes = {};
  critic.core = {};
  return absl::OkStatus();
}

}  // namespace troupe::config
