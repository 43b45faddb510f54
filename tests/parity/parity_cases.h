#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/training/ppo/ppo_options.h"

namespace troupe::training {

/// What back ends are compared on: a model, its options, and the lengths of the segments of a RandomBatch.
struct ParityCase {
  std::string name;
  policy::PolicySpec spec;
  PpoOptions options;
  std::vector<int64_t> segments;
  bool inactive_rows = false;
};

inline policy::PolicySpec ParitySpec(int64_t observation_size, std::vector<int64_t> actor,
                                     std::vector<int64_t> critic) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = *space::Space::Box(-100, 100, {observation_size});
  spec.action_space = *space::Space::Discrete(5);
  spec.actor.hidden_sizes = std::move(actor);
  spec.mutable_critic()->hidden_sizes = std::move(critic);
  spec.actor.output_gain = 1.0;  // or the actor's gradients would all be small
  return spec;
}

/// Networks with a core: sequences of many lengths, more than a panel has lanes, and few; states, layers, heads.
inline std::vector<ParityCase> CoreParityCases() {
  using policy::CoreKind;
  std::vector<ParityCase> cases;
  {
    ParityCase spread{"SpreadGru", ParitySpec(18, {64}, {64}), {}, std::vector<int64_t>(70, 25)};
    spread.spec.agent_id_size = 3;
    spread.spec.SetCriticInput(policy::NetworkInput::kJointObservation, 57);
    spread.spec.actor.core = {CoreKind::kGru, 64, 1};
    spread.spec.mutable_critic()->core = {CoreKind::kGru, 64, 1};
    spread.spec.sequence_length = 25;
    spread.options.huber_delta = 10;
    cases.push_back(spread);
  }
  {
    ParityCase deep{"LstmOfTwoLayersWithAHead", ParitySpec(7, {13}, {9, 5}), {}, {}, /*inactive_rows=*/true};
    for (int64_t rows = 1; rows < 60; ++rows) deep.segments.push_back(rows);
    deep.spec.actor.core = {CoreKind::kLstm, 11, 2};
    deep.spec.actor.head_hidden_sizes = {6, 10};
    deep.spec.mutable_critic()->core = {CoreKind::kLstm, 7, 2};
    deep.spec.sequence_length = 9;
    cases.push_back(deep);
  }
  {
    ParityCase bare{"GruWithoutAnEncoder", ParitySpec(5, {}, {8}), {}, {30, 2, 17}};
    bare.spec.SetActivation(policy::Activation::kRelu);
    bare.spec.action_space = *space::Space::Box(-1, 1, {2});
    bare.spec.actor.core = {CoreKind::kGru, 3, 2};
    bare.spec.sequence_length = 13;
    cases.push_back(bare);
  }
  {
    ParityCase critic{"PlainActorAndGruCritic", ParitySpec(6, {8}, {}), {}, {1, 40, 8}, /*inactive_rows=*/true};
    critic.spec.mutable_critic()->core = {CoreKind::kGru, 17, 1};
    critic.spec.mutable_critic()->head_hidden_sizes = {12};
    critic.spec.sequence_length = 100;
    cases.push_back(critic);
  }
  return cases;
}

/// The models, heads and sizes that the fused kernels serve, too; sizes meet every remainder of their tiles, panels and
/// blocks.
inline std::vector<ParityCase> FusedParityCases() {
  std::vector<ParityCase> cases;
  {
    ParityCase spread{"SimpleSpread", ParitySpec(18, {64, 64}, {64, 64}), {}, std::vector<int64_t>(40, 25)};
    spread.spec.agent_id_size = 3;
    spread.spec.SetCriticInput(policy::NetworkInput::kJointObservation, 57);
    spread.options.huber_delta = 10;
    cases.push_back(spread);
  }
  for (const policy::Activation activation : {policy::Activation::kRelu, policy::Activation::kElu,
                                              policy::Activation::kSigmoid, policy::Activation::kIdentity}) {
    ParityCase one{"Activation_" + std::string(policy::ActivationName(activation)),
                   ParitySpec(7, {13, 22}, {9}),
                   {},
                   {11, 30, 47, 5}};
    one.spec.SetActivation(activation);
    cases.push_back(one);
  }
  {
    ParityCase mixed{"MasksAndMixedActions", ParitySpec(3, {6}, {31, 2}), {}, {100, 77, 3, 50}, /*inactive_rows=*/true};
    mixed.spec.action_space = *space::Space::Tuple(
        {*space::Space::MultiDiscrete({2, 7}), *space::Space::Box(-1, 1, {3}), *space::Space::MultiBinary(2)});
    mixed.spec.has_action_mask = true;
    mixed.options.use_value_clip = false;
    mixed.options.entropy_coeff = {0.05, 0.05, 0};
    cases.push_back(mixed);
  }
  {
    // 2000 units of activations a row: several blocks of panels a thread.
    ParityCase wide{"WideLayers", ParitySpec(40, {513, 300}, {1024}), {}, {200, 150, 301}};
    wide.options.huber_delta = 0.3;
    cases.push_back(wide);
  }
  for (const int64_t rows : {1, 7, 8, 9, 16, 17, 24, 25, 48, 49, 97}) {
    cases.push_back({"Rows" + std::to_string(rows), ParitySpec(5, {8}, {8}), {}, {rows}});
  }
  for (ParityCase& with_core : CoreParityCases()) cases.push_back(std::move(with_core));
  return cases;
}

}  // namespace troupe::training
