#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/philox.h"
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

/// Normalized layers and the activations whose derivative does not follow from their value; each network with its own.
inline std::vector<ParityCase> LayerParityCases() {
  using policy::Activation;
  using policy::CoreKind;
  std::vector<ParityCase> cases;
  for (const Activation activation : {Activation::kTanh, Activation::kRelu, Activation::kElu, Activation::kSigmoid,
                                      Activation::kIdentity, Activation::kGelu, Activation::kSilu}) {
    const std::string name(policy::ActivationName(activation));
    if (activation == Activation::kGelu || activation == Activation::kSilu) {
      cases.push_back({"Activation_" + name, ParitySpec(7, {13, 22}, {9}), {}, {11, 30, 47, 5}});
      cases.back().spec.SetActivation(activation);
    }
    cases.push_back({"Normed_" + name, ParitySpec(7, {13, 22}, {9}), {}, {11, 30, 47, 5}});
    cases.back().spec.SetActivation(activation);
    cases.back().spec.actor.layer_norm = cases.back().spec.mutable_critic()->layer_norm = true;
  }
  {
    ParityCase own{"ReluActorAndNormedSiluCritic", ParitySpec(6, {64, 64}, {64, 64}), {}, std::vector<int64_t>(40, 25)};
    own.spec.actor.activation = Activation::kRelu;
    own.spec.mutable_critic()->activation = Activation::kSilu;
    own.spec.mutable_critic()->layer_norm = true;
    cases.push_back(own);
  }
  {
    ParityCase wide{"NormedWideLayers", ParitySpec(40, {513, 300}, {1024}), {}, {200, 150, 301}};
    wide.spec.SetActivation(Activation::kGelu);
    wide.spec.actor.layer_norm = wide.spec.mutable_critic()->layer_norm = true;
    cases.push_back(wide);
  }
  {
    ParityCase gru{"NormedGru", ParitySpec(18, {64}, {64}), {}, std::vector<int64_t>(70, 25)};
    gru.spec.actor.core = gru.spec.mutable_critic()->core = {CoreKind::kGru, 64, 1};
    gru.spec.actor.layer_norm = gru.spec.mutable_critic()->layer_norm = true;
    gru.spec.sequence_length = 25;
    cases.push_back(gru);
  }
  {
    ParityCase deep{"LstmBehindGeluBeforeNormedSilu", ParitySpec(7, {13, 9}, {9, 5}), {}, {}, /*inactive_rows=*/true};
    for (int64_t rows = 1; rows < 60; ++rows) deep.segments.push_back(rows);
    deep.spec.actor.core = {CoreKind::kLstm, 11, 2};
    deep.spec.actor.head_hidden_sizes = {6, 10};
    deep.spec.actor.activation = Activation::kGelu;
    deep.spec.mutable_critic()->core = {CoreKind::kLstm, 7, 1};
    deep.spec.mutable_critic()->head_hidden_sizes = {8};
    deep.spec.mutable_critic()->activation = Activation::kSilu;
    deep.spec.mutable_critic()->layer_norm = true;
    deep.spec.sequence_length = 9;
    cases.push_back(deep);
  }
  return cases;
}

/// What continuous actions may be drawn from, alone and in random spaces with masks.
inline std::vector<ParityCase> DistributionParityCases(int random_cases) {
  using policy::ContinuousDistribution;
  std::vector<ParityCase> cases;
  const auto add = [&cases](const std::string& name, ContinuousDistribution distribution, bool is_free) {
    ParityCase one{name, ParitySpec(7, {13, 22}, {9}), {}, {11, 30, 47, 5}};
    one.spec.action_space = *space::Space::Box(-1, 1, {3});
    one.spec.continuous = distribution;
    one.spec.free_log_std = is_free;
    one.spec.action_scaling = distribution != ContinuousDistribution::kGaussian;
    if (distribution == ContinuousDistribution::kSquashedGaussian) {
      one.spec.action_bound_method = policy::ActionBoundMethod::kTanh;
    }
    one.options.entropy_coeff = 0.05;
    cases.push_back(std::move(one));
    return &cases.back();
  };
  add("PredictedGaussian", ContinuousDistribution::kGaussian, false)->spec.max_log_std = 0.25;
  ParityCase* const clamped = add("ClampedGaussian", ContinuousDistribution::kGaussian, true);
  clamped->spec.initial_log_std = -0.5;
  clamped->spec.max_log_std = -0.5;
  add("SquashedGaussian", ContinuousDistribution::kSquashedGaussian, true);
  add("PredictedSquashedGaussian", ContinuousDistribution::kSquashedGaussian, false);
  add("Beta", ContinuousDistribution::kBeta, true);
  for (int number = 0; number < random_cases; ++number) {
    base::PhiloxSequence random(base::PhiloxKey::Make(57, base::RandomStream::kTest),
                                {.env_id = static_cast<uint32_t>(number)});
    const auto below = [&random](uint32_t most) { return static_cast<int64_t>(random.Below(most)); };
    ParityCase* const one = add("RandomDistribution" + std::to_string(number),
                                static_cast<ContinuousDistribution>(1 + number % 3), below(2) == 0);
    std::vector<space::Space> leaves = {*space::Space::Box(-1, 1, {1 + below(4)})};
    for (int64_t more = below(4); more > 0; --more) {
      leaves.push_back(below(2) == 0 ? *space::Space::Box(-2, 3, {1 + below(3)})
                                     : *space::Space::MultiDiscrete({2 + below(5), 2 + below(3)}));
    }
    one->spec.action_space = *space::Space::Tuple(leaves);
    one->spec.has_action_mask = one->spec.action_space.mask_size() > 0 && below(2) == 0;
    one->spec.min_log_std = -0.5 - static_cast<double>(below(3));
    one->spec.max_log_std = 0.25 + static_cast<double>(below(3));
    one->inactive_rows = below(2) == 0;
    if (below(2) == 0) {
      one->spec.actor.core = {policy::CoreKind::kGru, 1 + below(20), 1};
      one->spec.sequence_length = 1 + below(12);
    }
    one->segments.clear();
    for (int64_t segments = 1 + below(30); segments > 0; --segments) one->segments.push_back(1 + below(30));
  }
  return cases;
}

/// Specs that nobody has chosen: the same ones in each process.
inline std::vector<ParityCase> RandomParityCases(int count) {
  std::vector<ParityCase> cases;
  for (int number = 0; number < count; ++number) {
    base::PhiloxSequence random(base::PhiloxKey::Make(31, base::RandomStream::kTest),
                                {.env_id = static_cast<uint32_t>(number)});
    const auto below = [&random](uint32_t most) { return static_cast<int64_t>(random.Below(most)); };
    const auto sizes = [&](int64_t fewest, uint32_t more) {
      std::vector<int64_t> layers(static_cast<size_t>(fewest + below(more)));
      // A normalized row of two numbers is 1 and -1, and so is what is made of a core of one unit: of its gradient
      // nothing but rounding is left, here and in LibTorch.
      for (int64_t& size : layers) size = 5 + below(40);
      return layers;
    };
    ParityCase one{"Random" + std::to_string(number), ParitySpec(1 + below(20), {}, {}), {}, {}, below(2) == 0};
    for (policy::NetworkSpec* const network : {&one.spec.actor, one.spec.mutable_critic()}) {
      network->activation = static_cast<policy::Activation>(1 + below(7));
      network->layer_norm = below(2) == 0;
      network->hidden_sizes = sizes(1, 3);
      if (below(2) == 0) continue;
      network->core = {below(2) == 0 ? policy::CoreKind::kGru : policy::CoreKind::kLstm, 4 + below(17), 1 + below(2)};
      network->hidden_sizes = sizes(0, 3);
      network->head_hidden_sizes = sizes(0, 3);
      one.spec.sequence_length = 1 + below(12);
    }
    if (below(3) == 0) one.spec.action_space = *space::Space::Box(-1, 1, {1 + below(3)});
    if (below(2) == 0) one.options.huber_delta = 0.5;
    const int64_t segments = 1 + below(40);
    for (int64_t i = 0; i < segments; ++i) one.segments.push_back(1 + below(30));
    cases.push_back(std::move(one));
  }
  return cases;
}

/// Minibatches of env steps: a RandomBatch has about two rows for an input of the critic, of some one and of others
/// many.
inline std::vector<ParityCase> EnvStepParityCases(int random_cases) {
  std::vector<ParityCase> cases;
  const auto add = [&cases](const std::string& name) -> ParityCase& {
    cases.push_back({"EnvSteps" + name, ParitySpec(7, {13, 22}, {9}), {}, {11, 30, 47, 5}});
    cases.back().spec.agent_id_size = 3;
    cases.back().spec.SetCriticInput(policy::NetworkInput::kState, 10);
    cases.back().options.minibatch_by = MinibatchBy::kEnvSteps;
    return cases.back();
  };
  add("Spread").segments = std::vector<int64_t>(40, 25);
  cases.back().spec = ParitySpec(18, {64, 64}, {64, 64});
  cases.back().spec.agent_id_size = 3;
  cases.back().spec.SetCriticInput(policy::NetworkInput::kJointObservation, 57);
  cases.back().options.huber_delta = 10;
  add("DeadInTheCriticsLoss").inactive_rows = true;
  cases.back().options.use_value_active_masks = false;
  add("DeadInThePolicysLoss").inactive_rows = true;
  cases.back().options.use_policy_active_masks = false;
  add("DeadInBothWithMaskedInputs").inactive_rows = true;
  cases.back().options.use_policy_active_masks = cases.back().options.use_value_active_masks = false;
  cases.back().options.death_masking = true;
  for (int number = 0; number < random_cases; ++number) {
    base::PhiloxSequence random(base::PhiloxKey::Make(83, base::RandomStream::kTest),
                                {.env_id = static_cast<uint32_t>(number)});
    const auto below = [&random](uint32_t most) { return static_cast<int64_t>(random.Below(most)); };
    ParityCase& one = add("Random" + std::to_string(number));
    one.spec.SetCriticInput(policy::NetworkInput::kState, 1 + below(30));
    policy::NetworkSpec* const critic = one.spec.mutable_critic();
    critic->activation = static_cast<policy::Activation>(1 + below(7));
    critic->layer_norm = below(2) == 0;
    critic->hidden_sizes.clear();
    for (int64_t layers = 1 + below(3); layers > 0; --layers) critic->hidden_sizes.push_back(5 + below(40));
    one.inactive_rows = below(2) == 0;
    if (below(2) == 0) one.options.huber_delta = 0.5;
    one.options.use_value_clip = below(2) == 0;
    one.options.use_value_active_masks = below(3) != 0;
    one.options.death_masking = below(3) == 0;
    one.segments.clear();
    for (int64_t segments = 1 + below(40); segments > 0; --segments) one.segments.push_back(1 + below(30));
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
    mixed.options.entropy_coeff = 0.05;
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
  for (std::vector<ParityCase>& more : std::vector{CoreParityCases(), LayerParityCases(), RandomParityCases(24),
                                                   DistributionParityCases(12), EnvStepParityCases(12)}) {
    for (ParityCase& one : more) cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace troupe::training
