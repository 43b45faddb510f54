#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_class.h"
#include "lib/space/space.h"

namespace troupe::policy {

enum class Activation : uint8_t {
  kTanh = 1,
  kRelu = 2,
  kElu = 3,
  kGelu = 4,  ///< the exact form, 0.5 x (1 + erf(x / sqrt 2))
  kSigmoid = 5,
  kSilu = 6,
  kIdentity = 7,
};
/// "tanh", ...; both directions. INVALID_ARGUMENT lists the names.
std::string_view ActivationName(Activation activation);
absl::StatusOr<Activation> ParseActivation(std::string_view name);

/// The networks of a policy. Actor and critic are separate multi-layer perceptrons.
struct ModelSpec {
  std::vector<int64_t> actor_hidden_sizes = {64, 64};
  std::vector<int64_t> critic_hidden_sizes = {64, 64};
  Activation activation = Activation::kTanh;
  double actor_output_gain = 0.01;  ///< of the orthogonal initialization of the last actor layer
  double initial_log_std = 0.0;     ///< of diagonal-Gaussian heads; a free parameter per action element
};

/// What reaches the critic.
enum class CriticInput : uint8_t {
  kObservation = 1,       ///< the agent's own observation: decentralized (IPPO)
  kJointObservation = 2,  ///< all agents' observations in the order of possible_agents, absent ones zero, with a
                          ///< presence bit each (MAPPO)
  kGlobalState = 3,       ///< the environment's global state (MAPPO with use_global_state)
};

/// How a continuous action is brought into its Box before the environment sees it. The recorded action is the unmapped
/// one.
enum class ActionBoundMethod : uint8_t {
  kNone = 1,  ///< as sampled
  kClip = 2,  ///< clipped to [low, high] (with action_scaling: to [-1, 1])
  kTanh = 3,  ///< tanh, which needs action_scaling
};

/// Everything that must be equal for two processes to speak of the same policy: spaces, networks, inputs, action
/// bounding. Plain value. All sizes follow from it.
struct PolicySpec {
  PolicyId id;
  PolicyClass policy_class;  ///< without weights, what is said of networks here has no effect
  space::Space observation_space;
  space::Space action_space;
  ModelSpec model;
  CriticInput critic_input = CriticInput::kObservation;
  int64_t critic_state_size =
      0;  ///< elements of the joint observation (with presence bits) or global state; 0 for kObservation
  int64_t agent_id_size = 0;            ///< > 0: a one-hot of this many agent slots is appended to the actor's input
  bool critic_agent_id = false;         ///< the one-hot is appended to the critic's input, too
  bool normalize_observations = false;  ///< running mean and variance, kept at the learner
  bool has_action_mask = false;
  ActionBoundMethod action_bound_method = ActionBoundMethod::kClip;
  bool action_scaling = false;  ///< maps [-1, 1] to the Box's range

  int64_t observation_size() const { return observation_space.flat_size(); }
  int64_t actor_input_size() const { return observation_size() + agent_id_size; }
  int64_t critic_input_size() const;
  int64_t action_words() const { return action_space.action_words(); }
  int64_t mask_size() const { return has_action_mask ? action_space.mask_size() : 0; }
  /// Width of the actor's last layer: categories of all discrete leaves, then one mean per continuous word, in leaf
  /// order.
  int64_t actor_output_size() const;
  /// Number of log-standard-deviation parameters (continuous words).
  int64_t log_std_size() const;

  /// INVALID_ARGUMENT for a bad id, missing spaces, a mask with a continuous-only action space, an unbounded Box with
  /// scaling or tanh, tanh without scaling, sizes out of range (hidden layers 1..8, each 1..16384), a normalizer for a
  /// class without weights.
  absl::Status Validate() const;
  /// Canonical text of everything above (part of the spec hash).
  std::string ToString() const;
};

/// Takes out of `spec` what only networks have: a policy of a class without weights sees no one-hot, and its actions
/// are the environment's own, not scaled and not bounded.
void DropNetworks(PolicySpec* spec);

/// Canonical text of what the networks of two policies must have in common to hold each other's weights: all of the
/// spec but the id and what only the first weights depend on.
std::string ShapeOf(const PolicySpec& spec);

/// INVALID_ARGUMENT, naming the first two policies whose shapes differ, unless those of all that
/// train are the same.
absl::Status CheckSwappable(const std::vector<PolicySpec>& specs);
/// The first part in which `got` acts or is laid out otherwise than `expected`, as "NAME is X, expected Y; set KEYS
/// alike"; empty when weights of one are weights of the other. Ids, classes and what only fresh weights are made from
/// may differ.
std::string FirstDifference(const PolicySpec& got, const PolicySpec& expected);

}  // namespace troupe::policy
