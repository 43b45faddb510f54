#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/action_distribution.h"
#include "lib/policy/ids.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/policy_class.h"
#include "lib/space/image.h"
#include "lib/space/row_scaling.h"
#include "lib/space/space.h"

namespace troupe::policy {

/// A number that the learner trains beside a policy's networks: the logarithm of a temperature. Plain value.
struct LearnerNumber {
  std::string name = {};  ///< the section of its parameter "NAME.value"; other than the roles
  double initial = 0;

  bool operator==(const LearnerNumber& other) const = default;
};

/// Everything that must be equal for two processes to speak of the same policy: spaces, networks, inputs, action
/// bounding. The acting network is what workers need; what the learner has beside it stands in learner_networks. Plain
/// value. All sizes follow from it.
struct PolicySpec {
  PolicyId id;
  PolicyClass policy_class;  ///< without weights, what is said of networks here has no effect
  space::Space observation_space;
  space::Space action_space;
  NetworkSpec actor = DefaultActor();  ///< the acting network
  /// In the order of their parameters. All read the same, but for actions.
  std::vector<NetworkSpec> learner_networks = {DefaultCritic()};
  std::vector<LearnerNumber> learner_numbers = {};
  ContinuousDistribution continuous = ContinuousDistribution::kGaussian;  ///< of all continuous leaves
  /// Of Gaussian kinds: a parameter per action element; else the actor's last layer says it, behind the means of a
  /// leaf.
  bool free_log_std = true;
  double initial_log_std = 0.0;     ///< of a free one; of a predicted one added to its first biases
  double min_log_std = kMinLogStd;  ///< clamped, with no gradient beyond; of Gaussian kinds
  double max_log_std = kMaxLogStd;
  int64_t joint_observation_size = 0;   ///< elements, presence bits included; 0: no network reads it
  int64_t state_size = 0;               ///< elements of the global state; 0: no network reads it
  int64_t joint_action_size = 0;        ///< numbers of all agents' actions; 0: no network reads them
  int64_t agent_id_size = 0;            ///< > 0: a one-hot of this many agent slots is appended to the actor's input
  bool normalize_observations = false;  ///< running mean and variance, kept at the learner
  bool normalize_state = false;         ///< the same of the joint observation or state that the critic reads
  /// Bytes are scaled as before their Box's bounds counted (space::ScalingBy255; encoders of leaves divide by 255): of
  /// policies of older runs. No effect where bytes_have_bounds() is false.
  bool bytes_by_255 = false;
  bool has_action_mask = false;
  ActionBoundMethod action_bound_method = ActionBoundMethod::kClip;
  bool action_scaling = false;  ///< maps [-1, 1] to the Box's range
  /// What a reward that comes k env steps after the decision that it follows is multiplied by, to the power of k; 1:
  /// rewards of a wait are added as they come. In [0, 1].
  double reward_discount = 1;
  /// Decisions of an agent that a network that remembers is differentiated through at a time: sequences begin at every
  /// sequence_length-th decision of an episode. 0 exactly where no network remembers.
  int64_t sequence_length = 0;

  int64_t observation_size() const { return observation_space.flat_size(); }
  /// Elements that the network reads for each row.
  int64_t InputSize(const NetworkSpec& network) const;
  /// Those of them that are actions, the last ones.
  int64_t ActionInputSize(const NetworkSpec& network) const;
  /// Elements of its last layer: actor_output_size() of the actor and of action values, else 1.
  int64_t OutputSize(const NetworkSpec& network) const;
  /// Numbers of an action that a network reads: of each discrete leaf a one-hot, then of each continuous one its words.
  int64_t action_size() const;
  int64_t actor_input_size() const { return InputSize(actor); }
  /// NetworkSpec::state_size of the actor.
  int64_t actor_state_size() const { return actor.state_size(); }
  /// Whether any of its networks does.
  bool remembers() const;

  /// Whether any of its networks reads it.
  bool Reads(NetworkInput input) const;
  /// The learner network of the role; nullptr when there is none.
  const NetworkSpec* FindLearnerNetwork(std::string_view role) const;
  /// The network of the role critic, else the first learner network, whose inputs are those of all; one without layers
  /// and inputs where the policy has none.
  const NetworkSpec& critic() const;
  /// For a change; a policy without gets the default one.
  NetworkSpec* mutable_critic();
  /// Whether the critic has no encoder and no core of its own, but reads what the actor's make (EncoderKind::kShared).
  bool shares_encoder() const { return critic().encoder == EncoderKind::kShared; }
  /// Whose encoder and core stand before the head of `network`: its own, or of kShared the actor's.
  const NetworkSpec& EncodingNetwork(const NetworkSpec& network) const {
    return network.encoder == EncoderKind::kShared ? actor : network;
  }
  int64_t critic_input_size() const { return InputSize(critic()); }
  /// What the critic reads beside the agent's slot: kObservation (decentralized: IPPO), kJointObservation (MAPPO) or
  /// kState (MAPPO with use_global_state).
  NetworkInput critic_input() const;
  /// Elements of the joint observation or the state, whichever the critic reads; 0 for kObservation.
  int64_t critic_state_size() const;
  /// `size` is the critic_state_size. Whether it reads the slot stays.
  void SetCriticInput(NetworkInput input, int64_t size);
  /// Whether the one-hot is appended to the critic's input, too.
  bool critic_agent_id() const { return critic().Reads(NetworkInput::kAgentId); }
  void SetCriticAgentId(bool reads);
  /// Whether the critic of the global state reads its agent's own observation, too, behind the state (MAPPO's
  /// agent-specific global state).
  bool critic_reads_agent_state() const {
    return critic_input() == NetworkInput::kState && critic().Reads(NetworkInput::kObservation);
  }
  /// Of a critic that reads the state.
  void SetCriticReadsAgentState(bool reads);
  /// Of all networks.
  void SetActivation(Activation activation);

  bool HasContinuousActions() const;
  /// True if every bound of every continuous action is finite; true without one.
  bool HasBoundedActions() const;
  int64_t action_words() const { return action_space.action_words(); }
  int64_t mask_size() const { return has_action_mask ? action_space.mask_size() : 0; }
  /// Numbers of the actor's last layer for a leaf: its categories; of a continuous one a mean per word, with predicted
  /// deviations followed by a log standard deviation per word; of kBeta the two numbers that make alpha, per word, and
  /// beta, per word.
  int64_t OutputsOf(const space::ActionLeaf& leaf) const;
  /// Width of the actor's last layer: OutputsOf each discrete leaf in leaf order, then of each continuous one.
  int64_t actor_output_size() const;
  /// Number of log-standard-deviation parameters (continuous words); 0 where there is none that is free.
  int64_t log_std_size() const;
  /// True if networks read bytes that the two rules for them scale differently: all but those of a Box of 0 to 255 that
  /// is the whole observation.
  bool bytes_have_bounds() const;
  /// How rows of observations reach the networks, before a normalization. Encoders of leaves may divide by 255 then
  /// (ObservationPart::divided).
  space::RowScaling observation_scaling() const {
    return bytes_by_255 ? space::ScalingBy255(observation_space) : space::ScalingByBounds(observation_space);
  }
  /// Of the observation as convolutions read it; zeros where it is no image.
  ImageShape image() const;
  /// Whether observations are images of bytes that a CNN reads: they stay bytes until the networks, which all read them
  /// scaled (observation_scaling).
  bool image_bytes() const;
  /// Images of a row that the network convolves: its agent's, or of a critic of the joint observation one of each
  /// agent; 0 of what is no CNN.
  int64_t ImagesOf(const NetworkSpec& network) const;
  /// Elements of a row of the network's inputs that stay bytes, the first ones; 0: all are floats.
  int64_t ByteElements(const NetworkSpec& network) const;

  /// INVALID_ARGUMENT for a bad id, missing spaces, a mask with a continuous-only action space, an unbounded Box with
  /// scaling, squashing or kBeta, tanh without scaling, a bound method that contradicts the distribution, a
  /// distribution but kGaussian without a continuous leaf, bounds of log deviations that are no interval within [-20,
  /// 20] or leave the first one out, sizes out of range, a normalizer for a class without weights, roles that are twice
  /// there or no names, inputs that their network cannot have, action values of an action space that is not discrete,
  /// convolutions over what is no image or smaller than a kernel. Sizes: hidden layers 1..8, each 1..16384; with a core
  /// or an encoder that is no mlp 0..8 before it, with a core 0..8 behind it; core layers 1..4 of 1..4096 units,
  /// sequences of 1..65536 decisions; convolutions 1..8, each 1..1024 channels of kernels 1..64 with strides 1..64,
  /// that make at most Space::kMaxElements numbers; encoders of leaves 1..64, with convolutions and layers as those;
  /// attention as lib/policy/attention.h says. A critic that shares the actor's encoder reads what the actor reads, and
  /// has a head alone: hidden layers 0..8.
  absl::Status Validate() const;
  /// The part of Validate that is of what continuous actions are drawn from.
  absl::Status ValidateDistribution() const;
  /// The part of Validate that is of networks and their inputs.
  absl::Status ValidateNetworks() const;
  /// Canonical text of everything above (part of the spec hash, which checkpoints and workers of before have: what they
  /// could say has the text that they gave it).
  std::string ToString() const;
};

/// Takes out of `spec` what only networks have: a policy of a class without weights sees no one-hot, and its actions
/// are the environment's own, not scaled and not bounded.
void DropNetworks(PolicySpec* spec);

/// Canonical text of what the networks of two policies must have in common to hold each other's weights: all of the
/// spec but the id, what only the first weights depend on, and what rewards are discounted by.
std::string ShapeOf(const PolicySpec& spec);

/// INVALID_ARGUMENT, naming the first two policies whose shapes differ, unless those of all that
/// train are the same.
absl::Status CheckSwappable(const std::vector<PolicySpec>& specs);
/// The first part in which `got` acts or is laid out otherwise than `expected`, as "NAME is X, expected Y; set KEYS
/// alike"; empty when weights of one are weights of the other. Ids, classes and what only fresh weights are made from
/// may differ.
std::string FirstDifference(const PolicySpec& got, const PolicySpec& expected);

}  // namespace troupe::policy
