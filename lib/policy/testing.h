#pragma once

#include "lib/policy/ids.h"
#include "lib/policy/policy_spec.h"

namespace troupe::policy {

/// A small valid spec for tests: observation Box(-1, 1, [3]), Discrete(2), hidden layers of 4.
inline PolicySpec SmallSpecForTesting() {
  PolicySpec spec;
  spec.id = PolicyId("p");
  spec.observation_space = *space::Space::Box(-1, 1, {3});
  spec.action_space = *space::Space::Discrete(2);
  spec.actor.hidden_sizes = {4, 4};
  spec.mutable_critic()->hidden_sizes = {4};
  return spec;
}

/// The same with a core of each kind: actor [4] -> 1 x 5 -> [6], critic [] -> 2 x 3 -> [], sequences of 7.
inline PolicySpec SmallSpecWithCoresForTesting(CoreKind actor, CoreKind critic) {
  PolicySpec spec = SmallSpecForTesting();
  spec.actor.hidden_sizes = {4};
  spec.actor.core = {.kind = actor, .size = 5, .layers = 1};
  spec.actor.head_hidden_sizes = {6};
  spec.mutable_critic()->hidden_sizes = {};
  spec.mutable_critic()->core = {.kind = critic, .size = 3, .layers = 2};
  spec.sequence_length = 7;
  return spec;
}

/// The same with a critic that attends, in 2 heads of 6 numbers together, to agents that observe 3, 5, 3 and 3 numbers,
/// those of 5 in a space of their own; with agent ids, which the critic does not read.
inline PolicySpec AttendingSpecForTesting() {
  PolicySpec spec = SmallSpecForTesting();
  spec.agent_id_size = 4;
  spec.SetCriticInput(NetworkInput::kJointObservation, 3 + 5 + 3 + 3 + 4);
  NetworkSpec* const critic = spec.mutable_critic();
  critic->encoder = EncoderKind::kAttention;
  critic->attention = {.size = 6, .heads = 2, .observation_sizes = {3, 5}, .agents = {0, 1, 0, 0}};
  return spec;
}

/// The same with a critic that shares the actor's encoder, with a head of one layer.
inline PolicySpec SharedSpecForTesting() {
  PolicySpec spec = SmallSpecForTesting();
  spec.mutable_critic()->encoder = EncoderKind::kShared;
  spec.mutable_critic()->hidden_sizes = {};
  return spec;
}

/// Continuous actions of that distribution, with the bounding that it has by default.
inline void SetDistributionForTesting(ContinuousDistribution distribution, PolicySpec* spec) {
  spec->continuous = distribution;
  spec->action_scaling = distribution != ContinuousDistribution::kGaussian;
  if (distribution == ContinuousDistribution::kSquashedGaussian) spec->action_bound_method = ActionBoundMethod::kTanh;
}

}  // namespace troupe::policy
