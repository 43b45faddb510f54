#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_state.h"

namespace troupe::training {

// What a configuration asks about algorithms, without their code.

/// "ppo", "a2c": those that there are, sorted.
std::vector<std::string> AlgorithmNames();

/// INVALID_ARGUMENT, with what, got and expected, for an algorithm that there is not, and for options that its parser
/// refuses. The spec of a policy that is not trained (no name) is OK.
absl::Status CheckAlgorithm(const policy::AlgorithmSpec& spec);

/// Gives a policy with weights the networks of the algorithm: `policy` has an actor and a critic as the keys of the
/// model say. INVALID_ARGUMENT, naming the key, where they cannot be its; what PolicySpec::Validate says of the
/// outcome.
absl::Status SetNetworks(const policy::AlgorithmSpec& spec, policy::PolicySpec* policy);

/// INVALID_ARGUMENT for options, of which CheckAlgorithm says OK, that do not fit this policy: names of parameters that
/// it does not have, half of the layer that PopArt rescales, death masking where its critic reads images of bytes,
/// minibatches of env steps where it has a core, PopArt where it is a user's module.
absl::Status CheckAlgorithmOf(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec);

/// The names of those that can train a policy with these spaces and nothing but defaults; `policy` has an actor and a
/// critic. One that wants a file of the user's is not among them.
std::vector<std::string> NamesThatFit(const policy::PolicySpec& policy);

/// algorithm.max_policy_lag where it is auto, of a run of policies that train so: kCorrectedLag where all of them
/// correct for it (Algorithm::corrects_lag), else 0. A spec without a name is of a policy that does not train.
int64_t DefaultPolicyLag(const std::vector<policy::AlgorithmSpec>& algorithms);
/// Enough for a worker that is ten times slower than the others.
inline constexpr int64_t kCorrectedLag = 16;
/// The names of those that correct for it.
std::vector<std::string> NamesThatCorrectLag();
/// How far a run of policies that train so may sample ahead.
struct SampledAhead {
  int64_t iterations = 0;  ///< learner::FeedSpec::max_ahead, the least of all
  size_t policy = 0;       ///< the first that has it
  std::string feed;        ///< FeedSpec::name; "": max_policy_lag says it
};
SampledAhead AheadOf(const std::vector<policy::AlgorithmSpec>& algorithms, int64_t max_policy_lag);

/// The state that a policy starts with when it is trained so: weights drawn from `seed`, an optimizer that has taken no
/// step, moments of nothing. A spec without a name: of a policy that is not trained, or that nobody knows yet how it is
/// (Trainer::AddPolicy and ImportState add what is missing). INVALID_ARGUMENT as CheckAlgorithm; what AddModuleValues
/// says.
absl::StatusOr<policy::PolicyState> InitialState(const policy::PolicySpec& policy,
                                                 const policy::AlgorithmSpec& algorithm, uint64_t seed);

/// Canonical text of the form of a policy's state: two policies can hold each other's states where these are equal
/// (`multi_agent.policy_states_are_swappable`). It is policy::ShapeOf and what the algorithm keeps beside the networks
/// (say, ` value_moments`). INVALID_ARGUMENT as CheckAlgorithm.
absl::StatusOr<std::string> StateShape(const policy::PolicySpec& policy, const policy::AlgorithmSpec& algorithm);

/// INVALID_ARGUMENT, naming the first two policies and in what they differ, unless the states of all that train have
/// one form. By policy slot; one without an id is a free slot.
absl::Status CheckSwappable(const std::vector<policy::PolicySpec>& policies,
                            const std::vector<policy::AlgorithmSpec>& algorithms);

}  // namespace troupe::training
