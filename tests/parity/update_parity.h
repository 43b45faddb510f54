#pragma once

// What the parity tests of algorithms share: the recorded cases that their references wrote, and every back end.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include "lib/training/core/on_policy_options.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/state_moments.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/registry.h"
#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_backend.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::training {

using nlohmann::json;

inline const policy::PolicySlot kSlot(0);

/// The record of that name in tests/parity.
inline json ReadRecord(const std::string& name) {
  // Where the tests travel without the source tree they are told where the record is.
  const char* const told = std::getenv("TROUPE_SOURCE_DIR");
  std::ifstream file(std::string(told == nullptr ? TROUPE_SOURCE_DIR : told) + "/tests/parity/" + name);
  return json::parse(file);
}

inline space::Space ActionSpace(const json& parts) {
  std::vector<space::Space> spaces;
  for (const json& part : parts) {
    if (part.contains("discrete")) spaces.push_back(*space::Space::Discrete(part["discrete"].get<int64_t>()));
    if (part.contains("multi_discrete")) {
      spaces.push_back(*space::Space::MultiDiscrete(part["multi_discrete"].get<std::vector<int64_t>>()));
    }
    if (part.contains("box")) spaces.push_back(*space::Space::Box(-1, 1, {part["box"].get<int64_t>()}));
  }
  return spaces.size() == 1 ? spaces[0] : *space::Space::Tuple(spaces);
}

inline policy::ContinuousDistribution ContinuousDistributionOf(const std::string& name) {
  for (const auto& [value, known] : policy::kContinuousDistributionNames) {
    if (name == known) return value;
  }
  ADD_FAILURE() << name;
  return policy::ContinuousDistribution::kGaussian;
}

/// Observations are images, which networks convolve.
inline void SetImage(const json& from, policy::PolicySpec* spec) {
  const auto shape = from["image"].get<std::vector<int64_t>>();
  spec->observation_space = from["bytes"].get<bool>() ? *space::Space::Box(0, 255, shape, tensor::DType::kUint8)
                                                      : *space::Space::Box(-100, 100, shape);
  for (policy::NetworkSpec* const network : {&spec->actor, spec->mutable_critic()}) {
    for (const json& layer : from[network->role + "_conv"]) {
      network->encoder = policy::EncoderKind::kCnn;
      network->conv_layers.push_back({layer[0].get<int64_t>(), layer[1].get<int64_t>(), layer[2].get<int64_t>()});
    }
  }
}

/// Observations are a Tuple, of which networks have encoders of some leaves.
inline void SetLeaves(const json& from, policy::PolicySpec* spec) {
  std::vector<space::Space> leaves;
  for (const json& leaf : from["leaves"]) {
    const auto shape = leaf["shape"].get<std::vector<int64_t>>();
    leaves.push_back(leaf["bytes"].get<bool>() ? *space::Space::Box(0, 255, shape, tensor::DType::kUint8)
                                               : *space::Space::Box(-100, 100, shape));
  }
  spec->observation_space = *space::Space::Tuple(leaves);
  spec->bytes_by_255 = true;  // rows of the record are as environments have them, and no assembler scales them
  for (policy::NetworkSpec* const network : {&spec->actor, spec->mutable_critic()}) {
    for (const json& encoder : from[network->role + "_leaves"]) {
      network->encoder = policy::EncoderKind::kLeaves;
      network->leaf_encoders.push_back(
          {.leaf = encoder["leaf"].get<int64_t>(), .hidden_sizes = encoder["hidden"].get<std::vector<int64_t>>()});
      for (const json& layer : encoder["conv"]) {
        network->leaf_encoders.back().conv_layers.push_back(
            {layer[0].get<int64_t>(), layer[1].get<int64_t>(), layer[2].get<int64_t>()});
      }
    }
  }
}

/// The critic attends to agents.
inline void SetAttention(const json& from, policy::PolicySpec* spec) {
  policy::NetworkSpec* const critic = spec->mutable_critic();
  critic->encoder = policy::EncoderKind::kAttention;
  policy::AttentionSpec& attention = critic->attention;
  attention.size = from["attention_size"].get<int64_t>();
  attention.heads = from["attention_heads"].get<int64_t>();
  attention.agents = from["attention_agents"].get<std::vector<int64_t>>();
  for (size_t agent = 0; agent < attention.agents.size(); ++agent) {
    const auto space = static_cast<size_t>(attention.agents[agent]);
    if (space == attention.observation_sizes.size()) {
      attention.observation_sizes.push_back(from["joint_sizes"][agent].get<int64_t>());
    }
  }
}

/// The critic shares the actor's encoder.
inline void SetShared(const json& from, policy::PolicySpec* spec) {
  policy::NetworkSpec* const critic = spec->mutable_critic();
  critic->encoder = policy::EncoderKind::kShared;
  critic->head_hidden_sizes = from["critic_head_hidden_sizes"].get<std::vector<int64_t>>();
}

inline policy::PolicySpec Spec(const json& record) {
  const json& from = record["spec"];
  policy::PolicySpec spec;
  spec.id = policy::PolicyId(record["name"].get<std::string>());
  spec.observation_space = *space::Space::Box(-100, 100, {from["obs_size"].get<int64_t>()});
  spec.action_space = ActionSpace(from["action"]);
  spec.actor.hidden_sizes = from["actor_hidden_sizes"].get<std::vector<int64_t>>();
  spec.mutable_critic()->hidden_sizes = from["critic_hidden_sizes"].get<std::vector<int64_t>>();
  spec.SetActivation(*policy::ParseActivation(from["activation"].get<std::string>()));
  const std::string input = from["critic_input"].get<std::string>();
  spec.SetCriticInput(input == "observation"    ? policy::NetworkInput::kObservation
                      : input == "global_state" ? policy::NetworkInput::kState
                                                : policy::NetworkInput::kJointObservation,
                      from["critic_state_size"].get<int64_t>());
  spec.agent_id_size = from["agent_id_size"].get<int64_t>();
  spec.SetCriticAgentId(from["critic_agent_id"].get<bool>());
  spec.normalize_observations = from["normalize_observations"].get<bool>();
  spec.has_action_mask = from["has_action_mask"].get<bool>();
  spec.normalize_state = from.value("normalize_state", false);
  if (from.value("agent_specific_state", false)) spec.SetCriticReadsAgentState(true);
  for (policy::NetworkSpec* const network : {&spec.actor, spec.mutable_critic()}) {
    network->layer_norm = from.value(network->role + "_layer_norm", false);
    const std::string activation = from.value(network->role + "_activation", from["activation"].get<std::string>());
    network->activation = *policy::ParseActivation(activation);
  }
  if (from.contains("continuous")) {
    policy::SetDistributionForTesting(ContinuousDistributionOf(from["continuous"].get<std::string>()), &spec);
    spec.free_log_std = from["free_log_std"].get<bool>();
    spec.min_log_std = from["min_log_std"].get<double>();
    spec.max_log_std = from["max_log_std"].get<double>();
  }
  if (from.contains("image")) SetImage(from, &spec);
  if (from.contains("leaves")) SetLeaves(from, &spec);
  if (from.contains("attention_size")) SetAttention(from, &spec);
  if (from.value("critic_encoder", "") == "shared") SetShared(from, &spec);
  spec.actor.has_target = from.value("actor_target", false);
  if (!from.contains("actor_core") || from.value("sequence_length", 0) == 0) return spec;
  spec.sequence_length = from["sequence_length"].get<int64_t>();
  for (policy::NetworkSpec* const network : {&spec.actor, spec.mutable_critic()}) {
    const std::string kind = from[network->role + "_core"].get<std::string>();
    if (kind == "none") continue;
    network->core.kind = kind == "gru" ? policy::CoreKind::kGru : policy::CoreKind::kLstm;
    network->core.size = from["core_size"].get<int64_t>();
    network->core.layers = from["core_layers"].get<int64_t>();
    network->head_hidden_sizes = from[network->role + "_head_hidden_sizes"].get<std::vector<int64_t>>();
  }
  return spec;
}

inline policy::OptionValue Schedule(const json& from) {
  if (from.contains("points")) {
    std::vector<policy::SchedulePoint> points;
    for (const json& point : from["points"]) points.push_back({point[0].get<int64_t>(), point[1].get<double>()});
    const bool by_updates = from["by"] == "updates";
    return policy::ScheduleValue::OfPoints(
        std::move(points), by_updates ? policy::ScheduleUnit::kUpdates : policy::ScheduleUnit::kEnvSteps);
  }
  const double initial = from["initial"].get<double>();
  const auto env_steps = from["env_steps"].get<int64_t>();
  if (env_steps == 0) return initial;
  return policy::ScheduleValue{initial, from["final"].get<double>(), env_steps};
}

/// `spec` with what of recorded options is a number or a schedule.
inline policy::AlgorithmSpec WithSchedules(const json& from, policy::AlgorithmSpec spec) {
  spec.options["lr"] = Schedule(from["learning_rate"]);
  const policy::OptionValue critic = Schedule(from["critic_learning_rate"]);
  if (critic != policy::OptionValue(0.0)) spec.options["critic_lr"] = critic;
  spec.options["entropy_coeff"] = Schedule(from["entropy_coeff"]);
  return spec;
}

/// The options that on-policy algorithms share, but for those of WithSchedules.
inline void ReadOptions(const json& from, OnPolicyOptions* options) {
  options->adam_epsilon = from["adam_epsilon"].get<double>();
  options->gamma = from["gamma"].get<double>();
  options->gae_lambda = from["gae_lambda"].get<double>();
  options->use_gae = from["use_gae"].get<bool>();
  options->use_advnorm = from["use_advnorm"].get<bool>();
  options->use_value_norm = from["use_value_norm"].get<bool>();
  options->use_popart = from.value("use_popart", false);
  options->use_policy_active_masks = from.value("use_policy_active_masks", true);
  options->use_value_active_masks = from.value("use_value_active_masks", true);
  options->death_masking = from.value("death_masking", false);
  const bool by_env_steps = from.value("minibatch_by", "rows") == "env_steps";
  options->minibatch_by = by_env_steps ? MinibatchBy::kEnvSteps : MinibatchBy::kRows;
  options->value_loss_coeff = from["value_loss_coeff"].get<double>();
  options->huber_delta = from["huber_delta"].get<double>();
  options->max_grad_norm = from["max_grad_norm"].get<double>();
}

inline std::vector<float> Flat(const json& named, const policy::ParameterLayout& layout) {
  std::vector<float> flat(static_cast<size_t>(layout.size()), 0.0f);
  EXPECT_EQ(named.size(), layout.entries().size());
  for (const policy::ParameterEntry& entry : layout.entries()) {
    const std::vector<float> values = named.at(entry.name).get<std::vector<float>>();
    EXPECT_EQ(static_cast<int64_t>(values.size()), entry.count) << entry.name;
    std::copy(values.begin(), values.end(), flat.begin() + entry.offset);
  }
  return flat;
}

inline ColumnMoments StateMoments(const json& from) {
  return {from["count"].get<std::vector<double>>(), from["mean"].get<std::vector<double>>(),
          from["variance"].get<std::vector<double>>()};
}

inline policy::RunningMoments Moments(const json& from) {
  return {from["count"].get<double>(), from["mean"].get<std::vector<double>>(),
          from["variance"].get<std::vector<double>>()};
}

/// A recorded batch.
struct Batch : learner::OwnedTrainBatch {
  explicit Batch(const json& record) {
    const json& from = record["batch"];
    obs = from["obs"].get<std::vector<float>>();
    final_obs = from["final_obs"].get<std::vector<float>>();
    logp = from["action_logp"].get<std::vector<float>>();
    rewards = from["rewards"].get<std::vector<float>>();
    action_mask = from["action_mask"].get<std::vector<uint8_t>>();
    agent_mask = from["agent_mask"].get<std::vector<uint8_t>>();
    slot = from["slot"].get<std::vector<int32_t>>();
    final_slot = from["final_slot"].get<std::vector<int32_t>>();
    critic_row = from["critic_row"].get<std::vector<int32_t>>();
    final_critic_row = from["final_critic_row"].get<std::vector<int32_t>>();
    critic_state = from["critic_state"].get<std::vector<float>>();
    SetActions(Spec(record), from["actions"].get<std::vector<double>>());
    if (Spec(record).image_bytes()) {
      images.assign(obs.begin(), obs.end());
      final_images.assign(final_obs.begin(), final_obs.end());
      obs.clear();
      final_obs.clear();
    }
    if (const int64_t bytes = Spec(record).ByteElements(Spec(record).critic()); !critic_state.empty() && bytes > 0) {
      TakeImages(Spec(record).critic_state_size(), bytes);
    }

    learner::PolicyTrainBatch rows;
    rows.policy = kSlot;
    rows.rows = from["rows"].get<int64_t>();
    rows.final_rows = from["final_rows"].get<int64_t>();
    rows.critic_rows = from["critic_rows"].get<int64_t>();
    for (const json& segment : from["segments"]) {
      rows.segments.push_back({segment["first_row"].get<int64_t>(), segment["rows"].get<int64_t>(),
                               segment["final_row"].get<int64_t>(), base::EnvId(segment["env_id"].get<uint32_t>()),
                               segment["episode"].get<uint32_t>(), base::AgentSlot(segment["slot"].get<int32_t>()),
                               segment.value("truncated", false)});
    }
    if (from.contains("joint_sizes")) {
      joint_sizes = from["joint_sizes"].get<std::vector<int64_t>>();
      rows.joint_sizes = joint_sizes;
    }
    if (from.contains("sequences")) {
      memory = from["memory"].get<std::vector<float>>();
      for (const json& sequence : from["sequences"]) {
        rows.sequences.push_back({sequence["first_row"].get<int64_t>(), sequence["rows"].get<int64_t>(),
                                  sequence["decision"].get<int64_t>()});
      }
    }
    Add(std::move(rows));
  }

  std::vector<int64_t> joint_sizes;

  /// Of `columns` of the joint observation the first `bytes` are images.
  void TakeImages(int64_t columns, int64_t bytes) {
    std::vector<float> bits;
    for (auto row = critic_state.begin(); row != critic_state.end(); row += columns) {
      critic_images.insert(critic_images.end(), row, row + bytes);
      bits.insert(bits.end(), row + bytes, row + columns);
    }
    critic_state = std::move(bits);
  }

  void SetActions(const policy::PolicySpec& spec, const std::vector<double>& values) {
    std::vector<bool> continuous(static_cast<size_t>(spec.action_words()), false);
    for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
      for (int64_t w = 0; w < leaf.words; ++w) {
        continuous[leaf.word + w] = leaf.kind == space::ActionLeaf::Kind::kContinuous;
      }
    }
    actions.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (continuous[i % continuous.size()]) {
        actions[i].f32 = static_cast<float>(values[i]);
      } else {
        actions[i].i32 = static_cast<int32_t>(values[i]);
      }
    }
  }
};

/// Compares entry by entry: the largest difference against the largest number of the entry.
inline void ExpectClose(const policy::ParameterLayout& layout, const std::vector<float>& got,
                        const std::vector<float>& expected, double tolerance, const std::string& what) {
  for (const policy::ParameterEntry& entry : layout.entries()) {
    double largest = 0;
    double difference = 0;
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
      difference = std::max(difference, std::abs(static_cast<double>(got[i]) - expected[i]));
    }
    EXPECT_LE(difference, tolerance * std::max(largest, 1e-3)) << what << " " << entry.name;
  }
}

inline constexpr char kDevice[] = "LibTorchDevice";

struct BackendCase {
  const char* name;
  TrainerHost::BackendFactory make;
  std::string backend_name;       ///< NetworkBackend::name
  const char* missing = nullptr;  ///< what the processor lacks for it
};

inline std::vector<BackendCase> Backends() {
  const auto on_host = [](int threads) -> TrainerHost::BackendFactory {
    return [=](const policy::PolicySpec& spec) {
      return MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(threads));
    };
  };
  const auto on_device = [](const policy::PolicySpec& spec) {
    return MakeTorchBackend(spec, TestDevice(), TorchPath::kDevice, std::make_shared<ThreadTeam>(1));
  };
  const auto fused = [](VectorUnit unit, int threads) -> TrainerHost::BackendFactory {
    return [=](const policy::PolicySpec& spec) {
      return MakeFusedBackend(spec, std::make_shared<ThreadTeam>(threads), unit);
    };
  };
  const char* const no_avx2 = base::ProcessorHasAvx2() ? nullptr : base::kNoAvx2;
  const char* const no_avx512 = base::ProcessorHasAvx512() ? nullptr : base::kNoAvx512;
  return {{"LibTorch", on_host(1), "libtorch/cpu"},
          {"LibTorchTwoThreads", on_host(2), "libtorch/cpu"},
          {kDevice, on_device, "libtorch/" + TestDevice().ToString()},
          {"FusedAvx2", fused(VectorUnit::kAvx2, 1), "fused/avx2", no_avx2},
          {"FusedAvx2ThreeThreads", fused(VectorUnit::kAvx2, 3), "fused/avx2", no_avx2},
          {"FusedAvx512", fused(VectorUnit::kAvx512, 1), "fused/avx512", no_avx512},
          {"FusedAvx512ThreeThreads", fused(VectorUnit::kAvx512, 3), "fused/avx512", no_avx512}};
}

/// One update of a recorded case by a back end: (number of the case, number of the back end).
class UpdateParityTest : public testing::TestWithParam<std::tuple<size_t, size_t>> {
 protected:
  /// What the reference recorded.
  virtual const json& Recorded() const = 0;

  void SetUp() override {
    const BackendCase backend = Backends()[std::get<1>(GetParam())];
    if (backend.missing != nullptr) GTEST_SKIP() << backend.missing;
    const auto made = backend.make(Spec(record()));
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_EQ((*made)->name(), backend.backend_name);
  }

  static double tolerance() {
    const bool on_gpu = TestDevice().is_cuda() && Backends()[std::get<1>(GetParam())].name == std::string(kDevice);
    return on_gpu ? 1e-4 : 1e-5;
  }
  const json& record() const { return Recorded()["cases"][std::get<0>(GetParam())]; }

  /// Runs one update under `options` from the recorded state; returns the report and leaves the state in `after_`.
  /// Raises what goes wrong.
  learner::PolicyUpdateReport Run(const policy::AlgorithmSpec& options) {
    const BackendCase backend = Backends()[std::get<1>(GetParam())];
    const policy::PolicySpec spec = Spec(record());
    layout_ = policy::ParameterLayout::For(spec);
    auto trainer = TrainerHost::Make({spec}, {options}, {.seed = 1}, &FindAlgorithm, backend.make);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    policy::PolicyState state = *(*trainer)->ExportState(kSlot);
    state.Set(policy::kParameters, Flat(record()["parameters"], layout_));
    if (record().contains("value_moments")) state.SetMoments(policy::kValueMoments, Moments(record()["value_moments"]));
    if (record().contains("observation_moments"))
      state.SetMoments(policy::kObservationMoments, Moments(record()["observation_moments"]));
    if (record().contains("state_moments")) SetStateMoments(StateMoments(record()["state_moments"]), &state);
    EXPECT_TRUE((*trainer)->ImportState(state, kSlot).ok());
    const Batch batch(record());
    const json& context = record()["context"];
    auto reports = (*trainer)->Update(batch.batch, {.seed = context["seed"].get<uint64_t>(),
                                                    .iteration = context["iteration"].get<int64_t>(),
                                                    .env_steps = context["env_steps"].get<int64_t>(),
                                                    .next_version = {1, 1}});
    if (!reports.ok()) throw std::runtime_error(reports.status().ToString());
    after_ = *(*trainer)->ExportState(kSlot);
    return reports->at(0);
  }

  void ExpectReport(const learner::PolicyUpdateReport& report, const json& expected) {
    EXPECT_EQ(report.minibatch_steps, expected["minibatch_steps"].get<int64_t>());
    EXPECT_EQ(report.epochs, expected["epochs"].get<int64_t>());
    EXPECT_EQ(report.trained_rows, expected["trained_rows"].get<int64_t>());
    EXPECT_EQ(report.skipped_steps, 0);
    size_t compared = 0;
    for (const auto& [tag, value] : report.metrics) {
      if (!expected["metrics"].contains(tag)) continue;
      const double number = expected["metrics"][tag].get<double>();
      EXPECT_NEAR(value, number, tolerance() * std::max(1.0, std::abs(number))) << tag;
      ++compared;
    }
    EXPECT_EQ(compared, expected["metrics"].size());
    if (expected.contains("state_moments")) ExpectStateMoments(StateMoments(expected["state_moments"]));
    const policy::RunningMoments after = after_.Moments(policy::kValueMoments);
    if (!after.mean.empty()) {
      const policy::RunningMoments moments = Moments(expected["value_moments"]);
      EXPECT_NEAR(after.mean[0], moments.mean[0], tolerance());
      EXPECT_NEAR(after.variance[0], moments.variance[0], tolerance() * moments.variance[0]);
      EXPECT_EQ(after.count, moments.count);
    }
  }

  void ExpectStateMoments(const ColumnMoments& expected) {
    const ColumnMoments got = StateMomentsOf(after_);
    EXPECT_EQ(got.count, expected.count);
    ASSERT_EQ(got.mean.size(), expected.mean.size());
    for (size_t c = 0; c < got.mean.size(); ++c) {
      EXPECT_NEAR(got.mean[c], expected.mean[c], 1e-9) << c;
      EXPECT_NEAR(got.variance[c], expected.variance[c], 1e-8) << c;
    }
  }

  policy::ParameterLayout layout_;
  policy::PolicyState after_;
};

inline std::string BackendName(const testing::TestParamInfo<std::tuple<size_t, size_t>>& info) {
  return Backends()[std::get<1>(info.param)].name;
}

}  // namespace troupe::training
